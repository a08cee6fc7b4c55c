"""The draw that judges a refit: what is embedded does not depend on stops, and judges are like what remains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.upgrade.backfilling.policies import draw, interleave, order, validation_rows
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

HOLDOUT = 0.2


def backfill(rows, policy, native, budget):
    """What a backfill embeds next; a row that became native has lost its sigma."""
    seen = ArrayRows(ids=rows.ids, sigma2=np.where(native, np.nan, rows.sigma2))
    urgent = order(policy, seen, 0)
    drawn = draw(policy, seen, 0)[: int(HOLDOUT * budget)]
    left = max(budget - int(native.sum()), 0)
    return interleave(urgent[~native[urgent]], drawn[~native[drawn]], left, HOLDOUT)


@pytest.mark.full
@given(n=st.integers(1, 60), share=st.floats(0, 1), stop=st.floats(0, 1), seed=st.integers(0, 99))
def test_a_stopped_backfill_ends_with_the_same_rows(n, share, stop, seed):
    rows = ArrayRows(ids=list(range(n)), sigma2=np.random.default_rng(seed).random(n))
    budget, native = int(share * n), np.zeros(n, bool)
    for policy in ("random", "sigma"):
        whole = backfill(rows, policy, native, budget)
        assert len(set(whole)) == len(whole) == budget
        part = native.copy()
        part[whole[: int(stop * budget)]] = True
        part[backfill(rows, policy, part, budget)] = True
        assert set(np.flatnonzero(part)) == set(whole)


def test_drawn_rows_come_among_the_first():
    rows = ArrayRows(ids=list(range(1000)), sigma2=np.linspace(1, 0, 1000))
    first = backfill(rows, "sigma", np.zeros(1000, bool), 500)[:100]
    drawn = draw("sigma", rows, 0)[:100]
    assert np.isin(first, drawn).sum() == 20
    np.testing.assert_array_equal(first[np.isin(first, drawn)], drawn[:20])


def test_judges_are_drawn_and_would_have_been_left():
    rows = ArrayRows(ids=list(range(1000)), sigma2=np.linspace(1, 0, 1000))
    native, none = np.zeros(1000, bool), np.zeros(1000, bool)
    native[backfill(rows, "sigma", native, 500)] = True
    found = validation_rows("sigma", rows, 0, native, none)
    drawn = draw("sigma", rows, 0)[:100]
    assert set(found) <= set(np.flatnonzero(native))
    assert set(found) >= {row for row in drawn if row > np.flatnonzero(~native)[0]}
    assert min(found) > np.flatnonzero(~native)[0] - 1
    assert set(validation_rows("random", rows, 0, order("random", rows, 0).argsort() < 300, none)) == set(
        order("random", rows, 0)[:300]
    )


def test_a_row_that_cannot_be_embedded_does_not_end_the_draw():
    rows = ArrayRows(ids=list(range(100)))
    first = order("random", rows, 0)
    native, unreadable = np.zeros(100, bool), np.zeros(100, bool)
    native[first[1:40]], unreadable[first[0]] = True, True
    assert len(validation_rows("random", rows, 0, native, unreadable)) == 39
    assert len(validation_rows("random", rows, 0, native, np.zeros(100, bool))) == 0
