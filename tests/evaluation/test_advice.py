"""Advice from figures of single queries: the best budget, what is as good for less, and no."""

import numpy as np

from compatstore.evaluation.advice import Option, advise, advise_without_labels, fused_better
from compatstore.evaluation.bootstrap import resample

QUERIES = 400


def options(**right):
    """Strategies by name, each right for the first of the queries, with its share in hundredths behind the name."""
    values = np.array([np.arange(QUERIES) < count for count in right.values()], float)
    names = [name.rpartition("_") for name in right]
    return [
        Option(name=name, share=int(share) / 100, figure=figure)
        for (name, _, share), figure in zip(names, resample(values), strict=True)
    ]


def advice(**right):
    status_quo, *others = options(**right)
    return advise(status_quo, others, "cmc@1")


def test_the_best_of_those_that_are_better_for_certain():
    found = advice(quo_0=200, hop_0=260, half_50=320, full_100=300)
    assert (found.verdict, found.row, found.share) == ("upgrade", "half", 0.5)
    assert "half: cmc@1 80.0% against 50.0% as it is (+30.0 points, " in found.text
    assert "More is not better: full has cmc@1 75.0%." in found.text
    assert "costs less" not in found.text


def test_what_costs_less_and_cannot_be_told_from_the_best_is_mentioned():
    found = advice(quo_0=200, hop_0=298, half_50=299, full_100=300)
    assert found.row == "full"
    assert found.text.endswith("Hop costs less and cannot be told from it with these queries.")


def test_what_was_not_measured_is_no_reason_against_an_upgrade():
    status_quo, hop = options(quo_0=200, hop_0=160)
    found = advise(status_quo, [hop], "ndcg@10", ["backfill 25%", "full backfill"])
    assert (found.verdict, found.row, found.share) == ("undecided", None, None)
    assert "ndcg@10 of backfill 25%, full backfill was not measured" in found.text
    assert "best of all" not in found.text
    assert "take a sample of the whole gallery" in found.text
    better = advise(status_quo, options(quo_0=200, hop_0=260)[1:], "ndcg@10", ["full backfill"])
    assert (better.verdict, better.row) == ("upgrade", "hop")
    assert "of full backfill was not measured" in better.text
    assert advise(status_quo, [hop], "ndcg@10").verdict == "do not upgrade"


def test_of_equals_the_cheaper_one():
    assert advice(quo_0=200, half_50=300, full_100=300).row == "half"


def test_no_when_nothing_is_better_for_certain():
    found = advice(quo_0=200, hop_0=100, full_100=201)
    assert (found.verdict, found.row, found.share) == ("do not upgrade", "quo", 0.0)
    assert "full, has cmc@1 50.2% against 50.0%" in found.text


def test_without_labels_the_cheapest_that_keeps_enough():
    *others, full = options(quo_0=100, hop_0=350, half_50=395, full_100=400)
    found = advise_without_labels(full, others, "map", 0.95)
    assert (found.verdict, found.row, found.share) == ("undecided", "half", 0.5)
    assert "keep 95% of it (map)" in found.text
    none = advise_without_labels(full, others, "map", 1.01)
    assert (none.row, none.share) == (None, None)
    assert "no way keeps" in none.text


def test_fused_searches_are_named_where_they_are_better_for_certain():
    quo, hop, full, *fused = options(quo_0=200, hop_0=260, full_100=300, level_0=301, much_25=350, more_50=390)
    found = advise(quo, [hop, full], "cmc@1")
    assert fused_better(fused, [hop, full], found, "cmc@1") == (
        " Both versions searched as one (much) have cmc@1 87.5%, for two embeddings and two searches a query."
    )
    assert fused_better(fused[:1], [hop, full], found, "cmc@1") == ""
    assert fused_better([], [hop, full], found, "cmc@1") == ""
    unsure = advise(quo, [options(none_0=0)[0]], "cmc@1")  # what is advised is none of the options
    assert fused_better(fused, [hop, full], unsure, "cmc@1") == ""
