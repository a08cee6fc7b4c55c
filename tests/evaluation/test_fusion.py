"""Fusion of two versions: the definition, its constants, and a weight chosen and judged by different queries."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.evaluation import DecisionSettings, EvaluationSample
from compatstore.evaluation.bootstrap import Estimate
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import (
    Fusion,
    Measurement,
    Standardisation,
    distances_to,
    fused_blocks,
    standardise,
)
from compatstore.evaluation.fusion_choice import Trial
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import relevance_from_labels, relevance_from_neighbours
from compatstore.evaluation.sampled import WHOLE, Sampling, find_in_blocks

METRICS = ["l2", "cosine", "dot"]


# ---- the definition


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dim", [1, 7, 33])
def test_distances_of_a_search_are_those_of_the_evaluation(metric, dim):
    random = np.random.default_rng(dim)
    query, vectors = random.normal(size=dim).astype("f4"), random.normal(size=(50, dim)).astype("f4")
    ((_, expected),) = measure(query[None], vectors, metric).blocks()
    assert np.allclose(distances_to(query, vectors, metric), expected[0], rtol=1e-12, atol=1e-12)
    twice = distances_to(query, np.repeat(vectors[:5], 11, axis=0), metric).reshape(5, 11)
    assert (twice == twice[:, :1]).all()  # equal vectors tie, wherever they stand


def test_one_of_two_vectors_is_enough_and_none_is_not():
    fusion = Fusion(weight=0.25, source=Standardisation(mean=1, deviation=2), correlation=0.5)
    both, none = np.array([True, True, False, False]), np.array([True, False, True, False])
    found = fusion.distances(np.full(4, 5.0), np.full(4, -4.0), np.ones(4, bool), both, none)
    assert found.tolist() == [0.75 * 2 + 0.25 * -4, 0.75 * 2 + 0.25 * 1, 0.75 * -2 + 0.25 * -4, np.inf]


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_weight_of_one_version_alone_leaves_its_distances_as_they_are(weight):
    fusion = Fusion(weight=weight, native=Standardisation(mean=9, deviation=9))
    found = fusion.distances(np.array([1.0, 2.0]), np.array([4.0, 3.0]), np.array([True, False]))
    assert found.tolist() == ([1.0, 2.0] if weight == 0 else [4.0, 3.0])
    assert fusion.distances(np.ones(1), np.ones(1), np.ones(1, bool), *(np.zeros(1, bool),) * 2).tolist() == [np.inf]


numbers = st.floats(-1e6, 1e6)
shares = st.floats(-1, 1)
standardisations = st.builds(Standardisation, mean=numbers, deviation=st.floats(1e-6, 1e6))


@pytest.mark.full
@given(
    fusion=st.builds(
        Fusion,
        weight=st.floats(0, 1),
        source=standardisations,
        native=standardisations,
        transformed=standardisations,
        per_origin=st.booleans(),
        correlation=st.floats(-1, 1),
        candidates=st.integers(1, 1000),
        choices=st.lists(
            st.builds(
                Measurement,
                weight=st.floats(0, 1),
                per_origin=st.booleans(),
                native_share=st.floats(0, 1),
                criterion=st.sampled_from(["map", "cmc@1"]),
                truth=st.text(max_size=20),
                num_queries=st.integers(0, 1000),
                gain=st.none() | st.builds(Estimate, value=shares, low=shares, high=shares),
            ),
            max_size=3,
        ).map(tuple),
        native_share=st.floats(0, 1),
    )
)
def test_json_gives_back_every_number(fusion):
    assert Fusion.from_json(json.loads(json.dumps(fusion.as_json()))) == fusion


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": 1.1},
        {"weight": float("nan")},
        {"weight": 0.5, "correlation": 2},
        {"weight": 0.5, "candidates": 0},
        {"weight": 0.5, "native_share": -0.1},
    ],
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInput):
        Fusion(**wrong)


@pytest.mark.parametrize("wrong", [{"deviation": 0.0}, {"mean": float("inf")}, {"deviation": float("nan")}])
def test_a_standardisation_needs_finite_numbers_and_a_deviation(wrong):
    with pytest.raises(InvalidInput):
        Standardisation(**wrong)


def chosen(weight, native_share, per_origin=False):
    gain = Estimate(value=0.1, low=0.01, high=0.2)
    seen = {"criterion": "map", "truth": "labels", "num_queries": 9, "gain": gain}
    return Measurement(weight=weight, native_share=native_share, per_origin=per_origin, **seen)


def test_the_weight_follows_the_choice_for_no_more_natives_than_there_are():
    fusion = Fusion(weight=0.3, choices=(chosen(0.3, 0.1), chosen(0.6, 0.5, per_origin=True), chosen(1.0, 1.0)))
    shares = [0.0, 0.1, 0.3, 0.49, 0.75, 0.99, 1.0]
    assert [fusion.at(share).weight for share in shares] == [0.3, 0.3, 0.3, 0.6, 0.6, 1.0, 1.0]
    assert [fusion.at(share).per_origin for share in (0.1, 0.5, 1.0)] == [False, True, False]
    assert "0.6: +10.0 points of map (+1.0 to +20.0) by 9 queries" in fusion.at(0.7).weighed
    named = fusion.named(0.2)
    assert (named.choice, named.at(1.0).weight) == (None, 0.2)


# ---- its constants


@pytest.mark.parametrize("metric", METRICS)
def test_constants_are_moments_around_each_querys_own_mean(metric):
    random = np.random.default_rng(1)
    queries, source, native, hopped = (random.normal(size=(n, 6)) for n in (9, 40, 40, 40))
    itself = np.where(np.arange(9) < 4, np.arange(9), -1)
    galleries = [measure(queries, gallery, metric, block=4) for gallery in (source, native, hopped)]
    found = standardise(*galleries, itself)
    tables = []
    for gallery in (source, native, hopped):
        table = np.array([distances_to(q, gallery, metric) for q in queries.astype(np.float32)])
        table[itself >= 0, itself[itself >= 0]] = np.nan
        tables.append(table)
    kinds = (found.source, found.native, found.transformed)
    centred = [table - np.nanmean(table, axis=1, keepdims=True) for table in tables]
    assert [kind.deviation for kind in kinds] == pytest.approx(
        [np.sqrt(np.nanmean(part**2)) for part in centred], rel=1e-5
    )
    means = [np.average(np.nanmean(t, axis=1), weights=np.isfinite(t).sum(axis=1)) for t in tables]
    assert [kind.mean for kind in kinds] == pytest.approx(means, rel=1e-4, abs=1e-5)
    left, right = (part[np.isfinite(part)] for part in (centred[0], centred[2]))
    assert found.correlation == pytest.approx(np.mean(left * right) / left.std() / right.std(), rel=1e-4, abs=1e-5)


def test_a_mixture_has_the_moments_of_both_kinds_together():
    random = np.random.default_rng(0)
    native, hopped = random.normal(3.0, 2.0, 300_000), random.normal(-1.0, 0.5, 100_000)
    kinds = [Standardisation(mean=float(part.mean()), deviation=float(part.std())) for part in (native, hopped)]
    both = Fusion(weight=0.5, native=kinds[0], transformed=kinds[1], native_share=0.75).mixture
    together = np.concatenate([native, hopped])
    assert (both.mean, both.deviation) == pytest.approx((together.mean(), together.std()))


def test_items_that_are_all_alike_have_a_deviation_to_divide_by():
    same = measure(np.ones((2, 3)), np.ones((5, 3)), "l2")
    found = standardise(same, same, same, np.full(2, -1))
    assert (found.source.deviation, found.correlation) == (1.0, 0.0)


# ---- the weight


def sample(noise_source, noise_target, noise_hop, *, queries=300, items=200, classes=20, seed=0, **more):
    """Two spaces with independent errors; labels are classes. All queries are outsiders."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(classes, 12))
    of_query, of_item = random.integers(0, classes, queries), random.integers(0, classes, items)
    blurred = lambda labels, noise: centres[labels] + noise * random.normal(size=(len(labels), 12))  # noqa: E731
    native = blurred(of_item, noise_target)
    settings = {
        "source_queries": blurred(of_query, noise_source),
        "target_queries": 3 * blurred(of_query, noise_target),
        "source": blurred(of_item, noise_source),
        "native": 3 * native,
        "transformed": 3 * (native + noise_hop * random.normal(size=native.shape)),
        "order": random.permutation(items),
        "query_labels": of_query,
        "gallery_labels": of_item,
    }
    return EvaluationSample(**{**settings, **more})


