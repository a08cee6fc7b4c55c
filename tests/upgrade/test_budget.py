"""Limits of a backfill: what each allows, which one ends it, and what a later call makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.storage.records import Spent
from compatstore.upgrade.requests.backfill import Budget


@pytest.mark.parametrize(
    "limits",
    [
        {"share": 1.01},
        {"share": -0.1},
        {"max_rows": -1},
        {"max_seconds": 0.0},
        {"max_cost": -1.0},
        {"price_per_item": -0.5},
    ],
)
def test_a_limit_out_of_its_range_is_refused(limits):
    with pytest.raises(InvalidInput, match=next(iter(limits))):
        Budget(**limits)


def test_a_limit_of_money_needs_a_price():
    with pytest.raises(InvalidInput, match="price_per_item"):
        Budget().revised(Budget(max_cost=5.0))
    known = Budget(price_per_item=0.1)
    assert known.revised(Budget(max_cost=5.0)).rows_left(Spent()) == 50


def test_the_smallest_limit_wins():
    budget = Budget(max_rows=100, max_cost=3.0, price_per_item=0.1)
    assert budget.rows_left(Spent()) == 30
    assert budget.rows_left(Spent(rows=80, cost=0.0)) == 20
    assert Budget(max_cost=0.3, price_per_item=0.1).rows_left(Spent()) == 3, "0.3 / 0.1 is 2.9999999999999996"


@pytest.mark.parametrize(
    ("spent", "ended"),
    [
        (Spent(), ""),
        (Spent(rows=9, seconds=59.0, cost=0.9), ""),
        (Spent(rows=10), "max_rows"),
        (Spent(seconds=60.0), "max_seconds"),
        (Spent(cost=0.95), "max_cost"),
    ],
)
def test_what_ended_it_is_named(spent, ended):
    budget = Budget(max_rows=10, max_seconds=60.0, max_cost=1.0, price_per_item=0.1)
    assert budget.ended_by(spent) == ended


def test_limits_without_a_share_allow_the_whole_gallery():
    assert Budget().allowed_share == 0
    assert Budget(price_per_item=1.0).allowed_share == 0
    assert Budget(max_rows=5).allowed_share == 1
    assert Budget(share=0.25, max_rows=5).share_left(100, native=20) == 5


def test_a_call_that_names_limits_replaces_them_all_and_one_that_names_none_keeps_them():
    first = Budget().revised(Budget(share=0.25, max_rows=10, price_per_item=0.5))
    assert first.revised(Budget()) == first
    assert first.revised(Budget(max_seconds=9.0)) == Budget(max_seconds=9.0, price_per_item=0.5)
    assert first.revised(Budget(price_per_item=0.7)).price_per_item == 0.7
    assert first.revised(Budget(price_per_item=0.7)).max_rows == 10


@pytest.mark.full
@given(st.integers(0, 1000), st.floats(0, 100), st.floats(0.01, 10), st.lists(st.integers(1, 50), max_size=50))
def test_taking_what_is_left_never_exceeds_rows_or_money(max_rows, max_cost, price, batches):
    budget, spent = Budget(max_rows=max_rows, max_cost=max_cost, price_per_item=price), Spent()
    for wanted in batches:
        rows = min(wanted, budget.rows_left(spent))
        spent = Spent(spent.rows + rows, 0.0, spent.cost + budget.price(rows))
    assert spent.rows <= max_rows
    assert spent.cost <= max_cost + 1e-5 * price
    assert (budget.rows_left(spent) == 0) == (budget.ended_by(spent) != "")


def test_it_says_what_it_is():
    assert str(Budget(share=0.25)) == "25% of the gallery"
    assert str(Budget(max_rows=10, max_seconds=60.0)) == "100% of the gallery, at most 10 items or 60 s"
