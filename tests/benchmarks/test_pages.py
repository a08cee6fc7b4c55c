"""Pages of results hold the tables that their records give, one chart, and no figure that no record holds."""

from __future__ import annotations

import re

import pytest

from benchmarks.pages import BLOCK, FOLDER, PICTURES, README, fill
from benchmarks.record import RESULTS, Record, benchmark_names

MADE = [page for page in sorted(FOLDER.rglob("*.md")) if BLOCK.search(page.read_text())]
LONGEST = 120
# Decimals, and whole numbers with a unit or a per cent sign.
FIGURE = re.compile(r"(?<![\w.,`])\d[\d,]*(?:\.\d+|(?= ?(?:%|points?\b|s\b|ms\b|MiB\b|GiB\b|MB\b|GB\b|times\b)))")


def prose(text):
    """A page without its tables, listings, names in code and targets of links."""
    text = BLOCK.sub("", text)
    return re.sub(r"^```.*?^```$|`[^`]*`|\]\([^)]*\)|^#.*?$", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [README, *MADE], ids=lambda page: page.stem)
def test_tables_are_those_of_the_records(page):
    assert fill(page.read_text()) == page.read_text(), "run python -m benchmarks pages"


@pytest.mark.parametrize("page", MADE, ids=lambda page: page.stem)
def test_a_page_is_short_and_has_a_chart(page):
    text = page.read_text()
    charts = re.findall(r"\]\(([^)]*\.svg)\)", text)
    assert len(text.splitlines()) <= LONGEST
    assert charts
    assert all((page.parent / chart).exists() for chart in charts)


@pytest.mark.parametrize("page", MADE, ids=lambda page: page.stem)
def test_figures_stand_in_tables_and_charts_alone(page):
    assert FIGURE.findall(prose(page.read_text())) == []


def test_each_record_and_each_chart_is_of_a_benchmark():
    assert {path.stem for path in RESULTS.glob("*.json")} <= {*benchmark_names()}
    assert {path.stem for path in PICTURES.glob("*.svg")} == {*benchmark_names("chart")}


def test_a_figure_in_prose_is_found():
    assert FIGURE.findall(prose("# 9 %\nIt gains 3 points, 1.5 at most.\n\n| a | 2.5 |\n")) == ["3", "1.5", "2.5"]
    assert (
        FIGURE.findall(prose("<!-- table: a/b -->\n| 2.5 |\n<!-- /table -->\n`x 0.5`, two of 300 [a](b-1.5.md)")) == []
    )


def test_a_record_survives_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.record.RESULTS", tmp_path)
    record = Record(
        "a", "python -m benchmarks a", "2 cores", "abc", "2026-01-01", {"rows": 3}, [{"x": 1.5}, {"x": None}]
    )
    record.write(tmp_path / "a.json")
    assert Record.read("a") == record
    Record("b", commit="def", rows=[{"commit": "old", "y": 2}]).write(tmp_path / "b.json")
    first, _, third = Record.gather("page", ("a", "b")).rows
    assert (first["benchmark"], first["commit"], first["x"]) == ("a", "abc", 1.5)
    assert (third["benchmark"], third["commit"], third["y"]) == ("b", "old", 2)