def trial(drawn, **settings):
    relevance = relevance_from_labels(drawn.query_labels, drawn.gallery_labels, drawn.query_ids, drawn.gallery_ids)
    chosen = DecisionSettings(resamples=200, **settings)
    return Trial(sample=drawn, settings=chosen, relevance=relevance, sampling=WHOLE, truth="labels")


def fit(drawn, native=None, **settings):
    tried = trial(drawn, **settings)
    rows = np.zeros(len(drawn.source), bool) if native is None else native
    return tried.fit(rows, tried.constants())


@pytest.mark.full
def test_two_spaces_with_errors_of_their_own_are_better_together():
    drawn = sample(1.5, 1.5, 1.0)
    fitted = fit(drawn)
    alone, together = (brute_force(drawn, fitted.fusion, weight) for weight in (0.0, fitted.fusion.weight))
    assert 0.2 <= fitted.fusion.weight <= 0.8
    assert np.nanmean(together) > np.nanmean(alone) + 0.02
    assert fitted.fusion.choice.gain.low > 0
    assert np.nanmean(fitted.found.values[-1]) == pytest.approx(np.nanmean(together), abs=0.01)


def brute_force(drawn, fusion, weight, native=None):
    """Average precision of each query, from the definition alone."""
    native = np.zeros(len(drawn.source), bool) if native is None else native
    target = np.where(native[:, None], drawn.native, drawn.transformed)
    found = np.full(len(drawn.source_queries), np.nan)
    for query in range(len(found)):
        distances = []
        for item in range(len(target)):
            near = float(((drawn.source[item]) ** 2).sum() - 2 * drawn.source[item] @ drawn.source_queries[query])
            far = float((target[item] ** 2).sum() - 2 * target[item] @ drawn.target_queries[query])
            kind = fusion.mixture if not fusion.per_origin else fusion.native if native[item] else fusion.transformed
            left = (near - fusion.source.mean) / fusion.source.deviation
            right = (far - kind.mean) / kind.deviation
            distances.append(near if weight == 0 else far if weight == 1 else (1 - weight) * left + weight * right)
        correct = (drawn.gallery_labels == drawn.query_labels[query])[np.argsort(distances, kind="stable")]
        if correct.any():
            ranks = np.flatnonzero(correct) + 1
            found[query] = np.mean(np.arange(1, len(ranks) + 1) / ranks)
    return found


