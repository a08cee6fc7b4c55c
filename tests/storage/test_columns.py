from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

import compatstore as cs
from compatstore.storage.columns import PADDING, VersionColumns, VersionValues, clear_of
from compatstore.storage.vector_form import to_matrix, to_vectors


@pytest.mark.full
@given(
    n=st.integers(0, 9),
    dim=st.integers(1, 7),
    avoid=st.sets(st.integers(1, 40)),
    side=st.sampled_from([(None, "float32"), (1, "float32"), (4, "float32"), (8, "bits"), (24, "bits")]),
    seed=st.integers(0, 99),
)
def test_values_come_back_as_they_went_in(n, dim, avoid, side, seed):
    rng, (side_dim, side_dtype) = np.random.default_rng(seed), side
    version = cs.EmbeddingVersion("v", dim=dim, side_dim=side_dim, side_dtype=side_dtype)
    columns = VersionColumns.of(version, avoid=avoid)
    values = VersionValues.absent(n, dim)
    values.valid = rng.random(n) < 0.7
    values.vectors = rng.normal(size=(n, dim)).astype(np.float32)
    values.origin[values.valid] = "native"
    values.uncertainty = np.where(rng.random(n) < 0.5, np.nan, rng.random(n)).astype(np.float32)
    values.input_hash = rng.integers(1, 2**63, n, dtype=np.uint64)
    if side_dim is not None:
        values.side = rng.normal(size=(n, side_dim)).astype(np.float32)
        values.side = np.sign(values.side) if side_dtype == "bits" else values.side
        values.side_valid = rng.random(n) < 0.5

    table = pa.table(columns.encode(values), schema=pa.schema(columns.fields))
    back = columns.decode(table)

    assert table.schema.names == columns.names
    lists = [field.type.list_size for field in table.schema if pa.types.is_fixed_size_list(field.type)]
    assert not avoid & set(lists)
    assert lists[0] == clear_of(dim, avoid)
    assert (lists[0] - dim) % PADDING == 0
    np.testing.assert_array_equal(back.valid, values.valid)
    np.testing.assert_array_equal(back.vectors[back.valid], values.vectors[values.valid])
    assert back.origin[back.valid].tolist() == ["native"] * int(values.valid.sum())
    np.testing.assert_array_equal(back.uncertainty[back.valid], values.uncertainty[values.valid])
    np.testing.assert_array_equal(back.input_hash[back.valid], values.input_hash[values.valid])
    assert table["v__origin"].null_count == table["v__input_hash"].null_count == n - values.valid.sum()
    if side_dim is not None:
        np.testing.assert_array_equal(back.side_valid, values.side_valid)
        np.testing.assert_array_equal(back.side[back.side_valid], values.side[values.side_valid])


def test_a_slice_is_read_from_where_it_starts():
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    array = to_vectors(matrix, 5, "float32", np.array([True, False, True, True]))
    read, valid = to_matrix(array.slice(1, 2), 3)
    assert valid.tolist() == [False, True]
    np.testing.assert_array_equal(read, [[0, 0, 0], [6, 7, 8]])


def test_a_slice_of_codes_is_read_from_where_it_starts():
    codes = pa.array([b"\x00\xff", None, b"\x80\x01", b"\xff\xff"], pa.binary(2))
    read, valid = to_matrix(pa.chunked_array([codes.slice(1, 1), codes.slice(2, 1)]), 16)
    assert valid.tolist() == [False, True]
    np.testing.assert_array_equal(read[1], [1] + [-1] * 14 + [1])
    np.testing.assert_array_equal(read[0], 0)


def test_float16_vectors_are_read_as_float32():
    array = to_vectors(np.array([[0.5, 2.0]], np.float32), 2, "float16")
    assert array.type == pa.list_(pa.float16(), 2)
    assert to_matrix(array, 2)[0].dtype == np.float32


def test_put_does_not_write_into_what_was_read():
    columns = VersionColumns.of(cs.EmbeddingVersion("v", dim=2))
    table = pa.table(columns.encode(_values(3)), schema=pa.schema(columns.fields))
    values = columns.decode(table)
    values.put(np.array([1]), _values(1))
    values.clear(np.array([True, False, False]))
    np.testing.assert_array_equal(columns.decode(table).valid, [True, True, True])
    assert values.valid.tolist() == [False, True, True]


def _values(n):
    values = VersionValues.absent(n, 2)
    values.valid[:] = True
    values.origin[:] = "native"
    return values


@pytest.mark.parametrize("name", ["", "1v", "a__b", "a b", "v;", "_v", "v_"])
def test_a_name_that_cannot_be_a_column_is_refused(name):
    with pytest.raises(cs.errors.InvalidInput, match="letters, digits"):
        cs.EmbeddingVersion(name, dim=2)
