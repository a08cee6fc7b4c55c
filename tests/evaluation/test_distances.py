"""Distances are the same numbers however the work is cut, on every processor."""

import numpy as np
import pytest

from compatstore.errors import NonFiniteVectors
from compatstore.evaluation import rank_queries
from compatstore.evaluation.distances import measure

pytestmark = pytest.mark.kernel


def reordered(seed=0):
    """Queries of one repeated value, and rows that are reorderings of each other: equally far but for rounding."""
    random = np.random.default_rng(seed)
    row = random.standard_normal(67)
    gallery = np.stack([random.permutation(row) for _ in range(331)])
    return np.repeat(random.standard_normal((203, 1)), 67, axis=1), gallery, random.integers(0, 9, 203 + 331)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("block", [1, 7, 64, 100, 10_000])
def test_blocks_change_no_figure_even_where_rounding_decides(metric, block):
    queries, gallery, labels = reordered()
    data = queries, gallery, labels[:203], labels[203:]
    whole = rank_queries(*data, metric=metric, map_at=10)
    parts = rank_queries(*data, metric=metric, map_at=10, block=block)

    for name in ("first_match", "average_precision", "average_precision_at", "ties"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name), equal_nan=True)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_reordered_values_change_no_bit_so_that_rows_tie_which_are_equally_far(metric):
    queries, gallery, labels = reordered()
    _, here = next(measure(queries, gallery, metric).blocks())
    _, there = next(measure(queries[:, ::-1], gallery[:, ::-1], metric).blocks())
    assert np.array_equal(here, there)
    assert (rank_queries(queries, gallery, labels[:203], labels[203:], metric=metric).ties == 330).all()


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_blocks_order_as_the_distances_do(metric):
    random = np.random.default_rng(1)
    queries, gallery = random.standard_normal((70, 5)), random.standard_normal((30, 5))
    exact = {
        "l2": np.linalg.norm(queries[:, None] - gallery[None], axis=2),
        "cosine": 1 - queries @ gallery.T / np.outer(np.linalg.norm(queries, axis=1), np.linalg.norm(gallery, axis=1)),
        "dot": -queries @ gallery.T,
    }[metric]

    found = np.concatenate([block.copy() for _, block in measure(queries, gallery, metric, block=64).blocks()])

    assert np.array_equal(np.argsort(found, axis=1), np.argsort(exact, axis=1))


@pytest.mark.parametrize("value", [1e153, 5e153])
def test_vectors_are_measured_or_refused_before_their_distances_overflow(value):
    vectors = np.array([[value, -value], [-value, value]])
    try:
        (_, found), *_ = measure(vectors, vectors).blocks()
    except NonFiniteVectors:
        assert value == 5e153
    else:
        assert found.argmin(axis=1).tolist() == [0, 1]
        assert np.isfinite(found).all()
