"""Distances are the same numbers however the work is cut, on every processor."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.evaluation import rank_queries, summarise
from compatstore.evaluation.distances import fit_length, measure
from compatstore.evaluation.ranking import rank_galleries
from compatstore.evaluation.relevance import relevance_from_labels

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
    whole = rank_queries(*data, metric=metric)
    parts = rank_queries(*data, metric=metric, block=block)

    for name in ("first_match", "average_precision", "ties"):
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
    except InvalidInput:
        assert value == 5e153
    else:
        assert found.argmin(axis=1).tolist() == [0, 1]
        assert np.isfinite(found).all()


@pytest.mark.parametrize("block", [None, 3])
def test_what_has_no_direction_is_refused_or_found_by_nothing(block):
    random = np.random.default_rng(2)
    queries, gallery = random.standard_normal((8, 5)), random.standard_normal((20, 5))
    whole = np.concatenate([part for _, part in measure(queries, gallery, "cosine").blocks()])
    queries[[0, 5]], gallery[7] = 0, 1e-30
    queries[5, 1] = 1e-25
    with pytest.raises(InvalidInput, match="zero vectors in rows 0"):
        measure(queries, gallery, "cosine", block=block)
    lost = measure(queries, gallery, "cosine", block=block, undirected="lose")
    found = np.concatenate([part.copy() for _, part in lost.blocks()])
    assert np.isinf(found[[0, 5]]).all()
    assert np.isinf(found[:, 7]).all()
    there = np.ix_([1, 2, 3, 4, 6, 7], [item for item in range(20) if item != 7])
    assert np.array_equal(found[there], whole[there])
    [some] = [part for _, part in lost.of(np.array([4, 5])).by(10).blocks()]
    assert np.isinf(some).all(axis=1).tolist() == [False, True]
    for metric in ("l2", "dot"):
        assert all(np.isfinite(part).all() for _, part in measure(queries, gallery, metric, undirected="lose").blocks())


def test_a_query_that_finds_nothing_counts_nothing_for_it_and_is_counted():
    random = np.random.default_rng(3)
    queries, gallery, labels = random.standard_normal((30, 4)), random.standard_normal((60, 4)), np.arange(60) % 5
    relevance, rows = relevance_from_labels(labels[:30], labels), [np.arange(60)]
    [every] = rank_galleries(measure(queries, gallery, "cosine"), relevance, rows)
    queries[::3] = 0
    [some] = rank_galleries(measure(queries, gallery, "cosine", undirected="lose"), relevance, rows)
    assert some.counted.all()
    assert not some.average_precision[::3].any()
    assert summarise(some, (60,)).cmc[60] == pytest.approx(2 / 3)
    others = np.arange(30) % 3 > 0
    for name in ("first_match", "average_precision"):
        assert np.array_equal(getattr(some, name)[others], getattr(every, name)[others])


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
def test_vectors_are_cut_or_filled_up_to_fit(have, want, rows):
    vectors = np.random.default_rng(0).normal(size=(rows, have)).astype(np.float32)
    fitted = fit_length(vectors, want)
    shared = min(have, want)
    assert fitted.shape == (rows, want)
    assert fitted.dtype == np.float32
    assert np.array_equal(fitted[:, :shared], vectors[:, :shared])
    assert not fitted[:, shared:].any()
