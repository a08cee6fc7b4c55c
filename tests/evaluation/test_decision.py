"""The decision table: rows that are what they say, honest intervals, and advice that dares to say no."""

from dataclasses import replace

import numpy as np
import pytest

from compatstore.errors import InvalidInput
from compatstore.evaluation import (
    DecisionSettings,
    EvaluationSample,
    decide,
    flips,
    rank_queries,
    retrieval_metrics,
)
from compatstore.evaluation.curve import native_rows
from compatstore.evaluation.decision import decide_between
from compatstore.evaluation.fusion_choice import Trial
from compatstore.evaluation.strategies import rank_strategies, trial_of_fusions

LABELS, QUERY_LABELS = np.arange(300) % 30, np.arange(90) % 30
CENTRES = np.random.default_rng(0).normal(size=(30, 12))


def embed(labels, noise, seed):
    noises = np.random.default_rng(seed).normal(size=(len(labels), 12))
    return (CENTRES[labels] + noise * noises).astype(np.float32)


def trial(*, source=1.0, hop=0.8, target=0.4):
    """A trial whose spaces are as good as their noise is small."""
    return EvaluationSample(
        source_queries=embed(QUERY_LABELS, source, 1)[:, :8],
        target_queries=embed(QUERY_LABELS, target, 2),
        source=embed(LABELS, source, 3)[:, :8],
        transformed=embed(LABELS, hop, 4),
        native=embed(LABELS, target, 5),
        order=np.random.default_rng(6).permutation(300),
        query_labels=QUERY_LABELS,
        gallery_labels=LABELS,
    )


def test_every_row_is_the_plain_measure_of_that_gallery():
    data = trial()
    table = decide(data)
    labels = {"query_labels": QUERY_LABELS, "gallery_labels": LABELS}

    ways = ["s/s", "t/s", "t/h", "t/h+t", "t/h+t", "t/h+t", "t/t"]
    assert [row.notation for row in table.rows] == ways
    assert [row.share for row in table.rows] == [0, 0, 0, 0.1, 0.25, 0.5, 1]
    for name, queries, gallery in (
        ("status quo", data.source_queries, data.source),
        ("naive swap", data.target_queries[:, :8], data.source),
        ("hop alone", data.target_queries, data.transformed),
        ("full backfill", data.target_queries, data.native),
    ):
        expected = retrieval_metrics(queries, gallery, **labels)
        figures = table.row(name).figures
        assert (figures["cmc@1"].value, figures["cmc@5"].value) == pytest.approx((expected.cmc[1], expected.cmc[5]))
        assert figures["map"].value == pytest.approx(expected.map)
    filled = native_rows(data.order, 0.25)
    mixed = retrieval_metrics(data.target_queries, np.where(filled[:, None], data.native, data.transformed), **labels)
    assert table.row("backfill 25%").figures["map"].value == pytest.approx(mixed.map)
    assert table.row("naive swap").note == "target queries cut from 12 to 8 values"
    assert (table.truth, table.num_queries, table.num_skipped) == ("labels", 90, 0)


def test_gains_and_flips_are_against_the_status_quo_query_by_query():
    data = trial()
    table = decide(data)
    before = rank_queries(data.source_queries, data.source, QUERY_LABELS, LABELS)
    after = rank_queries(data.target_queries, data.native, QUERY_LABELS, LABELS)
    full = table.row("t/t")
    assert full.flips == flips(before, after)
    assert full.gains["cmc@1"].value == pytest.approx(full.flips.positive - full.flips.negative)
    assert full.gains["cmc@1"].low < full.gains["cmc@1"].value < full.gains["cmc@1"].high
    assert table.rows[0].gains["map"] == type(full.gains["map"])(value=0.0, low=0.0, high=0.0)
    for row in table.rows:
        assert all(figure.low <= figure.value <= figure.high for figure in row.figures.values())


