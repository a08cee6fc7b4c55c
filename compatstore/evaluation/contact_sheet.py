"""A contact sheet: what some queries find before and after an upgrade, as small images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.boundary import checked
from compatstore.errors import InvalidInput
from compatstore.evaluation.plots import canvas, write

_GREEN, _RED, _GREY = "#1A7F37", "#CF222E", "#9A9A9A"
_THUMBNAIL = 0.9  # of a cell, whose side is the unit of the drawing
_GAP = 0.45
_CAPTION = 0.2
_HEADING = 0.5
_FOOTING = 0.45
_MARGIN = 0.12
_HEADING_WIDTH = 2.5  # in cells: what the longer default heading takes up
_INCHES = 0.8  # per cell


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbour:
    """One image that a query found.

    Args:
        image: (h, w) or (h, w, 3), uint8 in 0 to 255 or floats in 0 to 1.
        correct: Whether its label is the query's.
        caption: A few words below it, or "".

    Examples:
        >>> grey = np.full((8, 8), 128, np.uint8)
        >>> found = [cs.evaluation.Neighbour(image=grey, correct=True, caption="a cat")]
        >>> found[0].caption
        'a cat'
    """

    image: npt.NDArray[Any]
    correct: bool
    caption: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class SheetRow:
    """One query and its nearest neighbours, nearest first.

    Args:
        query: (h, w) or (h, w, 3), uint8 in 0 to 255 or floats in 0 to 1.
        before: What it found before the upgrade.
        after: What it found after the upgrade.
        caption: A few words below the query, or "".

    Examples:
        >>> grey = np.full((8, 8), 128, np.uint8)
        >>> found = [cs.evaluation.Neighbour(image=grey, correct=True, caption="a cat")]
        >>> cs.evaluation.SheetRow(query=grey, before=found, after=found).caption
        ''
    """

    query: npt.NDArray[Any]
    before: Sequence[Neighbour]
    after: Sequence[Neighbour]
    caption: str = ""


@checked
def contact_sheet(
    rows: Sequence[SheetRow],
    path: str | Path,
    *,
    title: str = "",
    headings: tuple[str, str] = ("Before the upgrade", "After the upgrade"),
) -> Path:
    """Draw one line per query: the query, its neighbours before, its neighbours after.

    Correct neighbours have a solid green frame and a check mark, wrong ones a dashed red frame and a cross.

    Args:
        rows: The queries, top to bottom.
        path: Where to write, ".png" or ".svg".
        title: A line above all.
        headings: Above the two groups of neighbours.

    Returns:
        The path written.

    Raises:
        MissingExtra: matplotlib is not installed.
        InvalidInput: No rows, rows without neighbours, an image of another shape or type, or another suffix.

    Examples:
        >>> grey = np.full((8, 8), 128, np.uint8)
        >>> found = [cs.evaluation.Neighbour(image=grey, correct=True, caption="a cat")]
        >>> row = cs.evaluation.SheetRow(query=grey, before=found, after=found, caption="query 1")
        >>> cs.evaluation.contact_sheet([row], "sheet.png").name
        'sheet.png'
    """
    columns = max((max(len(row.before), len(row.after)) for row in rows), default=0)
    if not columns:
        raise InvalidInput("draw a contact sheet", expected="rows with neighbours", found=f"{len(rows)} rows")
    width = max(columns, _HEADING_WIDTH)
    lefts = (0.0, 1 + _GAP, 1 + _GAP + width + _GAP)
    top = -_HEADING - (_HEADING if title else 0.0)
    pitch = 1 + (_CAPTION if _any_caption(rows) else 0.0)
    bottom, right = len(rows) * pitch + _FOOTING, lefts[2] + width
    with canvas((right + 2 * _MARGIN) * _INCHES, (bottom - top) * _INCHES, on_white=True) as figure:
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set_axis_off()
        axes.set(xlim=(-_MARGIN, right + _MARGIN), ylim=(bottom, top))
        _draw_texts(axes, title, ("Query", *headings), lefts, top, bottom)
        for index, row in enumerate(rows):
            _draw_row(axes, row, lefts, index * pitch)
        return write(figure, path)


def _any_caption(rows: Sequence[SheetRow]) -> bool:
    return any(row.caption or any(found.caption for found in (*row.before, *row.after)) for row in rows)


def _draw_texts(
    axes: Any, title: str, headings: Sequence[str], lefts: Sequence[float], top: float, bottom: float
) -> None:
    for heading, left in zip(headings, lefts, strict=True):
        axes.text(left, -0.12, heading, fontsize=10, fontweight="bold", va="bottom")
    if title:
        axes.text(0, top + 0.12, title, fontsize=12, va="top")
    key = {"\N{CHECK MARK} same label as the query": _GREEN, "\N{BALLOT X} another label": _RED}
    for place, (text, colour) in enumerate(key.items()):
        axes.text(lefts[1] + 3 * place, bottom - 0.12, text, fontsize=8, color=colour, va="bottom")


def _draw_row(axes: Any, row: SheetRow, lefts: Sequence[float], y: float) -> None:
    _draw_image(axes, row.query, lefts[0], y, row.caption)
    _draw_frame(axes, lefts[0], y, _GREY, "solid", 0.8)
    for left, neighbours in zip(lefts[1:], (row.before, row.after), strict=True):
        for place, neighbour in enumerate(neighbours):
            _draw_image(axes, neighbour.image, left + place, y, neighbour.caption)
            _draw_verdict(axes, neighbour.correct, left + place, y)


def _draw_image(axes: Any, image: npt.NDArray[Any], x: float, y: float, caption: str) -> None:
    """Fit an image into its cell, its sides in proportion."""
    pixels = _rgb(image)
    height, width = pixels.shape[:2]
    dx, dy = _THUMBNAIL * width / max(height, width) / 2, _THUMBNAIL * height / max(height, width) / 2
    middle_x, middle_y = x + _THUMBNAIL / 2, y + _THUMBNAIL / 2
    extent = (middle_x - dx, middle_x + dx, middle_y + dy, middle_y - dy)
    axes.imshow(pixels, extent=extent, aspect="auto", interpolation="antialiased")
    if caption:
        axes.text(middle_x, y + _THUMBNAIL + 0.05, caption, fontsize=6.5, ha="center", va="top", color="#444444")


def _draw_frame(axes: Any, x: float, y: float, colour: str, dashes: str, width: float) -> None:
    from matplotlib.patches import Rectangle

    frame = Rectangle((x, y), _THUMBNAIL, _THUMBNAIL, fill=False, edgecolor=colour, linewidth=width, linestyle=dashes)
    axes.add_patch(frame)


def _draw_verdict(axes: Any, correct: bool, x: float, y: float) -> None:
    colour, dashes, mark = (_GREEN, "solid", "\N{CHECK MARK}") if correct else (_RED, "dashed", "\N{BALLOT X}")
    _draw_frame(axes, x, y, colour, dashes, 2.2)
    badge = {"boxstyle": "circle,pad=0.18", "facecolor": colour, "edgecolor": "white", "linewidth": 0.8}
    corner = (x + _THUMBNAIL - 0.02, y + 0.02)
    axes.text(*corner, mark, fontsize=6.5, color="white", ha="center", va="center", bbox=badge)


def _rgb(image: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return an image as (h, w, 3) uint8."""
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    floats = pixels.dtype.kind == "f"
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size or not (floats or pixels.dtype == np.uint8):
        raise InvalidInput(
            "draw an image",
            expected="(h, w) or (h, w, 3), uint8 or floats in 0 to 1",
            found=f"{np.shape(image)} {pixels.dtype}",
        )
    return np.asarray(np.clip(np.nan_to_num(pixels) * 255, 0, 255) if floats else pixels).astype(np.uint8)
