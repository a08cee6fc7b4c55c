"""Gain, degradation and the matrix over versions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.evaluation import (
    CompatibilityMatrix,
    compatibility_matrix,
    degradation,
    retrieval_metrics,
    upgrade_gain,
)
from compatstore.evaluation.compatibility import fit_length


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
def test_vectors_are_cut_or_filled_up_to_fit(have, want, rows):
    vectors = np.random.default_rng(0).normal(size=(rows, have)).astype(np.float32)
    fitted = fit_length(vectors, want)
    shared = min(have, want)
    assert fitted.shape == (rows, want)
    assert fitted.dtype == np.float32
    assert np.array_equal(fitted[:, :shared], vectors[:, :shared])
    assert not fitted[:, shared:].any()


def test_gain_and_degradation_are_relative():
    # GLDv2, 30 % to 100 % of the data, as DMU reports it: DMU against independent models.
    assert upgrade_gain(22.56, 18.93) == pytest.approx(0.1918, abs=1e-4)
    assert degradation(25.58, 25.00) == pytest.approx(0.0227, abs=1e-4)
    assert upgrade_gain(1.0, 2.0) == -0.5
    for measure in (lambda: upgrade_gain(0.5, 0.0), lambda: degradation(0.0, 0.5)):
        with pytest.raises(InvalidInput, match="above 0"):
            measure()


def test_averages_look_at_later_queries_on_earlier_galleries_only():
    values = np.array([[0.5, 0.0, 0.0], [0.6, 0.7, 0.0], [0.5, 0.8, 0.9]])
    matrix = CompatibilityMatrix(names=("v1", "v2", "v3"), values=values)
    assert matrix.compatibility == pytest.approx(2 / 3), "an equal score is no gain"
    assert matrix.accuracy == pytest.approx((0.5 + 0.6 + 0.7 + 0.5 + 0.8 + 0.9) / 6)
    with pytest.raises(InvalidInput, match="2 versions"):
        CompatibilityMatrix(names=("v1",), values=values[:1, :1]).compatibility  # noqa: B018
    with pytest.raises(InvalidInput, match="a matrix"):
        CompatibilityMatrix(names=("v1",), values=values)


def test_the_matrix_measures_each_pair_and_cuts_queries_of_a_growing_series():
    random = np.random.default_rng(0)
    centres = random.normal(size=(12, 16))
    labels, query_labels = random.integers(0, 12, 150), random.integers(0, 12, 40)
    gallery = centres[labels] + 0.9 * random.normal(size=(150, 16))
    queries = centres[query_labels] + 0.9 * random.normal(size=(40, 16))
    dims = (4, 8, 16)
    arguments = {"query_labels": query_labels, "gallery_labels": labels}
    tables = [[vectors[:, :dim] for dim in dims] for vectors in (queries, gallery)]
    matrix = compatibility_matrix(["v1", "v2", "v3"], *tables, **arguments, metric="map", distance="l2")

    assert matrix.values[2, 0] == matrix.values[0, 0], "the first values of a longer query are the earlier query"
    expected = retrieval_metrics(np.pad(queries[:, :4], ((0, 0), (0, 12))), gallery, query_labels, labels)
    assert matrix.values[0, 2] == expected.map
    assert matrix.compatibility == 0.0
    cmc = compatibility_matrix(["v1", "v2", "v3"], *tables, **arguments, metric="cmc@5", distance="l2")
    assert cmc.values[2, 2] == retrieval_metrics(queries, gallery, query_labels, labels).cmc[5]
    with pytest.raises(InvalidInput, match="cmc@k"):
        compatibility_matrix(["v1", "v2", "v3"], *tables, **arguments, metric="recall")
    with pytest.raises(InvalidInput, match="2 of each"):
        compatibility_matrix(["v1", "v2"], *tables, **arguments)


def test_queries_of_a_longer_version_that_are_cut_to_zeros_find_nothing():
    random = np.random.default_rng(0)
    labels = np.arange(40) % 4
    short, long = (np.eye(dim)[labels] + 0.1 * random.normal(size=(40, dim)) for dim in (4, 6))
    sparse = long.copy()
    sparse[:10, :4] = 0.0
    data = ["v1", "v2"], [short, sparse], [short, long], labels, labels
    assert compatibility_matrix(*data).values[1, 0] == 0.75
    assert compatibility_matrix(*data, metric="map").values[1, 0] < 0.76
    with pytest.raises(InvalidInput, match="zero vectors"):
        compatibility_matrix(["v1", "v2"], [np.zeros((40, 4)), long], [short, long], labels, labels)
