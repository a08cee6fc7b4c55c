from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
from hypothesis import given

from compatstore.digests import hash_rows
from compatstore.storage.columns import InputHashes, hash_values


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
    now = InputHashes.of(rows, valid, pa.array(["a", "a", "b", "a"]))
    assert len(set(now.transformed.tolist())) == 4
    assert len(set(now.native.tolist())) == 2


def test_a_native_vector_depends_on_the_source_alone_where_there_is_one():
    rows = np.array([[1, 2], [3, 4], [1, 2], [3, 4]], np.float32)
    now = InputHashes.of(rows, np.ones(4, bool), pa.array(["a", "a", None, None]))
    assert now.native[0] == now.native[1]
    assert now.native[2] != now.native[3]
    native = np.array([True, False, True, False])
    assert now.fit(now.native[[1, 1, 3, 3]], native).tolist() == [True, False, False, True]
    assert now.fit(now.transformed, native).all()


def test_ids_of_all_types_have_digests():
    assert len(set(hash_values(pa.array(["a", "b", None])).tolist())) == 3
    assert len(set(hash_values(pa.array([-1, 0, 1])).tolist())) == 3
    assert hash_values(pa.chunked_array([["a"], ["b"]])).tolist() == hash_values(pa.array(["a", "b"])).tolist()