def test_figures_of_every_weight_are_those_of_the_definition():
    drawn = sample(1.0, 1.2, 0.8, queries=20, items=40, classes=6)
    native = np.arange(40) % 3 == 0
    tried = trial(drawn)
    constants = tried.constants()
    fusions = [replace(constants, weight=weight) for weight in tried.weights]
    left, right = (
        measure(drawn.source_queries, drawn.source, "l2", block=7),
        measure(drawn.target_queries, np.where(native[:, None], drawn.native, drawn.transformed), "l2", block=7),
    )
    columns = [np.arange(40) + 40 * number for number in range(len(fusions))]
    blocks = fused_blocks(left, right, native, tried.relevance, fusions)
    rankings = rank_blocks(blocks, 20, tried.relevance, columns)
    for weight, ranking in zip(tried.weights, rankings, strict=True):
        expected = brute_force(drawn, constants, weight, native)
        assert np.allclose(ranking.average_precision, expected, equal_nan=True)


def test_nothing_is_served_that_is_not_surely_better():
    fitted = fit(sample(1.0, 40.0, 0.0))
    assert fitted.fusion.weight == 0
    assert fitted.fusion.choice.gain == Estimate(value=0.0, low=0.0, high=0.0)


def test_the_target_alone_is_a_candidate():
    fitted = fit(sample(40.0, 0.8, 0.0))
    assert fitted.fusion.weight >= 0.8


@pytest.mark.full
def test_a_weight_that_costs_the_first_place_is_not_chosen_for_map():
    """Each query's one twin is first in the source alone; the target finds the class, and not the twin."""
    classes, each = 10, 30
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    centres = 3 * random.normal(size=(classes, 12))
    source = random.normal(size=(len(labels), 12))
    native = centres[labels] + 4.5 * random.normal(size=(len(labels), 12))
    queries = source + 0.01 * random.normal(size=source.shape)
    far = centres[labels] + 4.5 * random.normal(size=source.shape)
    drawn = EvaluationSample(
        source_queries=queries,
        target_queries=far,
        source=source,
        native=native,
        transformed=native,
        order=np.arange(len(labels)),
        query_labels=labels,
        gallery_labels=labels,
    )
    fitted = fit(drawn)
    first = trial(drawn)
    constants = first.constants()
    cmc = {w: cmc_at_1(drawn, constants, w) for w in (0.0, fitted.fusion.weight, 1.0)}
    assert cmc[0.0] == 1.0
    assert cmc[1.0] < 0.9
    assert cmc[fitted.fusion.weight] == 1.0


def cmc_at_1(drawn, fusion, weight):
    fusion = replace(fusion, weight=weight)
    hits = []
    for query in range(len(drawn.source_queries)):
        near = distances_to(drawn.source_queries[query].astype("f4"), drawn.source.astype("f4"), "l2")
        far = distances_to(drawn.target_queries[query].astype("f4"), drawn.transformed.astype("f4"), "l2")
        nearest = np.argmin(fusion.distances(near, far, np.zeros(len(near), bool)))
        hits.append(drawn.gallery_labels[nearest] == drawn.query_labels[query])
    return float(np.mean(hits))


