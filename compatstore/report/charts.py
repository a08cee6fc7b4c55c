"""Charts as SVG: text that is read aloud, colours from the page's variables, no script.

A drawing is 360 units wide, the width of a phone, so that its text is as large as the page's there and never smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Literal, NamedTuple, TypeAlias

from compatstore.evaluation import Estimate
from compatstore.html import Html, element


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
        name: Name of the line.
        points: In the order of x.
        promised: True if it is an estimate rather than a measurement: drawn dashed, and its intervals only as a band.
        band: True if its intervals are a band.
    """

    name: str
    points: tuple[Point, ...]
    promised: bool = False
    band: bool = False


@dataclass(frozen=True, kw_only=True)
class Curves:
    """Curves over one axis.

    Args:
        title: Title of the chart.
        file: Name of its picture beside a report in Markdown.
        x: Name of the horizontal axis, with its unit.
        y: Name of the vertical axis, with its unit.
        lines: One or more.
        level: Value of a reference line.
        level_name: Name of the reference.
        span: Ends of the horizontal axis; None for those of the points.
    """

    title: str
    file: str
    x: str
    y: str
    lines: tuple[Line, ...]
    level: float
    level_name: str
    span: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """Figures with intervals, one below the other.

    Args:
        title: Title of the chart.
        unit: Unit of the figures.
        rows: Name and figure.
        level: Value of a reference line.
        marked: Name of the highlighted row, "" for none.
    """

    title: str
    unit: str
    rows: tuple[tuple[str, Estimate], ...]
    level: float = 0.0
    marked: str = ""


Drawing: TypeAlias = Curves | Intervals


WIDTH, LEFT, RIGHT, TOP, BOTTOM = 360.0, 44.0, 12.0, 12.0, 42.0
HEIGHT = 230.0
ROW = 36.0  # of a chart of intervals
COLOURS = 6  # of curves; then they begin again
Anchor = Literal["start", "middle", "end"]


def picture(drawing: Drawing) -> str:
    """Draw a chart as a file of its own: SVG with its style and its ground, for light and dark pages."""
    style = element("style", Html(style_of("chart.css")))
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * WIDTH:g}" '
    return chart(drawing, "chart").replace("<svg ", opening, 1).removesuffix("</svg>") + f"{style}</svg>\n"


def style_of(*files: str) -> str:
    """Style sheets of the report, one behind the other."""
    return "".join(resources.files("compatstore.report").joinpath(file).read_text(encoding="utf-8") for file in files)


def chart(drawing: Drawing, name: str) -> Html:
    """Draw a chart.

    Args:
        drawing: The chart.
        name: Its name on the page, unlike any other's.
    """
    return _curves(drawing, name) if isinstance(drawing, Curves) else _intervals(drawing, name)


def _intervals(drawing: Intervals, name: str) -> Html:
    estimates = [estimate for _, estimate in drawing.rows]
    ends = [end for estimate in estimates for end in (estimate.low, estimate.high)]
    axis = spanning([*ends, drawing.level], LEFT - 30, WIDTH - RIGHT)
    height = TOP + ROW * len(drawing.rows) + BOTTOM
    bottom = height - BOTTOM
    parts = [
        *(_line(axis.at(tick), TOP, axis.at(tick), bottom, "grid") for tick in axis.ticks()),
        *_values_below(axis, bottom),
        _line(axis.at(drawing.level), TOP, axis.at(drawing.level), bottom, "level"),
        *(
            _interval(place, said, estimate, axis, marked=said == drawing.marked)
            for place, (said, estimate) in enumerate(drawing.rows)
        ),
        _text((axis.start + axis.end) / 2, height - 6, drawing.unit, "middle"),
    ]
    said = "; ".join(f"{row}: {_told(estimate)}" for row, estimate in drawing.rows)
    return _svg(name, drawing.title, said, height, parts)


def _curves(drawing: Curves, name: str) -> Html:
    points = [point for line in drawing.lines for point in line.points]
    ends = [end for point in points for end in (point.y.low, point.y.high)]
    bottom, height = HEIGHT - BOTTOM, HEIGHT + 18.0 * (len(drawing.lines) + 1)
    x = spanning(list(drawing.span or [point.x for point in points]), LEFT, WIDTH - RIGHT, margin=0.04)
    y = spanning([*ends, drawing.level], bottom, TOP)
    promised_first = sorted(enumerate(drawing.lines), key=lambda line: not line[1].promised)
    parts = [
        *_level(y, LEFT, WIDTH - RIGHT),
        *_values_below(x, bottom),
        _line(LEFT, y.at(drawing.level), WIDTH - RIGHT, y.at(drawing.level), "level"),
        *(_curve(line, number, x, y) for number, line in promised_first),
        _text((LEFT + WIDTH - RIGHT) / 2, bottom + 33, drawing.x, "middle"),
        *_key(drawing, HEIGHT + 8),
    ]
    said = "; ".join(f"{line.name}: {_said(line.points)}" for line in drawing.lines)
    return _svg(name, f"{drawing.title}, {drawing.y}", said, height, parts)


