"""What the charts of a report show: figures with intervals, and curves; without colours and pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from compatstore.evaluation import Estimate


class Point(NamedTuple):
    """A point of a curve.

    Attributes:
        x: Its place.
        y: The figure, with its interval.
    """

    x: float
    y: Estimate


@dataclass(frozen=True, kw_only=True)
class Line:
    """A curve.

    Args:
        name: What it shows.
        points: In the order of x.
        promised: Whether it was expected rather than found: drawn dashed, and its intervals only as a band.
        band: Whether its intervals are a band.
    """

    name: str
    points: tuple[Point, ...]
    promised: bool = False
    band: bool = False


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Curves over one axis.

    Args:
        title: What the chart shows.
        x: What the horizontal axis is, with its unit.
        y: What the vertical axis is, with its unit.
        lines: One or more.
        level: Where a reference lies, None for none.
        level_name: What the reference is.
        span: Ends of the horizontal axis; None for those of the points.
    """

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    level: float | None = None
    level_name: str = ""
    span: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Figures with intervals, one below the other.

    Args:
        title: What the chart shows.
        unit: Of the figures.
        rows: Name and figure.
        level: Where a reference lies.
        marked: Name of the row that is picked out, "" for none.
    """

    title: str
    unit: str
    rows: tuple[tuple[str, Estimate], ...]
    level: float = 0.0
    marked: str = ""


Drawing: TypeAlias = Curves | Intervals
