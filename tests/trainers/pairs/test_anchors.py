"""Anchors: the best swap, matchings that are found again, and clusters."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compatstore.trainers.pairs.anchors import assign, centroids, match_centroids
from compatstore.trainers.pairs.pairs import unit


def symmetric(size, random):
    values = random.normal(size=(size, size))
    return values + values.T


@settings(max_examples=30, deadline=None)
@given(size=st.integers(2, 25), seed=st.integers(0, 2**32 - 1))
def test_a_permuted_matrix_is_matched_with_itself(size, seed):
    random = np.random.default_rng(seed)
    left, order = symmetric(size, random), random.permutation(size)
    found = assign(left, left[np.ix_(order, order)], 200, random)
    np.testing.assert_array_equal(order[found], np.arange(size))


@settings(max_examples=30, deadline=None)
@given(size=st.integers(2, 9), seed=st.integers(0, 2**32 - 1))
def test_no_swap_improves_what_is_returned(size, seed):
    random = np.random.default_rng(seed)
    left, right = symmetric(size, random), symmetric(size, random)
    found = assign(left, right, 1, random)
    value = (left * right[np.ix_(found, found)]).sum()
    for i in range(size):
        for j in range(i):
            swapped = found.copy()
            swapped[[i, j]] = swapped[[j, i]]
            assert (left * right[np.ix_(swapped, swapped)]).sum() <= value + 1e-6


def test_centroids_have_unit_length_and_are_the_means_of_clusters_apart():
    random = np.random.default_rng(0)
    corners = np.eye(5, dtype=np.float32)
    rows = unit(np.repeat(corners, 60, axis=0) + 0.05 * random.normal(size=(300, 5)).astype(np.float32))
    found = centroids(rows, 5, random)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    every = centroids(rows[:7], 7, random)  # as many as there are rows
    np.testing.assert_allclose(np.sort(every @ rows[:7].T, axis=1)[:, -1], 1, rtol=1e-5)


def test_centroids_of_a_rotated_set_are_matched_with_their_images():
    random = np.random.default_rng(1)
    kinds = unit(random.normal(size=(8, 6)).astype(np.float32))
    rows = unit(kinds[random.integers(0, 8, 800)] + 0.02 * random.normal(size=(800, 6)).astype(np.float32))
    turn = np.linalg.qr(random.normal(size=(6, 6)))[0].astype(np.float32)
    left, right = match_centroids(rows[:400], rows[400:] @ turn.T, 8, 50, random)
    cosines = ((left @ turn.T) * right).sum(axis=1)
    assert np.median(cosines) > 0.95
