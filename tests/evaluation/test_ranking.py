"""Ranks by rounded distances are those of an order of all distances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.evaluation.ranking import ranks_at, ranks_behind_ties

SCALES = (1.0, 1e-46, 1e-30, 1e30, 1e300)  # some are 0 in single precision, some infinite


def ranks_in_order(distances, positions):
    """Ranks by a stable sort of all distances, and finite ones that repeat the one before."""
    order = np.argsort(distances, kind="stable")
    ranks = np.empty(len(order), int)
    ranks[order] = np.arange(1, len(order) + 1)
    ordered = distances[order]
    return ranks[positions], int(((ordered[1:] == ordered[:-1]) & np.isfinite(ordered[1:])).sum())


def some_distances(seed, kind, n):
    rng = np.random.default_rng(seed)
    distances = rng.normal(size=n)
    if kind == "crowded":  # many differ in what single precision does not hold
        distances = 1.0 + distances * 1e-7
    elif kind == "pairs":  # equal ones, and neighbours in the last bit
        twins = rng.choice(n, size=(n // 40, 2), replace=False)
        distances[twins[:, 1]] = distances[twins[:, 0]]
        distances[twins[::2, 1]] = np.nextafter(distances[twins[::2, 0]], -np.inf)
    elif kind == "whole":
        distances = rng.integers(-3, 3, n).astype(float)
    elif kind == "zeros":
        distances[rng.choice(n, n // 50, replace=False)] = 0.0
        distances[rng.choice(n, n // 50, replace=False)] = -0.0
    elif kind == "left out":
        distances[rng.choice(n, n // 3, replace=False)] = np.inf
    return distances, rng


@pytest.mark.parametrize("kind", ["plain", "crowded", "pairs", "whole", "zeros", "left out"])
@given(seed=st.integers(0, 2**32), n=st.sampled_from([1, 2, 15, 400, 3000]), scale=st.sampled_from(SCALES))
def test_ranks_are_those_of_a_stable_sort(kind, seed, n, scale):
    distances, rng = some_distances(seed, kind, max(n, 50) if kind == "pairs" else n)
    distances = distances * scale
    positions = np.sort(rng.choice(len(distances), size=rng.integers(0, len(distances) + 1), replace=False))
    found = ranks_at(distances, positions)
    ranks, ties = ranks_in_order(distances, positions)
    assert found.of.tolist() == ranks.tolist()
    assert found.ties == ties


def test_few_equal_roundings_among_many_are_put_in_order_by_the_distances():
    distances = np.arange(4000.0)
    distances[[7, 11, 20]] = 3000.0, 3000.0 - 1e-9, 3000.0
    found = ranks_at(distances, np.array([7, 11, 20, 3000]))
    assert found.of.tolist() == [2999, 2998, 3000, 3001]
    assert found.ties == 2


def test_behind_ties_each_item_has_the_last_rank_of_its_distance():
    distances = np.array([2.0, 1.0, 2.0, 2.0, np.inf])
    assert ranks_behind_ties(distances, np.array([0, 1])).tolist() == [1, 4]
