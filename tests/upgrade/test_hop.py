"""The hop keeps up with an app that adds item by item, and so makes a fragment each time."""

from __future__ import annotations

import time

import hypothesis.strategies as st
import lance
import numpy as np
import pytest
from hypothesis import given

from compatstore.storage.fragments import Fragment, in_waves
from compatstore.upgrade.hop import ahead
from galleries import items, make

pytestmark = pytest.mark.kernel

APPENDED = 40


@pytest.mark.full
def test_many_small_fragments_share_a_commit(tmp_path):
    path = tmp_path / "gallery.lance"
    gallery = make(str(path), fragments=3, rows=50)
    gallery.upgrade("v2")
    for number in range(1000, 1000 + APPENDED):
        one = items(number, 1)
        rows = lance.dataset(str(path)).to_table(columns=["id", "v1", "v1__origin", "v1__side", "number"], limit=1)
        rows = rows.set_column(0, "id", [one["id"]]).set_column(4, "number", [one["number"]])
        lance.write_dataset(rows, str(path), mode="append")
    before = gallery.status().table_version
    assert gallery.upgrade("v2").transformed == APPENDED
    merge = 2
    assert gallery.status().table_version - before <= 3 + merge, "not a commit for each fragment"
    vectors = gallery.vectors([f"item-{number:06d}" for number in range(1000, 1000 + APPENDED)], "v2")
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors, np.broadcast_to(vectors[0], vectors.shape), rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_an_app_that_deletes_in_every_batch_does_not_send_the_hop_back_to_its_beginning(tmp_path):
    path = tmp_path / "gallery.lance"
    gallery = make(str(path), fragments=3, rows=50)
    items_before, batches = len(gallery), []

    def delete_one(progress):
        if progress.step == "hop":
            batches.append(progress.done)
            lance.dataset(str(path)).delete(f"id = 'item-{50 * (len(batches) % 3) + 7 * len(batches):06d}'")

    gallery.upgrade("v2", progress=delete_one)
    assert 3 <= len(batches) <= 6
    assert len(gallery) == items_before - len(batches)
    assert gallery.maintenance.verify().clean
    assert gallery.cutover("v2").missing == 0


@pytest.mark.full
@given(st.lists(st.integers(0, 3000), max_size=30))
def test_waves_hold_all_fragments_in_order_and_none_is_too_large(rows):
    fragments = [Fragment(number, count, (), frozenset()) for number, count in enumerate(rows)]
    waves = list(in_waves(fragments, 1024))
    assert [fragment for wave in waves for fragment in wave] == fragments
    assert all(len(wave) == 1 or sum(fragment.rows for fragment in wave) <= 1024 for wave in waves)


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_results_come_in_order_and_no_more_is_taken_than_is_worked_on(at_once):
    taken = []

    def items():
        for number in range(10):
            taken.append(number)
            yield number

    def work(number):
        time.sleep(0.02 if number % 2 else 0.0)
        return number**2

    for number, squared in ahead(work, items(), at_once):
        assert squared == number**2
        assert len(taken) <= number + 1 + at_once
    assert taken == list(range(10))


def test_an_error_comes_where_its_item_does():
    results = ahead(lambda number: 1 // (number - 2), range(5), 2)
    assert [next(results)[1] for _ in range(2)] == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(results)
