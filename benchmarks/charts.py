"""Charts of docs/results: figures of one width, saved as SVG that reads in light and dark.

Text stays text, and colours are those of `LIGHT`: a style of the SVG replaces each by that of `DARK` where the reader's
scheme is dark. A chart is about 520 pixels wide, so that its text can be read at the width of a phone as well.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH = 5.4  # inches of 96 pixels
# Ink, quiet ink, lines of the grid; then series, which differ in lightness too.
LIGHT = ("#1b2733", "#5b6875", "#d5dbe1", "#1f6fb4", "#d9822b", "#3d8f5f", "#a8559c", "#7d8893", "#b5452c")
DARK = ("#e6ebf0", "#9fb0c0", "#36414c", "#6db3ee", "#f0a95c", "#74c795", "#d490ca", "#8d99a6", "#ee8a72")
INK, QUIET, GRID = LIGHT[:3]
SERIES = LIGHT[3:]
STYLE = rc_params_from_file(Path(__file__).with_suffix(".mplstyle"), use_default_template=False)


def panels(height: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with panels below each other.

    Args:
        height: Inches of the whole figure.
        rows: Number of panels.
    """
    rcParams.update(STYLE)  # also for titles and legends that are added later
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(rows, 1, squeeze=False)
    for one in axes[:, 0]:
        one.set_prop_cycle(color=SERIES)
    return figure, list(axes[:, 0])


def bars(axes: Axes, labels: Sequence[str], values: Sequence[float], texts: Sequence[str], color: Any = None) -> None:
    """Horizontal bars from top to bottom, the label above each bar and a text at its end.

    Args:
        axes: The panel.
        labels: Names of the bars.
        values: Lengths of the bars.
        texts: Figures as they are written behind the bars.
        color: One colour of `SERIES`, or one for each bar.
    """
    places = range(len(labels))
    axes.barh(places, values, height=0.4, color=color or SERIES[0])
    for place, label, value, text in zip(places, labels, values, texts, strict=True):
        axes.annotate(label, (0, place - 0.24), xytext=(2, 1), textcoords="offset points", color=INK, fontsize=9.5)
        axes.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center", color=QUIET)
    axes.set_ylim(len(labels) - 0.5, -0.9)
    axes.set_yticks([])
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def svg(figure: Figure) -> str:
    """A figure as SVG. The same figure gives the same text."""
    buffer = io.StringIO()
    rcParams.update(STYLE)
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue().replace("'DejaVu Sans'", "system-ui, sans-serif")
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
        for light, dark in zip(LIGHT, DARK, strict=True)
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return re.sub(r"(<svg [^>]*>)", rf"\1\n {style}", text, count=1)
