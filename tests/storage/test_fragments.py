"""Fragments are read one by one: no more rows than those of the fragments that were asked for."""

import lance
import numpy as np
import pyarrow as pa
import pytest

from compatstore.storage.fragments import list_fragments, read_physical
from compatstore.storage.moves import read_fragments


@pytest.fixture
def snapshot(tmp_path):
    """Three fragments of four rows, two of them deleted."""
    path = str(tmp_path / "t.lance")
    for start in (0, 4, 8):
        lance.write_dataset(pa.table({"n": np.arange(start, start + 4)}), path, mode="append")
    lance.dataset(path).delete("n = 1 OR n = 6")
    return lance.dataset(path)


@pytest.mark.parametrize(
    ("numbers", "rows"), [([0], [0, 2, 3]), ([1], [4, 5, 7]), ([0, 2], [0, 2, 3, 8, 9, 10, 11]), ([], [])]
)
def test_live_rows_are_those_of_the_named_fragments(snapshot, numbers, rows):
    found = list(read_fragments(snapshot, numbers, ["n"]))
    assert sorted(n for batch in found for n in batch["n"].to_pylist()) == rows
    assert {address >> 32 for batch in found for address in batch["_rowaddr"].to_pylist()} == set(numbers)


def test_physical_rows_are_all_of_one_fragment_and_deleted_ones_have_no_id(snapshot):
    batch = pa.Table.from_batches(list(read_physical(snapshot, list_fragments(snapshot)[1], ["n"])))
    assert batch["n"].to_pylist() == [4, 5, 6, 7]
    assert [row is None for row in batch["_rowid"].to_pylist()] == [False, False, True, False]
