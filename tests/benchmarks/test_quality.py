"""Intervals over seeds, figures of rankings, verdicts on claims, and the rows of four claims that were once wrong."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.images.tables import Case, gain
from benchmarks.papers.run import CLAIMS, LOSS, TO_EXPLAIN, Found, differences, verdict
from benchmarks.record import Record, record_of
from benchmarks.seeds import Interval, by_seed, less
from benchmarks.served import Outside, ranked
from compatstore.evaluation import rank_queries, summarise


def test_an_interval_is_that_of_students_t():
    one = Interval.of([1.0, 2.0, 3.0])
    assert (one.mean, round(one.half, 3), one.seeds) == (2.0, 2.484, 3)
    assert Interval.of([5.0]).half == float("inf")
    assert (Interval(2, 1, 3).signed, Interval(-2, 1, 3).signed, Interval(0, 1, 3).signed) == (
        "**+2.0 ± 1.0**",
        "*-2.0 ± 1.0*",
        "+0.0 ± 1.0",
    )


def test_a_difference_is_taken_seed_by_seed():
    rows = [{"seed": 0, "x": 1.0}, {"seed": 1, "x": 5.0}, {"seed": 2, "y": 1.0}]
    assert by_seed(rows, "x") == {0: 1.0, 1: 5.0}
    assert less({0: 3.0, 1: 9.0, 7: 1.0}, by_seed(rows, "x")).mean == 3.0
    assert less({7: 1.0}, by_seed(rows, "x")) is None


def test_figures_of_a_ranking_are_those_of_the_package():
    rng = np.random.default_rng(0)
    queries, items = (rng.normal(size=(count, 6)).astype(np.float32) for count in (20, 70))
    asked, labels = rng.integers(0, 5, 20), rng.integers(0, 5, 70)
    outside = Outside(source=queries, target=queries, correct=asked[:, None] == labels)
    found = outside.figures(ranked(-queries @ items.T), "x")
    exact = summarise(rank_queries(queries, items, asked, labels, metric="dot"), (1,))
    assert found == pytest.approx({"x cmc1": 100 * exact.cmc[1], "x map": 100 * exact.map}, abs=0.01)


def test_recall_and_ndcg_count_the_correct_items_of_the_first_ten():
    correct = np.zeros((1, 30), bool)
    correct[0, [0, 20]] = True
    outside = Outside(source=np.ones((1, 2)), target=np.ones((1, 2)), correct=correct, graded=True)
    found = outside.figures(np.arange(30)[None], "x")
    assert found == {"x ndcg@10": round(100 / (1 + 1 / np.log2(3)), 2), "x recall@10": 50.0}


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ((2, 2), "holds"),
        ((2, 0), "in part"),
        ((2, -2), "mixed"),
        ((0, 0), "level"),
        ((0, -2), "does not hold"),
        ((), "not measured"),
    ],
)
def test_a_verdict_is_one_word_for_all_differences(means, word):
    assert verdict([Found("set", "map", Interval(mean, 1, 3)) for mean in means]) == word


def claim_of(words, *, own=False):
    (claim,) = [each for each in CLAIMS if words in each["claim"]]
    return differences(record_of("papers").rows, claim, own=own)


def test_a_backfill_does_not_close_the_gap_of_a_minority_that_is_the_easier_half():
    random, source = claim_of("closes the gap between subgroups")
    assert verdict([random, source]) == "does not hold"
    assert not random.difference.is_above
    assert source.difference.is_below


def test_kernel_ridge_is_compared_with_others_like_for_like():
    found = claim_of("`KernelRidge` is above `FCT`, plain distances")
    assert [(one.case, one.measure, one.difference.signed) for one in found] == [
        ("Glyphs", "cmc1", "-0.2 ± 1.9"),
        ("Glyphs", "map", "**+0.6 ± 0.3**"),
        ("Caltech-101", "cmc1", "+1.3 ± 1.6"),
        ("Caltech-101", "map", "**+2.4 ± 0.2**"),
        ("CIFAR-10, CosFace", "cmc1", "**+4.3 ± 2.9**"),
        ("CIFAR-10, CosFace", "map", "**+2.1 ± 0.5**"),
    ]


def test_a_refresh_of_a_compatible_target_is_level_after_sixty_epochs():
    found = claim_of("`Residual` to BCT's target")
    assert len(found) == 4
    assert verdict(found) == "level"


def test_a_papers_setting_has_rows_of_its_own():
    rows = [
        {"benchmark": "images", "size": size, "setting": "classes", "set": "a", "seed": seed, "method": method}
        | {"t/h map": 10 + seed + gain}
        for size, loss, gain in (("paper", ", softmax", 5), ("standard", "", -5))
        for method, gain in ((f"FCT{loss}", gain), (f"BCT{loss}", 0))
        for seed in range(3)
    ]
    compared = ["classes", "FCT", "t/h", "BCT", "t/h", ["map"]]
    claim = {"paper": "FCT", "compared": [["paper", *compared], ["images", *compared]]}
    assert [one.difference.mean for one in differences(rows, claim, own=True)] == [5.0]
    assert [one.difference.mean for one in differences(rows, claim, own=False)] == [-5.0]


def test_a_claim_that_fails_in_its_papers_setting_says_why():
    for claim in (each for each in CLAIMS if each["paper"] in LOSS):
        word = verdict(differences(record_of("papers").rows, claim, own=True))
        assert ("why" in claim) >= (word == "does not hold"), claim["claim"]
        assert ("why" in claim) <= (word in TO_EXPLAIN), claim["claim"]


def test_a_case_is_compared_by_its_rows_of_cosface():
    rows = Record.read("images").rows
    assert [Case(rows, "standard", "classes", name).loss for name in ("Glyphs", "CIFAR-10")] == ["", ", CosFace"]
    assert gain(Case(rows, "standard", "classes", "Glyphs"), "everything re-embedded")[1].is_above
