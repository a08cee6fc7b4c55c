"""A blank figure of our style, and writing it: without a window and without matplotlib's global state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from compatstore.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with matplotlib, so pictures look alike everywhere
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "compatstore",  # the same figures give the same file
}


@contextmanager
def canvas(width: float, height: float) -> Iterator[Figure]:
    """Give a figure of width x height inches; style settings hold inside the block only.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", "report") from error
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure


def write(figure: Figure, path: str | Path, dpi: int = 200) -> Path:
    """Write a figure as the suffix says; call it inside the `canvas` block.

    Raises:
        InvalidInput: The suffix is neither .png nor .svg.
    """
    target = Path(path)
    if target.suffix not in {".png", ".svg"}:
        raise InvalidInput("write a picture", expected="a path that ends in .png or .svg", found=str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if target.suffix == ".svg" else {}
    figure.savefig(target, dpi=dpi, metadata=metadata)
    return target
