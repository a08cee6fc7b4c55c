"""The check of sentences about results finds statements that do not hold, and figures that none covers."""

from __future__ import annotations

import re

import pytest

from benchmarks.claims import Figure, clear, findings, level
from compatstore.errors import InvalidInput


def page(sentence, *lines):
    return f"# Title\n\n{sentence}\n<!-- check\n" + "\n".join(lines) + "\n-->\n\nMore.\n"


GAIN = 'gain = methods("classes", "Glyphs", "BCT", "t/s") - methods("classes", "Glyphs", "independent", "s/s")'


def test_a_statement_that_holds_covers_its_figures():
    assert (
        findings(page("BCT is 5.8 points of mAP above it, clearly.", GAIN, "gain.map == 5.8 and clear(gain.map)")) == []
    )


def test_a_statement_may_take_several_lines():
    assert findings(page("BCT is 5.8 points above it.", GAIN, "clear(", "    gain.map", ") and gain.map == 5.8")) == []
    (found,) = findings(page("BCT is above it.", GAIN, "clear(", "    gain.map"))
    assert found.startswith("cannot be checked: clear( gain.map")


@pytest.mark.parametrize(
    ("sentence", "line", "found"),
    [
        ("It is 6 points above.", "gain.map == 7", "does not hold: gain.map == 7 (found 5.82"),
        ("It is below.", "gain.map < 0", "does not hold"),
        ("It is clearly above by CMC-1.", "clear(gain.cmc)", "does not hold"),
        ("The row is there.", 'methods("classes", "Glyphs", "XYZ", "t/s").map > 0', "cannot be checked"),
        ("It stands at 59.2 / 41.2.", 'methods("classes", "Glyphs", "BCT", "t/s") == "59.2 / 41.2"', "does not hold"),
    ],
)
def test_a_statement_that_does_not_hold_is_found(sentence, line, found):
    assert findings(page(sentence, GAIN, line))[0].startswith(found)


@pytest.mark.parametrize("figure", ["5.9", "3 points", "12 %", "5 to 6 points"])
def test_a_figure_that_no_statement_covers_is_found(figure):
    (found,) = findings(page(f"It is {figure} above.", GAIN, "gain.map > 0"))
    assert found.startswith(f"no statement covers {re.findall(r'[0-9.]+', figure)[0]}")


def test_tables_listings_and_names_are_no_sentences():
    text = "| row | 5.8 |\n|---|---|\n| BCT | 7.1 |\n\n```\n9.9\n```\n\nSet `scale=4.5` ([there](a-1.5.md)).\n"
    assert findings(text) == []


def test_cells_of_the_pages_own_tables_are_looked_up():
    table = "\n| set | order | right |\n|---|---|---|\n| A | random | 81% ± 2 |\n| A | sigma | 75% |\n\n"
    holds = table + page("81 % are right.", 'printed("right", "A", "random") == 81')
    assert findings(holds) == []
    assert findings(holds.replace("== 81", "== 75"))[0].startswith("does not hold")
    twice = table + page("Right.", 'printed("right", "A") > 0')
    assert findings(twice)[0].startswith("cannot be checked")


def test_clear_and_level_go_by_the_deviation_over_seeds():
    steady, scattered = (Figure(dict(enumerate(values)), set()) for values in ([1.0, 1.1, 0.9], [3.0, 0.5, -0.5]))
    assert clear(steady)
    assert not clear(scattered)
    assert level(scattered)
    assert not level(steady)
    assert not clear(Figure({0: 5.0}, set())), "of one seed nothing is clear"


def test_rows_of_some_seeds_in_common_are_compared_by_these():
    five, three = Figure(dict.fromkeys(range(5), 3.0), set()), Figure({2: 1.0, 3: 2.0, 4: 3.0}, set())
    assert (five - three).by_seed == {2: 2.0, 3: 1.0, 4: 0.0}
    assert (three / five).by_seed.keys() == {2, 3, 4}
    two = Figure({0: 1.0, 1: 2.0}, set())
    assert (two - two).by_seed == {0: 0.0, 1: 0.0}
    with pytest.raises(InvalidInput, match="or 3 of them at least"):
        five - two