def _svg(name: str, title: str, said: str, height: float, parts: Sequence[Html]) -> Html:
    """A picture that is one element to a screen reader, with a title and a description."""
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", said, id=f"{name}-says"),
        *parts,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-says",
        class_="chart",
    )


def _values_below(axis: Axis, bottom: float) -> Iterator[Html]:
    """Round values below a horizontal axis."""
    return (_text(axis.at(tick), bottom + 15, short(tick), "middle") for tick in axis.ticks())


def _level(axis: Axis, left: float, right: float) -> Iterator[Html]:
    """Level lines, with their values to the left."""
    for tick in axis.ticks():
        yield _line(left, axis.at(tick), right, axis.at(tick), "grid")
        yield _text(left - 5, axis.at(tick) + 4, short(tick), "end")


def _interval(place: int, name: str, estimate: Estimate, axis: Axis, *, marked: bool) -> Html:
    """A row: the name above, the interval and its figure below."""
    y = TOP + ROW * place + 26
    return element(
        "g",
        element("title", f"{name}: {_told(estimate)}"),
        _text(axis.start, y - 11, name, "start", bold=marked),
        _text(axis.end, y - 11, _told(estimate), "end", bold=marked),
        _line(axis.at(estimate.low), y, axis.at(estimate.high), y, "interval"),
        element("circle", cx=axis.at(estimate.value), cy=y, r=4.5),
        class_="row marked" if marked else "row",
    )


def _curve(line: Line, number: int, x: Axis, y: Axis) -> Html:
    places = [(x.at(point.x), y.at(point.y.value)) for point in line.points]
    lows = [f"{x.at(point.x):.1f},{y.at(point.y.low):.1f}" for point in line.points]
    highs = [f"{x.at(point.x):.1f},{y.at(point.y.high):.1f}" for point in line.points]
    band = element("polygon", points=" ".join([*lows, *reversed(highs)]), class_="band") if line.band else None
    bars = [] if line.band or line.promised else [
        _line(x.at(point.x), y.at(point.y.low), x.at(point.x), y.at(point.y.high), "interval")
        for point in line.points
        if point.y.high > point.y.low
    ]  # fmt: skip
    marks = [
        element("circle", element("title", f"{line.name}, {_said([point])}"), cx=across, cy=up, r=4)
        for point, (across, up) in zip(line.points, places, strict=True)
    ]
    course = " ".join(f"{across:.1f},{up:.1f}" for across, up in places)
    drawn = element("polyline", points=course, class_="course") if len(places) > 1 else None
    return element("g", band, drawn, *bars, *marks, class_=_series(line, number))


def _key(drawing: Curves, top: float) -> Iterator[Html]:
    """The legend, below the chart."""
    names = [(line.name, _series(line, number)) for number, line in enumerate(drawing.lines)]
    names.append((f"{drawing.level_name} ({short(drawing.level)})", "key-level"))
    for place, (name, kind) in enumerate(names):
        y = top + 18.0 * place
        stroke = "level" if kind == "key-level" else "course"
        dot = None if kind == "key-level" else element("circle", cx=LEFT + 11, cy=y - 4, r=4)
        yield element(
            "g", _line(LEFT, y - 4, LEFT + 22, y - 4, stroke), dot, _text(LEFT + 30, y, name, "start"), class_=kind
        )


def _series(line: Line, number: int) -> str:
    return f"series c{number % COLOURS}" + (" promised" if line.promised else "")


def _said(points: Sequence[Point]) -> str:
    return ", ".join(f"{_told(point.y)} at {short(point.x)}" for point in points)


def _told(estimate: Estimate) -> str:
    """A figure in the chart's unit: "41.2 (39.0 to 43.4)"."""
    if estimate.low == estimate.high:
        return short(estimate.value)
    return f"{estimate.value:.1f} ({estimate.low:.1f} to {estimate.high:.1f})"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Html:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _text(x: float, y: float, said: str, anchor: Anchor, *, bold: bool = False) -> Html:
    return element("text", said, x=x, y=y, text_anchor=anchor, class_="strong" if bold else None)


_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` on a line from `start` to `end`, in units of the drawing.

    Attributes:
        low: Least value.
        high: Greatest value, above it.
        start: Position of the least value.
        end: Position of the greatest value.
    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Position of a value; one outside lies at the end that it is beyond."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values on the axis, two or more and about five."""
        least = (self.high - self.low) / 5
        scale = 10.0 ** math.floor(math.log10(least))
        step = next(step * scale for step in _STEPS if step * scale >= least * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]


def spanning(values: list[float], start: float, end: float, *, margin: float = 0.06) -> Axis:
    """An axis that holds values, with some room at both ends."""
    low, high = min(values), max(values)
    room = (high - low) * margin or abs(high) * 0.1 or 1.0
    return Axis(low - room, high + room, start, end)


def short(value: float) -> str:
    """A value at a tick: "12.5", "-3", "2e-05"."""
    return f"{value:.4g}"
