"""The backfilling curve: its ends, its middle, its area."""

import math

import numpy as np
import pytest

from compatstore.errors import InvalidInput
from compatstore.evaluation import backfill_curve, flips, rank_queries, retrieval_metrics, summarise
from compatstore.evaluation.curve import native_count


@pytest.fixture
def upgrade():
    random = np.random.default_rng(0)
    labels, query_labels = random.integers(0, 20, 200), random.integers(0, 22, 70)
    centres = random.standard_normal((22, 16))
    native = (centres[labels] + 0.8 * random.standard_normal((200, 16))).astype(np.float32)
    queries = (centres[query_labels] + 0.8 * random.standard_normal((70, 16))).astype(np.float32)
    transformed = (native + 1.5 * random.standard_normal((200, 16))).astype(np.float32)
    return {
        "queries": queries,
        "transformed": transformed,
        "native": native,
        "query_labels": query_labels,
        "gallery_labels": labels,
        "order": random.permutation(200),
        "query_ids": [f"q{i}" if i % 2 else f"g{i}" for i in range(70)],
        "gallery_ids": [f"g{i}" for i in range(200)],
    }


def measured(upgrade, gallery, metric):
    names = ("query_labels", "gallery_labels", "query_ids", "gallery_ids")
    return retrieval_metrics(upgrade["queries"], gallery, **{n: upgrade[n] for n in names}, ks=(1, 10), metric=metric)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_every_step_is_the_measure_of_that_mixed_gallery(upgrade, metric):
    curve = backfill_curve(**upgrade, alphas=[0.0, 0.333, 1.0], ks=(1, 10), metric=metric)

    mixed = upgrade["transformed"].copy()
    filled = upgrade["order"][:66]
    mixed[filled] = upgrade["native"][filled]
    for step, gallery in enumerate([upgrade["transformed"], mixed, upgrade["native"]]):
        expected = measured(upgrade, gallery, metric)
        assert {k: values[step] for k, values in curve.cmc.items()} == expected.cmc
        assert curve.map[step] == expected.map
        assert (curve.num_queries, curve.num_skipped) == (expected.num_queries, expected.num_skipped)
    assert curve.num_skipped > 0


def test_the_grid_holds_both_ends(upgrade):
    assert backfill_curve(**upgrade, alphas=3).alphas.tolist() == [0.0, 0.5, 1.0]
    assert backfill_curve(**upgrade, alphas=[0.5, 0.25]).alphas.tolist() == [0.0, 0.25, 0.5, 1.0]
    assert len(backfill_curve(**upgrade).alphas) == 11


def test_the_area_is_the_mean_over_alpha(upgrade):
    curve = backfill_curve(**upgrade, alphas=[0.0, 0.1, 1.0])
    by_hand = 0.1 * (curve.map[0] + curve.map[1]) / 2 + 0.9 * (curve.map[1] + curve.map[2]) / 2

    assert curve.area["map"] == pytest.approx(by_hand)
    assert set(curve.area) == {"cmc@1", "cmc@5", "map"}
    flat = backfill_curve(**{**upgrade, "transformed": upgrade["native"]})
    assert flat.area["cmc@1"] == pytest.approx(flat.cmc[1][0])


def test_a_share_is_rounded_down_but_not_by_rounding_errors():
    assert [native_count(a, n) for a, n in [(0.29, 100), (0.25, 10), (0.0, 7), (1.0, 7)]] == [29, 2, 0, 7]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"alphas": 1}, "alpha|step"),
        ({"alphas": [0.5, 1.1]}, "alpha|step"),
        ({"alphas": [0.5, float("nan")]}, "alpha|step"),
        ({"order": np.zeros(200, int)}, "order|permutation|rows"),
        ({"order": np.arange(199)}, "order|permutation|rows"),
        ({"order": np.arange(200).reshape(2, 100)}, "order|permutation|rows"),
        ({"native": np.ones((199, 16))}, "native vectors of shape"),
        ({"gallery_labels": np.ones(400, int)}, "gallery labels"),
        ({"query_ids": ["a"]}, "query ids"),
        ({"ks": (0,)}, "k"),
    ],
)
def test_what_is_no_backfill_is_refused(upgrade, change, said):
    with pytest.raises(InvalidInput, match=said):
        backfill_curve(**{**upgrade, **change})


def test_a_curve_falls_where_native_vectors_are_worse_than_transformed_ones(upgrade):
    random = np.random.default_rng(3)
    far = {**upgrade, "transformed": upgrade["native"], "native": upgrade["native"] + random.normal(size=(200, 16))}
    curve = backfill_curve(**far)
    lowest = int(curve.map.argmin())
    assert curve.alphas[lowest] > 0
    assert curve.map[lowest] == curve.map.min() < curve.map[0]


def test_flips_along_the_curve_add_up_to_its_change(upgrade):
    curve = backfill_curve(**upgrade)
    steps = [flips(curve.rankings[0], ranking) for ranking in curve.rankings]
    mended = np.array([step.positive - step.negative for step in steps])
    np.testing.assert_allclose(mended, curve.cmc[1] - curve.cmc[1][0])
    assert (steps[0].positive, steps[0].negative) == (0.0, 0.0)

    names = ("query_labels", "gallery_labels", "query_ids", "gallery_ids")
    status_quo = rank_queries(
        upgrade["queries"][:, :4], upgrade["native"][:, :4], **{name: upgrade[name] for name in names}
    )
    steps = [flips(status_quo, ranking, k=5) for ranking in curve.rankings]
    against = np.array([step.positive - step.negative for step in steps])
    np.testing.assert_allclose(against, curve.cmc[5] - summarise(status_quo).cmc[5])


def test_flips_count_mended_and_broken_queries():
    gallery, labels = [[0.0], [10.0]], ["a", "b"]
    before = rank_queries([[1.0], [2.0], [9.0], [9.0], [1.0]], gallery, ["a", "b", "b", "a", "none"], labels)
    after = rank_queries([[9.0], [8.0], [9.0], [1.0], [1.0]], gallery, ["a", "b", "b", "a", "none"], labels)

    changed = flips(before, after)

    assert (changed.positive, changed.negative) == (2 / 4, 1 / 4)
    gain = summarise(after, ks=(1,)).cmc[1] - summarise(before, ks=(1,)).cmc[1]
    assert math.isclose(gain, changed.positive - changed.negative)


def test_flips_of_other_queries_are_refused():
    one = rank_queries([[0.0]], [[0.0]], [1], [1])
    two = rank_queries([[0.0], [1.0]], [[0.0]], [1, 1], [1])
    with pytest.raises(InvalidInput, match="queries"):
        flips(one, two)