@pytest.mark.full
def test_the_queries_that_are_reported_did_not_choose():
    """Labels without any meaning: what is chosen on them gains on the queries that chose, and not on others."""
    gains = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        drawn = sample(1.0, 1.0, 0.0, queries=16, items=40, classes=8, seed=seed)
        drawn = replace(drawn, query_labels=random.integers(0, 8, 16), gallery_labels=random.integers(0, 8, 40))
        easily = DecisionSettings(resamples=50, confidence=0.02)  # every gain passes for a sure one
        tried = replace(trial(drawn), settings=easily)
        fitted = tried.fit(np.zeros(40, bool), tried.constants())
        status_quo, chosen = (brute_force(drawn, fitted.fusion, weight) for weight in (0.0, fitted.fusion.weight))
        gains.append((np.nanmean(chosen - status_quo), np.nanmean(fitted.found.values[-1] - status_quo)))
    (own, other), error = np.mean(gains, axis=0), np.std(gains, axis=0)[1] / np.sqrt(len(gains))
    assert own > 3 * error
    assert other < 2 * error


@pytest.mark.full
def test_natives_and_transformed_are_standardised_as_their_errors_ask():
    """Small vectors that say as much as native ones are brought to their scale; small ones that say nothing are not."""
    drawn = sample(3.0, 0.8, 0.0, queries=300, items=300)
    half, noise = np.arange(300) % 2 == 0, np.random.default_rng(5).normal(size=drawn.native.shape)
    shrunk, empty = (
        fit(replace(drawn, transformed=0.3 * small), half, target_metric="dot").fusion
        for small in (drawn.native, noise)
    )
    assert shrunk.per_origin
    assert not empty.per_origin
    assert all(0 < fusion.weight < 1 for fusion in (shrunk, empty))


@pytest.mark.full
def test_a_sampled_gallery_widens_the_interval():
    whole = fit(sample(1.5, 1.5, 1.0)).fusion.choice
    drawn = sample(1.5, 1.5, 1.0, population=20_000)
    tried = replace(trial(drawn), sampling=Sampling(weight=drawn.weight))
    part = tried.fit(np.zeros(len(drawn.source), bool), tried.constants()).fusion.choice
    assert part.gain.value - part.gain.low > 1.2 * (whole.gain.value - whole.gain.low)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("sampling", [WHOLE, Sampling(weight=7.5)])
def test_weights_are_compared_by_the_figures_of_a_sampled_gallery(sampling, told):
    drawn = sample(
        1.0, 1.2, 0.8, queries=30, items=50, classes=6, query_ids=np.arange(20, 50), gallery_ids=np.arange(50)
    )
    tried, native = replace(trial(drawn), sampling=sampling), np.arange(50) % 3 == 0
    if not told:
        near = measure(drawn.target_queries, drawn.native)
        tried = replace(tried, relevance=relevance_from_neighbours(near, 5, drawn.query_ids, drawn.gallery_ids))
    fusions = [replace(tried.constants(), weight=weight, per_origin=weight < 0.5) for weight in (0.0, 0.3, 0.8, 1.0)]
    target = np.where(native[:, None], drawn.native, drawn.transformed)
    left, right = measure(drawn.source_queries, drawn.source), measure(drawn.target_queries, target)
    columns = [np.arange(50) + 50 * number for number in range(len(fusions))]
    blocks = fused_blocks(left, right, native, tried.relevance, fusions)
    expected = find_in_blocks(blocks, 30, tried.relevance, columns, tried.settings.ks, sampling)
    found = tried._values(native, fusions)
    assert np.allclose(found, [figures.values for figures in expected], equal_nan=True)


def test_cmc_cannot_be_told_by_a_sample():
    with pytest.raises(InvalidInput, match="choose how to search by cmc@1"):
        trial(sample(1.0, 1.0, 0.0, population=9_000), criterion="cmc@1")


def test_a_share_of_natives_is_searched_as_natives():
    drawn = sample(1.2, 0.8, 1.5, queries=60, items=60)
    few, many = (fit(drawn, np.arange(60) < count) for count in (0, 60))
    assert (few.fusion.native_share, many.fusion.native_share) == (0.0, 1.0)
    assert np.nanmean(many.found.values[-1]) > np.nanmean(few.found.values[-1])
    assert many.fusion.native == few.fusion.native
