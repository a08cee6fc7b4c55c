"""What a report says: the same sections for Markdown and for the page, none without anything to say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compatstore.evaluation import Estimate
from compatstore.report.charts import Curves, Intervals
from compatstore.report.content import ShownQueries, key_figures, sections
from compatstore.report.files import to_markdown
from compatstore.shown import Table


def told(report):
    return {section.title: section.parts for section in sections(report)}


def of(parts, kind):
    return [part for part in parts if isinstance(part, kind)]


@pytest.mark.full
def test_all_that_was_measured_is_told(pictured):
    said = told(pictured)
    assert list(said) == [
        "Decision",
        "Queries that rise and fall",
        "Groups of queries",
        "Cost",
        "Steps",
    ]
    [ways] = of(said["Decision"], Table)
    assert [row[0] for row in ways.rows] == [
        {"hop alone": pictured.served}.get(row.name, row.name) for row in pictured.measured.rows if row.figures
    ]
    [gains] = of(said["Decision"], Intervals)
    assert gains.marked == pictured.served
    assert dict(gains.rows)[pictured.served].value == pytest.approx(
        100 * pictured.measured.row("t/h").gains["map"].value
    )
    [worst, best] = of(said["Queries that rise and fall"], ShownQueries)
    assert (len(worst.changes), len(best.changes)) == (3, 2)


def test_each_wave_is_drawn_as_its_gain_over_its_own_status_quo(taught):
    parts = told(taught)["Waves"]
    [curves] = of(parts, Curves)
    went = curves.lines[0]
    assert [point.y.value for point in went.points] == pytest.approx([0.0, 20.0, 30.0])
    assert [line.name for line in curves.lines[1:]] == [f"estimated by wave {number}" for number in (1, 2, 3)]
    assert [line.points[-1].y.value for line in curves.lines[1:]] == pytest.approx([25.0] * 3)
    assert "own status quo" in curves.y


def test_waves_without_ground_truth_gain_nothing_that_could_be_drawn(taught):
    waves = [replace(wave, truth="", criterion="agreement", gain=None) for wave in taught.waves]
    parts = told(replace(taught, waves=tuple(waves)))["Waves"]
    assert of(parts, Curves) == []
    [found] = of(parts, Table)
    assert [row[-1] for row in found.rows] == ["as before", *(wave.served.percent for wave in waves[1:])]


def test_a_report_of_nothing_says_why(pictured):
    bare = replace(pictured, measured=None, details=None, compared=(), advice="")
    said = told(bare)
    assert list(said) == ["Decision", "Cost", "Steps"]
    [line] = said["Decision"]
    assert line.startswith("Nothing was estimated or measured")


def test_markdown_says_the_same(taught):
    text = to_markdown(taught)
    for section in sections(taught):
        assert f"## {section.title}\n" in text
    assert "| digit 3 |" in text
    assert taught.details.changes.worst[0].query.id in text


def test_the_first_screen_has_figures_of_quality(pictured):
    figures = dict(key_figures(pictured))
    before, after = (pictured.measured.row(way).figures["map"].value for way in ("s/s", "t/h"))
    assert list(figures) == ["mAP before", f"mAP {pictured.served}", "fixed, broken", "embedded"]
    assert figures["mAP before"] == f"{100 * before:.1f} %"
    assert figures[f"mAP {pictured.served}"] == f"{100 * after:.1f} %"
    counts = dict(key_figures(replace(pictured, measured=None)))
    assert counts["items"] == f"{pictured.rows:,}"


def test_without_ground_truth_the_first_screen_has_agreement(pictured):
    agreed = Estimate(value=0.75, low=0.7, high=0.8)
    rows = tuple(
        replace(row, figures={"agreement": agreed, "unchanged": agreed}, gains={}, kept={}, flips=None, broken=None)
        for row in pictured.measured.rows
    )
    silent = replace(pictured, measured=replace(pictured.measured, rows=rows, truth="", criterion="agreement"))
    assert [name for name, _ in key_figures(silent)] == [
        f"agreement {pictured.served}", f"unchanged {pictured.served}", "native", "embedded",
    ]  # fmt: skip
    assert dict(key_figures(silent))[f"agreement {pictured.served}"] == "75.0 %"
    assert "mAP" not in to_markdown(replace(silent, advice=""))