def test_a_better_target_is_advised_and_budgets_are_read_off():
    table = decide(trial(hop=1.0, target=0.7), DecisionSettings(criterion="map"))
    assert (table.advice.verdict, table.advice.row) == ("upgrade", "full backfill")
    assert table.advice.text.startswith(f"Upgrade by full backfill: {table.change(table.rows[-1])[:20]}")
    assert "of queries fixed, " in table.advice.text
    kept = [row.kept["map"] for row in table.rows]
    assert (kept[-1].value, kept[-1].low, kept[-1].high) == (1.0, 1.0, 1.0)
    assert kept[4].low < kept[4].value < kept[4].high < 1.0
    assert table.smallest_share(0.98) == 1.0
    assert table.smallest_share(kept[4].low) == 0.25
    assert table.smallest_share(0.1) == 0.0
    assert table.smallest_share(1.01) is None


def test_the_best_budget_is_named_not_the_largest():
    advice = decide(trial(hop=0.2, target=0.7), DecisionSettings(criterion="map")).advice
    assert (advice.verdict, advice.row, advice.share) == ("upgrade", "hop alone", 0.0)
    assert "More is not better: full backfill" in advice.text


@pytest.mark.parametrize(("source", "hop", "target"), [(0.3, 1.5, 1.0), (0.1, 0.1, 0.1)])
def test_a_target_that_is_worse_or_no_better_is_not_advised(source, hop, target):
    whole = {"source": embed(LABELS, source, 3), "source_queries": embed(QUERY_LABELS, source, 1)}
    advice = decide(replace(trial(hop=hop, target=target), **whole)).advice
    assert (advice.verdict, advice.row) == ("do not upgrade", "status quo")
    assert advice.text.startswith("Do not upgrade")


def first(queries, items, k):
    """Ids of the k nearest items of each query, by squared distance."""
    apart = np.square(queries[:, None].astype(float) - items).sum(axis=2)
    return [set(row) for row in np.argsort(apart, axis=1, kind="stable")[:, :k].tolist()]


def test_without_ground_truth_agreement_is_the_overlap_of_first_results():
    data = replace(trial(hop=0.45), query_labels=None, gallery_labels=None)
    table = decide(data, DecisionSettings(neighbours=5))
    assert (table.truth, table.criterion, table.neighbours) == ("", "agreement", 5)
    full, now = first(data.target_queries, data.native, 5), first(data.source_queries, data.source, 5)
    hop = first(data.target_queries, data.transformed, 5)
    for name, found in (("status quo", now), ("hop alone", hop), ("full backfill", full)):
        for figure, reference in (("agreement", full), ("unchanged", now)):
            overlap = np.mean([len(one & other) / 5 for one, other in zip(found, reference, strict=True)])
            assert table.row(name).figures[figure].value == pytest.approx(overlap)
    assert all(not row.gains and row.flips is None for row in table.rows)
    assert table.advice.verdict == "undecided"
    assert table.row(table.advice.row).figures["agreement"].value >= 0.9
    assert "not measurable" in table.advice.text


def test_without_ground_truth_a_fused_search_follows_the_rule():
    data = replace(trial(hop=0.45), query_labels=None, gallery_labels=None)
    table = decide(data, DecisionSettings(fused_shares=(0.5, 1.0)))
    half, whole = table.served("fused")
    agreed = table.budget(0.5).figures["agreement"].value  # of the target's column
    assert half.note.startswith(f"w {min(round(agreed, 2), 0.9):g};")
    assert whole.note.startswith("w 0.9;")
    assert half.figures["agreement"].value < whole.figures["agreement"].value < 1.0
    assert half.figures["unchanged"].value > table.budget(0.5).figures["unchanged"].value


@pytest.mark.full
def test_the_same_seed_gives_the_same_table():
    data = trial()
    assert decide(data) == decide(data)
    assert decide(data, DecisionSettings(seed=1)) != decide(data)


@pytest.mark.full
def test_queries_that_are_items_do_not_find_themselves():
    data = trial()
    everything = {"source_queries": data.source, "target_queries": data.native, "query_labels": LABELS}
    ids = np.arange(300)
    table = decide(replace(data, **everything, query_ids=ids, gallery_ids=ids))
    expected = retrieval_metrics(data.native, data.native, LABELS, LABELS, ids, ids)
    assert table.row("t/t").figures["cmc@1"].value == pytest.approx(expected.cmc[1])
    assert table.row("s/s").figures["cmc@1"].value < 1.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"transformed": np.ones((300, 8), np.float32)}, "transformed of"),
        ({"target_queries": np.ones((89, 12), np.float32)}, "queries"),
        ({"gallery_labels": None}, "labels"),
        ({"gallery_labels": LABELS[:299]}, "299"),
        ({"order": np.zeros(300, int)}, "order"),
    ],
)
def test_what_is_no_trial_is_refused(change, said):
    with pytest.raises(InvalidInput, match=said):
        replace(trial(), **change)


