"""Verdicts on sentences of papers: by intervals over seeds, of the sets and sizes that have rows."""

from __future__ import annotations

import pytest

from benchmarks.claims import Figure, look_up
from lazily import Lazy

pytestmark = pytest.mark.full

papers = Lazy("benchmarks.papers.__main__")
verdicts = Lazy("benchmarks.papers.verdicts")


def found(*by_seed):
    return [verdicts.Found("classes", "Glyphs", "map", Figure(dict(enumerate(values)), set())) for values in by_seed]


@pytest.mark.parametrize(
    ("differences", "word"),
    [
        ([(3.0, 3.1, 2.9), (1.0, 1.1, 0.9)], "holds"),
        ([(3.0, 3.1, 2.9), (3.0, 0.1, -1.0)], "by the mean"),
        ([(3.0, 3.1, 2.9), (-3.0, -0.1, 1.0)], "not below"),
        ([(3.0, 0.1, -1.0), (-3.0, -0.1, 1.0)], "level"),
        ([(-3.0, -0.1, 1.0)], "level"),
        ([(3.0, 3.1, 2.9), (-3.0, -3.1, -2.9), (3.0, 0.1, -1.0)], "mixed"),
        ([(-3.0, -3.1, -2.9), (3.0, 0.1, -1.0)], "does not"),
        ([(-3.0, -3.1, -2.9), (-3.0, -0.1, 1.0)], "does not"),
        ([(5.0,)], "by the mean"),  # of one seed nothing is known
    ],
)
def test_a_verdict_is_of_all_differences(differences, word):
    assert verdicts.verdict(found(*differences)) == word


@pytest.mark.parametrize(
    ("seeds", "is_open"),
    [
        ((1.0, -1.2, 0.5), True),
        ((1.0, 1.2, 3.0), False),  # 2.7 standard errors from zero
        ((-1.0, -1.2, -3.0), False),
        ((1.0, -1.2, 0.5, -0.4), True),
        ((1.0, -1.2, 0.5, -0.4, 0.1), False),  # five seeds settle that it is level
    ],
)
def test_a_difference_is_open_while_few_seeds_leave_it_near_zero(seeds, is_open):
    [one] = found(seeds)
    assert one.is_open == is_open


def test_pairs_of_rows_that_need_seeds_are_listed_once_and_counted_on_the_pages():
    near = verdicts.Above("methods", "architecture", ("DMU, refreshed by distance", "t/h"), ("BCT", "t/s"))
    far = verdicts.Above("methods", "architecture", ("independent", "s/s"), ("independent", "t/s"))
    few, settled = verdicts.Said("few", "t", "r", (near,)), verdicts.Said("settled", "t", "r", (far,))
    assert papers.open_pairs("quick", [few, settled, few]) == [
        "architecture, Caltech-101: DMU, refreshed by distance t/h / BCT t/s (seeds 0 1 2)"
    ]
    assert papers.open_pairs("quick", [settled]) == []
    assert "; 1 with few seeds." in papers.fill("<!-- size: quick -->\n<!-- end -->", [few, settled])
    assert "few seeds" not in papers.fill("<!-- size: quick -->\n<!-- end -->", [settled])


def test_a_sentence_counts_at_the_last_size_where_no_other_has_a_row_for_it():
    by_both, here_alone = (
        verdicts.Said(
            "s", "t", "r", (verdicts.Above("methods", setting, ("independent", "s/s"), ("independent", "t/s")),)
        )
        for setting in ("classes", "architecture")
    )
    assert verdicts.found_of(by_both, "standard")
    assert list(verdicts.differences(by_both.settled_by[0], verdicts.LAST))
    assert not verdicts.found_of(by_both, verdicts.LAST)
    assert verdicts.found_of(here_alone, verdicts.LAST)
    page = papers.fill(f"<!-- size: {verdicts.LAST} -->\n<!-- end -->", [by_both, here_alone])
    assert "Of 2 sentences: 1 holds, 1 not listed." in page


def test_a_difference_is_taken_seed_by_seed_from_the_journal():
    [glyphs, caltech] = verdicts.differences(
        verdicts.Above("methods", "classes", ("BCT", "t/s"), ("independent", "s/s"), ("map",)), "quick"
    )
    rows = [
        look_up("methods", set(), "classes", "Glyphs", *path).map for path in (("BCT", "t/s"), ("independent", "s/s"))
    ]
    assert [glyphs.of, caltech.of] == ["Glyphs", "Caltech-101"]
    assert glyphs.difference.by_seed == (rows[0] - rows[1]).by_seed
    said = verdicts.Said(
        "s", "t", "r", (verdicts.Above("methods", "architecture", ("BCT", "t/t"), ("BCT", "t/s"), ("map",)),)
    )
    told = "".join(verdicts.table([said], "quick"))
    assert "Glyphs: mAP +1.1 ± 1.1 (5 seeds)<br>Caltech-101: **mAP +1.4 ± 1.3** (5 seeds) | **by the mean** |" in told


def test_a_set_with_rows_by_cosface_counts_by_those_alone():
    said = verdicts.Said(
        "s", "t", "r", (verdicts.Above("methods", "classes", ("independent", "t/t"), ("independent", "s/s"), ("map",)),)
    )
    by_set = {one.of: one for one in verdicts.found_of(said, "standard")}
    assert set(by_set) == {"Glyphs", "Caltech-101", "CIFAR-10, CosFace"}
    rows = [
        look_up("standard", set(), "classes", "CIFAR-10", "independent, CosFace", path).map for path in ("t/t", "s/s")
    ]
    assert by_set["CIFAR-10, CosFace"].difference.by_seed == (rows[0] - rows[1]).by_seed
    # All orders of a transform are in one row of CosFace's; of settings without such rows the set does not count.
    sigma, random = (("FastFill, sigma", "curves", "sigma", "area"), ("FCT", "curves", "random", "area"))
    area = verdicts.Said("s", "t", "r", (verdicts.Above("methods", "classes", sigma, random),))
    assert "CIFAR-10, CosFace" in {one.of for one in verdicts.found_of(area, "standard")}
    series = verdicts.Said(
        "s", "t", "r", (verdicts.Above("methods", "series", ("BCT", "3/1"), ("independent", "1/1")),)
    )
    assert {one.of for one in verdicts.found_of(series, "standard")} == {"Glyphs", "Caltech-101"}


def test_what_no_row_is_about_is_said_to_be_open():
    lines = list(
        verdicts.table([verdicts.Said("s", "t", "r"), verdicts.Said("s", "t", "r", missing="needs faces")], "standard")
    )
    assert lines[2].endswith("| no row of this size | not measured |")
    assert lines[3].endswith("| needs faces | cannot be run here |")


def test_of_a_sparse_size_only_sentences_with_rows_are_listed_and_the_others_counted():
    measured = verdicts.Said(
        "s", "t", "r", (verdicts.Above("methods", "classes", ("independent", "t/t"), ("independent", "s/s")),)
    )
    said = [measured, verdicts.Said("no row", "t", "r"), verdicts.Said("missing", "t", "r", missing="needs faces")]
    assert [line.split(" | ")[0] for line in verdicts.table(said, "gpu")][2:] == ["| s"]
    page = papers.fill("<!-- size: gpu -->\n<!-- end -->", said)
    assert "Of 3 sentences: 1 holds, 2 not listed." in page
