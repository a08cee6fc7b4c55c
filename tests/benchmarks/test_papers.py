"""What the papers say beside our journals: verdicts by intervals over seeds, and pages that are as the journals are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.claims import Figure, look_up
from benchmarks.papers.__main__ import PAGES, fill, open_pairs
from benchmarks.papers.verdicts import SIZES, Above, Found, Said, found_of, table, verdict

FOLDER = Path(__file__).parents[2] / "docs" / "results" / "papers"


def found(*by_seed):
    return [Found("classes", "Glyphs", "map", Figure(dict(enumerate(values)), set())) for values in by_seed]


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
    assert verdict(found(*differences)) == word


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
    listed = open_pairs("quick")
    said = [said for sentences in PAGES.values() for said in sentences]
    still_open = {one.of for each in said for one in found_of(each, "quick") if one.is_open}
    assert len(listed) == len(set(listed))
    assert {line.partition(": ")[0].partition(", ")[2] for line in listed} == still_open
    few = [each for each in said if any(one.is_open for one in found_of(each, "quick"))]
    settled = [each for each in said if found_of(each, "quick") and each not in few]
    page = fill("<!-- size: quick -->\n<!-- end -->", [*few[:2], *settled[:3]])
    assert "; 2 with few seeds." in page


def test_a_difference_is_taken_seed_by_seed_from_the_journal():
    said = Said("s", "t", "r", (Above("methods", "classes", ("BCT", "t/s"), ("independent", "s/s"), ("map",)),))
    [glyphs, caltech] = found_of(said, "quick")
    rows = [
        look_up("methods", set(), "classes", "Glyphs", *path).map for path in (("BCT", "t/s"), ("independent", "s/s"))
    ]
    assert [glyphs.of, caltech.of] == ["Glyphs", "Caltech-101"]
    assert glyphs.difference.by_seed == (rows[0] - rows[1]).by_seed
    assert "**mAP +5.8 ± 1.0** (3 seeds)" in "".join(table([said], "quick"))


def test_a_set_with_rows_by_cosface_counts_by_those_alone():
    said = Said("s", "t", "r", (Above("methods", "classes", ("independent", "t/t"), ("independent", "s/s"), ("map",)),))
    by_set = {one.of: one for one in found_of(said, "standard")}
    assert set(by_set) == {"Glyphs", "Caltech-101", "CIFAR-10, CosFace"}
    rows = [
        look_up("standard", set(), "classes", "CIFAR-10", "independent, CosFace", path).map for path in ("t/t", "s/s")
    ]
    assert by_set["CIFAR-10, CosFace"].difference.by_seed == (rows[0] - rows[1]).by_seed
    # All orders of a transform are in one row of CosFace's; of settings without such rows the set does not count.
    sigma, random = (("FastFill, sigma", "curves", "sigma", "area"), ("FCT", "curves", "random", "area"))
    area = Said("s", "t", "r", (Above("methods", "classes", sigma, random),))
    assert "CIFAR-10, CosFace" in {one.of for one in found_of(area, "standard")}
    series = Said("s", "t", "r", (Above("methods", "series", ("BCT", "3/1"), ("independent", "1/1")),))
    assert {one.of for one in found_of(series, "standard")} == {"Glyphs", "Caltech-101"}


def test_what_no_row_is_about_is_said_to_be_open():
    lines = list(table([Said("s", "t", "r"), Said("s", "t", "r", missing="needs faces")], "quick"))
    assert lines[2].endswith("| no row of this size | not measured |")
    assert lines[3].endswith("| needs faces | cannot be run here |")


def test_of_a_sparse_size_only_sentences_with_rows_are_listed_and_the_others_counted():
    measured = Said("s", "t", "r", (Above("methods", "classes", ("independent", "t/t"), ("independent", "s/s")),))
    said = [measured, Said("no row", "t", "r"), Said("missing", "t", "r", missing="needs faces")]
    assert [line.split(" | ")[0] for line in table(said, "gpu")][2:] == ["| s"]
    page = fill("<!-- size: gpu -->\n<!-- end -->", said)
    assert "Of 3 sentences: 1 holds, 2 without a row." in page


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_as_the_journals_are(name):
    page = (FOLDER / f"{name}.md").read_text()
    assert fill(page, PAGES[name]) == page
    measured = [size for size in SIZES if any(found_of(said, size) for said in PAGES[name])]
    assert {"quick", "standard"} <= {*measured} == {*re.findall(r"<!-- size: (\w+) -->", page)}
