"""The demo's pictures: quality during the backfill, and what some queries find before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from compatstore.demo.digits import ImageFiles
from compatstore.demo.report import DemoRow
from compatstore.encoders.images import read_image
from compatstore.evaluation import BackfillCurve, Neighbour, SheetRow, contact_sheet, plot_curve
from compatstore.gallery import Gallery

NEIGHBOURS = 5
PER_DIGIT = 2
DRAWN = 64  # pixels across in the contact sheet
NEW_DIGITS = range(5, 10)

Neighbours = list[list[Neighbour]]


def draw_curve(curves: dict[str, BackfillCurve], status_quo: DemoRow, full: DemoRow, path: Path) -> Path:
    """Draw mAP against the share of the gallery that is embedded natively."""
    references = {"status quo, s/s": status_quo.map, "full backfill, t/t": full.map}
    return plot_curve(curves, path, metric="map", references=references)


def shown_queries(queries: ImageFiles) -> list[int]:
    """Choose which queries to draw: of each digit that the source model never saw the first two, in order of id."""
    return [int(row) for digit in NEW_DIGITS for row in np.flatnonzero(queries.labels == digit)[:PER_DIGIT]]


def find_neighbours(gallery: Gallery, queries: ImageFiles, rows: Sequence[int], version: str) -> Neighbours:
    """Search the live gallery with image files, as a user of `version` would."""
    return [_neighbours(gallery, queries.paths[row], int(queries.labels[row]), version) for row in rows]


def draw_neighbours(
    queries: ImageFiles, rows: Sequence[int], before: Neighbours, after: Neighbours, path: Path
) -> Path:
    """Draw the contact sheet."""
    sheet = [
        SheetRow(query=_pixels(queries.paths[row]), before=was, after=now, caption=f"a {queries.labels[row]}")
        for row, was, now in zip(rows, before, after, strict=True)
    ]
    title = "The first two queries of each digit that v1 was not trained on"
    return contact_sheet(sheet, path, title=title, headings=("Before: v1", "After the hop to v2: nothing re-embedded"))


def _neighbours(gallery: Gallery, query: Path, label: int, version: str) -> list[Neighbour]:
    found = gallery.search(str(query), k=NEIGHBOURS, version=version, columns=["source", "label"])
    return [
        Neighbour(image=_pixels(item["source"]), correct=item["label"] == label, caption=str(item["label"]))
        for item in found.select(["source", "label"]).to_pylist()
    ]


def _pixels(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read an image and draw it larger, smoothly: eight pixels across are hard to read as a digit."""
    return np.asarray(read_image(path, "L").resize((DRAWN, DRAWN), Image.Resampling.BICUBIC))
