"""Cells of items whose source vectors are alike, and samples that are spread over them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.upgrade.backfilling.cells import cells_of, centres_of, nearest_centres, number_of_cells, spread
from lazily import Lazy

cluster = Lazy("sklearn.cluster")
metrics = Lazy("sklearn.metrics")


def blobs(items=600, dim=5, seed=0):
    random = np.random.default_rng(seed)
    kind = random.integers(0, 6, items)
    return kind, (8 * random.normal(size=(6, dim))[kind] + random.normal(size=(items, dim))).astype(np.float32)


@pytest.mark.full
@given(st.lists(st.integers(0, 6), min_size=1, max_size=120), st.integers(0, 99), st.integers(1, 120))
def test_the_first_items_of_any_number_are_from_all_cells_in_proportion(cells, seed, first):
    cells, first = np.array(cells, np.int64), min(first, len(cells))
    scores = spread(cells, np.random.default_rng(seed).random(len(cells)))
    assert ((scores > 0) & (scores <= 1)).all()
    cut = np.sort(scores)[::-1][first - 1]
    for cell in np.unique(cells):
        own = cells == cell
        expected = own.sum() * (1 - cut)
        assert abs((scores[own] >= cut).sum() - expected) <= 1


@pytest.mark.full
def test_every_item_is_as_likely_to_be_among_the_first():
    cells = np.repeat(np.arange(4), (1, 3, 20, 76))
    random, taken, draws = np.random.default_rng(0), np.zeros(100), 4000
    for _ in range(draws):
        taken[np.argsort(-spread(cells, random.random(100)), kind="stable")[:10]] += 1
    for cell in range(4):
        assert abs(taken[cells == cell].mean() / draws - 0.1) < 0.02


def test_cells_are_the_clusters_that_scikit_learn_finds():
    kind, vectors = blobs()
    found = nearest_centres(vectors, cluster.KMeans(6, n_init=10, random_state=0).fit(vectors).cluster_centers_)
    assert metrics.adjusted_rand_score(kind, found) > 0.98
    own = nearest_centres(vectors, centres_of(vectors, 24, 0))
    assert max((kind[own == cell] != np.bincount(kind[own == cell]).argmax()).mean() for cell in np.unique(own)) < 0.1


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e6])
def test_each_vector_is_in_the_nearest_cell(scale):
    random = np.random.default_rng(1)
    vectors, centres = (scale * random.normal(size=(n, 48)).astype(np.float32) for n in (3000, 40))
    vectors[:2] = [np.full(48, 1e4 * scale), np.zeros(48)]  # far beyond all centres, and without a direction
    apart = np.square(vectors[:, None].astype(np.float64) - centres).sum(axis=2)
    found = apart[np.arange(len(vectors)), nearest_centres(vectors, centres)]
    assert (found[1:] <= 1.001 * apart[1:].min(axis=1)).all()


def test_cells_do_not_depend_on_how_items_are_read():
    _, vectors = blobs()
    known = np.ones(len(vectors), bool)
    known[7] = False
    whole = cells_of([(vectors, known)], vectors[:300], len(vectors), 3)
    parts = [(vectors[start : start + 91], known[start : start + 91]) for start in range(0, 600, 91)]
    np.testing.assert_array_equal(cells_of(parts, vectors[:300], len(vectors), 3), whole)
    assert whole[7] == number_of_cells(600)


def test_items_without_any_vector_are_one_cell():
    none = np.zeros((5, 3), np.float32)
    assert cells_of([(none, np.zeros(5, bool))], none[:0], 5, 0).tolist() == [0] * 5
