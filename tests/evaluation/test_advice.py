"""Advice from figures of single queries: the best budget, what is as good for less, and no."""

import numpy as np

from compatstore.evaluation.advice import Option, advise, change_in, describe_agreement, fused_better, metric_name
from compatstore.evaluation.bootstrap import Estimate, resample
from compatstore.evaluation.metrics import Flips

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
    assert found.text.startswith("Upgrade by half: CMC@1 50.0 -> 80.0 % (+30.0; 95 % CI +")
    assert "More is not better: full has CMC@1 75.0%." in found.text
    assert "of the gain" not in found.text


def test_what_costs_less_and_cannot_be_told_from_the_best_is_mentioned():
    found = advice(quo_0=200, hop_0=298, half_50=299, full_100=300)
    assert found.row == "full"
    assert found.text.endswith(" Hop has 98 % of the gain and embeds none of the items.")


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
    assert "full, has CMC@1 50.0 -> 50.2 % (+0.2; 95 % CI " in found.text


def test_without_ground_truth_the_cheapest_that_agrees_is_named_and_nothing_is_better():
    found = describe_agreement(options(hop_0=300, half_50=370, full_100=400))
    assert (found.verdict, found.row, found.share) == ("undecided", "half", 0.5)
    assert found.text.startswith("Quality is not measurable without ground truth. ")
    assert "are served 75 % by hop, 92 % by half. " in found.text
    assert found.text.count("better") == 1, "and that in what is not known"
    none = describe_agreement(options(hop_0=300))
    assert (none.row, none.share) == (None, None)
    assert "are served 75 % by hop. " in none.text


def test_a_change_names_its_figure_its_interval_and_the_queries_that_flip():
    gain = Estimate(value=0.41, low=0.376, high=0.443)
    text = change_in("map", 0.555, 0.965, gain, 0.95, Flips(positive=0.26, negative=0.002))
    assert text == "mAP 55.5 -> 96.5 % (+41.0; 95 % CI +37.6 to +44.3), 26 % of queries fixed, 0.2 % broken"
    assert change_in("ndcg@10", 0.5, 0.5, Estimate(value=-0.0, low=-0.1, high=0.1), 0.9, None) == (
        "nDCG@10 50.0 -> 50.0 % (+0.0; 90 % CI -10.0 to +10.0)"
    )
    assert [metric_name(name) for name in ("cmc@1", "mrr@10", "recall@10", "agreement")] == [
        "CMC@1", "MRR@10", "recall@10", "agreement",
    ]  # fmt: skip


def test_fused_searches_are_named_where_they_are_better_for_certain():
    quo, hop, full, *fused = options(quo_0=200, hop_0=260, full_100=300, level_0=301, much_25=350, more_50=390)
    found = advise(quo, [hop, full], "cmc@1")
    assert fused_better(fused, [hop, full], found, "cmc@1") == (
        " Fused search (much) has CMC@1 87.5%, for two embeddings and two searches a query."
    )
    assert fused_better(fused[:1], [hop, full], found, "cmc@1") == ""
    assert fused_better([], [hop, full], found, "cmc@1") == ""
    unsure = advise(quo, [options(none_0=0)[0]], "cmc@1")  # what is advised is none of the options
    assert fused_better(fused, [hop, full], unsure, "cmc@1") == ""
