"""What a weight gives beside the target alone, by shrunk distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compatstore.errors import InvalidInput
from compatstore.evaluation import DecisionSettings, Estimate, EvaluationSample, fusion_choice
from compatstore.evaluation.fusion import Measurement
from compatstore.evaluation.strategies import trial_of_fusions
from lazily import Lazy

metrics = Lazy("sklearn.metrics")

ITEMS, QUERIES, CLASSES = 120, 40, 8
CHOICE = Measurement(
    weight=0.5,
    native_share=0.25,
    criterion="map",
    truth="labels",
    num_queries=40,
    gain=Estimate(value=0.1, low=0.02, high=0.18),
)


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def sample(factors):
    random = np.random.default_rng(3)
    centres, places = random.normal(size=(CLASSES, 10)), random.integers(0, CLASSES, ITEMS + QUERIES)
    native = centres[places] + 1.5 * random.normal(size=(ITEMS + QUERIES, 10))
    source = native @ random.normal(size=(10, 6)) + 3.0 * random.normal(size=(ITEMS + QUERIES, 6))
    hopped = native[QUERIES:] + 3.0 * (1.0 - factors[:, None]) * random.normal(size=(ITEMS, 10))
    return EvaluationSample(
        source_queries=unit(source[:QUERIES]),
        target_queries=unit(native[:QUERIES]),
        source=unit(source[QUERIES:]),
        transformed=unit(hopped),
        native=unit(native[QUERIES:]),
        order=np.arange(ITEMS),
        query_labels=places[:QUERIES],
        gallery_labels=places[QUERIES:],
        factors=factors,
    )


def mean_average_precision(asked, distances):
    right = asked.query_labels[:, None] == asked.gallery_labels[None]
    return np.mean([metrics.average_precision_score(of, -row) for of, row in zip(right, distances, strict=True)])


@pytest.mark.full
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_both_versions_and_the_target_alone_are_compared_query_by_query(share):
    factors = np.random.default_rng(0).uniform(0.2, 1.0, ITEMS)
    asked = sample(factors)
    trial = trial_of_fusions(asked, DecisionSettings(source_metric="cosine", target_metric="cosine"))
    native = asked.filled(share)
    fusion = replace(trial.constants().named(0.6), native_share=share)
    found = trial.measure(native, fusion)
    target = np.where(native[:, None], asked.native, asked.transformed)
    shrunk = -(asked.target_queries.astype(float) @ target.T.astype(float)) * np.where(native, 1.0, factors)
    source = -(asked.source_queries.astype(float) @ asked.source.T.astype(float))
    both = fusion.distances(source, shrunk, native)
    before, one, alone = (mean_average_precision(asked, distances) for distances in (source, both, shrunk))
    assert found.over_target.value == pytest.approx(one - alone, abs=1e-9)
    assert found.target_gain.value == pytest.approx(alone - before, abs=1e-9)
    (chosen,) = trial.fit(native, trial.constants(), against_target=True).fusion.choices
    assert chosen.target_gain.value == pytest.approx(alone - before, abs=1e-9)


def test_what_retiring_costs_is_said_with_what_it_was_measured_by():
    assert CHOICE.loss == ""
    over = replace(CHOICE, over_target=Estimate(value=0.02, low=-0.01, high=0.05))
    assert over.loss == (
        "map of the target alone is -2.0 points (-5.0 to +1.0) relative to the fused search, measured at a native "
        "share of 0.25, correct by labels"
    )


@pytest.mark.parametrize("wrong", [{"weight": 1.2}, {"native_share": -0.1}])
def test_a_share_out_of_range_is_refused(wrong):
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        replace(CHOICE, **wrong)


def test_distances_that_are_kept_are_those_that_are_measured_each_time(monkeypatch):
    asked = sample(np.random.default_rng(0).uniform(0.2, 1.0, ITEMS))
    settings = DecisionSettings(source_metric="l2", target_metric="cosine")
    rows, found = np.array([31, 4, 17]), []
    for cells in (0, 2**22):
        monkeypatch.setattr(fusion_choice, "_KEPT_CELLS", cells)
        trial = trial_of_fusions(asked, settings)
        natives = [asked.filled(share) for share in (0.0, 0.3, 1.0)]
        fusions = [trial.constants().named(weight) for weight in (0.0, 0.6, 1.0)]
        found += [[trial._search(native, fusions, rows=some)[1].values for native in natives] for some in (None, rows)]
    for measured, kept in zip(found[:2], found[2:], strict=True):
        np.testing.assert_array_equal(measured, kept)
