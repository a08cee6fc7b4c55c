"""One budget in parts: by items, never more than all, and what is kept for a failed shard is not given away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.shards.results import ShardStatus, SharedBudget
from compatstore.storage.records import Spent

sizes = st.lists(st.integers(0, 10_000), min_size=1, max_size=8)


def budget_of(rows, spent, **limits):
    shards = {
        str(n): ShardStatus(str(n), rows=size, spent=Spent(rows=used, seconds=used, cost=used / 100))
        for n, (size, used) in enumerate(zip(rows, spent, strict=True))
    }
    return SharedBudget(cs.Backfill(**limits), shards), list(shards)


@pytest.mark.full
@given(sizes, st.integers(0, 20_000), st.data())
def test_parts_of_items_are_all_that_is_left(rows, limit, data):
    spent = data.draw(st.lists(st.integers(0, 3_000), min_size=len(rows), max_size=len(rows)))
    budget, names = budget_of(rows, spent, max_rows=limit)
    parts = budget.parts(names)
    given_out = [parts[name].max_rows - used for name, used in zip(names, spent, strict=True)]
    assert all(part >= 0 for part in given_out)
    assert sum(given_out) == max(limit - sum(spent), 0)


@pytest.mark.full
@given(sizes, st.floats(0.01, 1e6), st.data())
def test_parts_of_money_and_time_are_all_that_is_left(rows, limit, data):
    spent = data.draw(st.lists(st.integers(0, 3_000), min_size=len(rows), max_size=len(rows)))
    budget, names = budget_of(rows, spent, max_cost=limit, max_seconds=limit, price_per_item=0.01)
    parts = budget.parts(names).values()
    assert sum(part.max_cost for part in parts) == pytest.approx(max(limit, sum(spent) / 100))
    assert sum(part.max_seconds for part in parts) == pytest.approx(max(limit, sum(spent)), rel=1e-5, abs=1e-4)


def test_what_is_kept_is_not_given_away():
    budget, names = budget_of([50, 50], [0, 0], max_rows=10)
    parts = budget.parts(names)
    budget.keep("0", parts["0"])
    budget.spent["1"] = Spent(rows=2)
    assert budget.parts(["1"])["1"].max_rows == 5


def test_a_share_is_of_each_and_no_limit_stays_none():
    budget, names = budget_of([5, 90], [0, 0], share=0.25, order="random")
    assert list(budget.parts(names).values()) == [cs.Backfill(share=0.25, order="random")] * 2
