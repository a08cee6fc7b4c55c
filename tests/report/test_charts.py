"""Charts as SVG: every figure lies inside the drawing, is told as text, and any figures can be drawn."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import hypothesis.strategies as st
import pytest
from hypothesis import given

from compatstore.evaluation import Estimate
from compatstore.report.charts import Axis, Curves, Intervals, Line, Point, chart, picture, spanning

FIGURES = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 6))
ESTIMATES = st.tuples(FIGURES, FIGURES, FIGURES).map(sorted).map(
    lambda ends: Estimate(low=ends[0], value=ends[1], high=ends[2])
)  # fmt: skip
POINTS = st.lists(st.tuples(FIGURES, ESTIMATES), min_size=1, max_size=6).map(
    lambda found: tuple(Point(x, y) for x, y in found)
)
LINES = st.builds(Line, name=st.text(max_size=20), points=POINTS, promised=st.booleans(), band=st.booleans())
NUMBERS = ("x", "x1", "x2", "cx", "y", "y1", "y2", "cy")


def drawn(drawing):
    """The chart, which is well-formed XML; all of it lies inside its box."""
    root = ElementTree.fromstring(chart(drawing, "c"))
    _, _, width, height = map(float, root.get("viewBox").split())
    for element in root.iter():
        for name in NUMBERS:
            if name in element.attrib:
                assert -1 <= float(element.get(name)) <= (height if "y" in name else width) + 1
    return root


def titles(root):
    return [element.text for element in root.iter("title")]


@pytest.mark.full
@given(rows=st.lists(st.tuples(st.text(max_size=20), ESTIMATES), min_size=1, max_size=8), level=FIGURES)
def test_intervals(rows, level):
    root = drawn(Intervals(title="t", unit="u", rows=tuple(rows), level=level))
    assert len(list(root.iter("circle"))) == len(rows)
    assert titles(root)[0] == "t"
    assert len(titles(root)) == len(rows) + 1


@pytest.mark.full
@given(lines=st.lists(LINES, min_size=1, max_size=4), level=FIGURES)
def test_curves(lines, level):
    root = drawn(Curves(title="t", file="t.svg", x="x", y="y", lines=tuple(lines), level=level, level_name="before"))
    points = sum(len(line.points) for line in lines)
    assert len(list(root.iter("circle"))) == points + len(lines)  # and one a line in the key
    assert len(titles(root)) == points + 1


@given(values=st.lists(FIGURES, min_size=1, max_size=5))
def test_an_axis_holds_its_values_and_names_round_ones(values):
    axis = spanning(values, 0.0, 100.0)
    assert all(0 <= axis.at(value) <= 100 for value in values)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 12
    assert all(axis.low - 1e-6 <= tick <= axis.high + 1e-6 for tick in ticks)


def test_a_value_beyond_the_axis_lies_at_its_end():
    assert Axis(0, 1, 10, 20).at(5) == 20
    assert Axis(0, 1, 20, 10).at(-5) == 20


def test_a_picture_is_a_file_with_its_own_style():
    line = Line(
        name="<a> & b", points=(Point(0, Estimate(value=1, low=0, high=2)), Point(50, Estimate(value=3, low=3, high=3)))
    )
    drawing = Curves(title="t", file="t.svg", x="x", y="y", lines=(line,), level=0.0, level_name="before")
    root = ElementTree.fromstring(picture(drawing))
    svg = "{http://www.w3.org/2000/svg}"
    assert (root.tag, root.get("width")) == (f"{svg}svg", "720")
    assert "<a> & b" in [element.text for element in root.iter(f"{svg}text")]
    [style] = root.iter(f"{svg}style")
    assert ".chart text { fill: var(--text); }" in style.text
    assert "--text: #e6edf3" in style.text, "dark pages"


def test_text_is_escaped():
    root = drawn(Intervals(title="<b>", unit="&", rows=(("</svg><script>", Estimate(value=1, low=0, high=2)),)))
    assert not list(root.iter("script"))
    assert "</svg><script>" in [element.text for element in root.iter("text")]
    assert not re.search(r"<(?!/?(svg|title|desc|g|line|text|circle))", chart(
        Intervals(title="<b>", unit="&", rows=(("</svg><script>", Estimate(value=1, low=0, high=2)),)), "c"
    ))  # fmt: skip