@pytest.mark.parametrize(
    "setting",
    [
        {"criterion": "cmc@7"},
        {"shares": (0.0, 0.5)},
        {"confidence": 1.0},
        {"resamples": 1},
        {"ks": (0,)},
    ],
)
def test_settings_out_of_range_are_refused(setting):
    with pytest.raises(InvalidInput):
        DecisionSettings(**setting)


def test_a_row_that_is_not_there_is_refused():
    with pytest.raises(InvalidInput, match="status quo, naive swap"):
        decide(trial()).row("magic")


def test_of_a_sample_without_ground_truth_fewer_first_results_stand_for_as_many_of_the_gallery():
    data = replace(trial(), query_labels=None, gallery_labels=None, population=600)
    table = decide(data)
    assert table.neighbours == 10
    alike = decide(replace(data, population=None), DecisionSettings(neighbours=5))
    assert [row.figures["agreement"].value for row in table.rows] == [
        row.figures["agreement"].value for row in alike.rows
    ]


def test_intervals_of_one_figure_hold_together_and_lie_within_its_range():
    table = decide(trial(hop=0.5, target=0.1))
    for row in table.rows:
        for share in (*row.figures.values(), *row.kept.values(), row.broken):
            assert 0 <= share.low <= share.value <= share.high <= 1
    alone = decide(trial(hop=0.5, target=0.1), DecisionSettings(shares=()))
    assert len(alone.rows) < len(table.rows)
    assert alone.row("t/t").figures["map"].low >= table.row("t/t").figures["map"].low


def test_no_right_query_among_few_does_not_mean_that_none_will_be():
    wrong = replace(trial(), target_queries=-trial().target_queries)
    figure = decide(wrong).row("full backfill").figures["cmc@1"]
    assert figure.value < 0.05
    assert figure.high > 0.04


@pytest.mark.full
@pytest.mark.parametrize("by_labels", [True, False])
def test_weights_that_a_trial_has_fitted_give_the_same_table_to_the_bit(monkeypatch, by_labels):
    data = replace(trial(), population=900)
    if not by_labels:
        data = replace(data, query_labels=None, gallery_labels=None)
    settings = DecisionSettings(fused_shares=(0.0, 0.25, 1.0), resamples=50)
    afresh = decide(data, settings)
    fitted = trial_of_fusions(data, settings)
    for share in settings.fused_shares:
        fitted.fit(data.filled(share), fitted.constants(), against_target=True)
    monkeypatch.setattr(Trial, "_fit", None)  # no weight is fitted again
    assert decide_between(data, settings, rank_strategies(data, settings, fitted)) == afresh


def test_shrunk_distances_are_the_plain_measure_of_shorter_vectors():
    factors = np.random.default_rng(7).uniform(0.2, 1.0, 300)
    data = replace(trial(), factors=factors)
    settings = DecisionSettings(shares=(0.25,), target_metric="cosine", resamples=50)
    table = decide(data, settings)
    unit = {
        name: getattr(data, name) / np.linalg.norm(getattr(data, name), axis=1, keepdims=True)
        for name in ("transformed", "native")
    }
    for row in table.budgets:
        filled = data.filled(row.share)
        gallery = np.where(filled[:, None], unit["native"], unit["transformed"] * factors[:, None])
        found = retrieval_metrics(data.target_queries, gallery, QUERY_LABELS, LABELS, metric="dot")
        assert row.figures["map"].value == pytest.approx(found.map)
        assert row.figures["cmc@1"].value == pytest.approx(found.cmc[1])
    assert decide(replace(data, factors=list(factors)), settings).rows == table.rows
    plain = decide(replace(data, factors=None), settings)
    pairs = zip(plain.rows, table.rows, strict=True)
    differ = [row.name for row, other in pairs if row.figures["map"].value != other.figures["map"].value]
    assert differ == ["hop alone", "backfill 25%"]


def test_factors_are_checked():
    with pytest.raises(InvalidInput, match="factors"):
        replace(trial(), factors=np.ones(299))
