"""What two ranked lists leave out is no nearer than they say, and what they keep holds the nearest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.evaluation.distances import shrunk_distances
from compatstore.evaluation.fusion import Fusion, Standardisation
from compatstore.search.threshold import FEWEST, NO_FACTORS, ListFactors, RankedLists, first_depth

FUSION = Fusion(
    weight=0.4,
    source=Standardisation(mean=-0.2, deviation=0.7),
    native=Standardisation(mean=0.3, deviation=1.4),
    transformed=Standardisation(mean=-0.5, deviation=0.6),
    per_origin=True,
    correlation=0.8,
    native_share=0.3,
)


@pytest.mark.full
@given(
    seed=st.integers(0, 10_000),
    depth=st.integers(1, 12),
    weight=st.floats(0.01, 0.99),
    per_origin=st.booleans(),
    correlation=st.floats(-1, 1),
    shift=st.floats(-5, 5),
    metric=st.sampled_from(["l2", "cosine", "dot"]),
    factors=st.none() | st.tuples(st.floats(0, 1), st.floats(1, 2)),
)
def test_what_lists_leave_out_is_no_nearer(seed, depth, weight, per_origin, correlation, shift, metric, factors):
    """Whatever vectors, kinds and doubts the rows have: the bounds of `RankedLists` hold for each."""
    apart = {"per_origin": per_origin, "correlation": correlation}
    fusion, k = replace(FUSION, weight=weight, shrinkage=factors is not None, **apart), 3
    rng = np.random.default_rng(seed)
    distances, native = rng.normal(size=(2, 20)) + shift, rng.random(20) < 0.5
    has = rng.random((2, 20)) < 0.8
    low, high = factors or (1.0, 1.0)
    kept = np.where(native, 1.0, rng.uniform(low, high, size=20))
    known = np.stack([np.where(rng.random(20) < 0.5, kept, end) for end in (low, high)])
    shrunk = shrunk_distances(distances[1], kept, metric) if factors else distances[1]
    fused = fusion.distances(distances[0], shrunk, native, *has)
    listed = [np.flatnonzero(held)[np.argsort(one[held])][:depth] for one, held in zip(distances, has, strict=True)]
    ends = [np.inf if len(rows) < depth else one[rows[-1]] for one, rows in zip(distances, listed, strict=True)]
    held = [(rows, one[rows]) for one, rows in zip(distances, listed, strict=True)]
    told = ListFactors(metric, *known[:, listed[1]], (low, high)) if factors else NO_FACTORS
    lists = RankedLists.of(fusion, held, tuple(ends), factors=told)
    assert lists.unseen() <= np.delete(fused, lists.rows).min(initial=np.inf) + 1e-9
    near = lists.rows[lists.near(k)]
    nearest = lists.rows[np.argsort(fused[lists.rows], kind="stable")[:k]]
    assert set(nearest[np.isfinite(fused[nearest])].tolist()) <= set(near.tolist())


def test_either_kind_of_vector_may_be_the_nearer_one():
    """What neither list holds may be native or transformed, and these are standardised apart."""
    lists = RankedLists.of(FUSION, [(np.arange(2), np.array([-3.0, -2.0]))] * 2, (-2.0, -2.0))
    kinds = [FUSION.distances(np.array([-2.0]), np.array([-2.0]), np.array([native]))[0] for native in (True, False)]
    assert kinds[1] < kinds[0]
    assert lists.unseen() == pytest.approx(kinds[1])


def test_what_lists_hold_may_be_off_by_their_errors():
    """A row that seems a little too far is compared, and what is unseen may be a little nearer."""
    lists, fusion = [(np.arange(3), np.array([0.0, 0.1, 0.2]))] * 2, replace(FUSION, per_origin=False)
    exact = RankedLists.of(fusion, lists, (0.2, 0.2))
    rough = RankedLists.of(fusion, lists, (0.2, 0.2), errors=(0.15, 0.15))
    assert exact.near(1).tolist() == [True, False, False]
    assert rough.near(1).tolist() == [True, True, False]
    assert rough.unseen() < exact.unseen()
    assert RankedLists.of(fusion, lists, (0.2, 0.2), first=2).near(1).tolist() == [True, True, False]


def test_lists_begin_deeper_in_larger_galleries():
    assert first_depth(1000, 10) == FEWEST
    assert first_depth(1_000_000, 10) == 790
    assert first_depth(1000, 400) == 800
