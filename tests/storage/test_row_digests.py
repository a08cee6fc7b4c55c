from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given

from compatstore.digests import hash_rows
from compatstore.storage.row_digests import hash_values, input_hashes


@given(st.integers(1, 40), st.integers(0, 39), st.integers(0, 31), st.integers(0, 2**32 - 1))
def test_a_change_of_any_single_bit_is_seen(dim, position, bit, seed):
    row = np.random.default_rng(seed).normal(size=(1, dim)).astype(np.float32)
    changed = row.copy()
    changed.view(np.uint32)[0, position % dim] ^= np.uint32(1 << bit)
    assert hash_rows(row) != hash_rows(changed)


def test_no_two_of_many_rows_collide_and_the_batch_does_not_matter():
    rows = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)
    digests = hash_rows(rows)
    assert len(np.unique(digests)) == len(rows)
    np.testing.assert_array_equal(hash_rows(rows[123:125]), digests[123:125])


def test_swapped_values_and_swapped_sources_are_told_apart():
    rows = np.array([[1, 2], [2, 1], [1, 2], [1, 2]], np.float32)
    valid = np.array([True, True, True, False])
    input_hash = input_hashes(rows, valid, pa.array(["a", "a", "b", "a"]))
    assert len(set(input_hash.tolist())) == 4


def test_ids_of_all_types_have_digests():
    assert len(set(hash_values(pa.array(["a", "b", None])).tolist())) == 3
    assert len(set(hash_values(pa.array([-1, 0, 1])).tolist())) == 3
    assert hash_values(pa.chunked_array([["a"], ["b"]])).tolist() == hash_values(pa.array(["a", "b"])).tolist()
