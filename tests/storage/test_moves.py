"""Rows that move: whole, in one commit, and only as they stand in the table."""

from __future__ import annotations

import datetime

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.commit import CommitConflictError

from compatstore.storage.ids import read_rows
from compatstore.storage.indexes import update_index
from compatstore.storage.location import locate
from compatstore.storage.moves import commit_move, unmovable, write_rows
from compatstore.storage.store import PRIMARY_KEY, Store

KEY = pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY)
PLAIN = pa.schema([KEY, pa.field("views", pa.int64())])


def plain(numbers, views=0):
    return pa.table([pa.array(numbers, pa.int64()), pa.array([views] * len(numbers), pa.int64())], schema=PLAIN)


@pytest.fixture
def store(tmp_path):
    """Two fragments of ten rows, ids 0 to 19, views 0."""
    path = str(tmp_path / "table.lance")
    for start in (0, 10):
        lance.write_dataset(plain(range(start, start + 10)), path, mode="append")
    return Store.open(locate(path))


def prepared(store, ids, views=7):
    snapshot = store.snapshot()
    rows = read_rows(snapshot, "id", ids)
    changed = rows.set_column(1, PLAIN.field("views"), pa.array([views] * rows.num_rows, pa.int64()))
    return write_rows(store, snapshot, changed)


def views(store):
    table = store.snapshot().to_table()
    assert table.num_rows == len(set(table["id"].to_pylist())), "no row is doubled"
    return dict(zip(table["id"].to_pylist(), table["views"].to_pylist(), strict=True))


def test_moved_rows_take_the_place_of_the_old_ones(store):
    move = prepared(store, [3, 12, 13])
    assert views(store) == dict.fromkeys(range(20), 0), "nothing is seen before the commit"
    assert commit_move(store, store.snapshot(), move)
    assert move.rows == 3
    assert views(store) == {number: 7 if number in (3, 12, 13) else 0 for number in range(20)}


def test_a_fragment_whose_rows_all_move_goes_away(store):
    assert commit_move(store, store.snapshot(), prepared(store, range(10)))
    assert len(store.snapshot().get_fragments()) == 2
    assert views(store) == {number: 7 if number < 10 else 0 for number in range(20)}


OTHERS = {
    "deletes another row": (lambda table: table.delete("id = 5"), True),
    "updates another row": (lambda table: table.update({"views": "1"}, where="id = 5"), True),
    "appends": (lambda table: table.insert(plain([100])), True),
    "edits the configuration": (lambda table: table.update_config({"key": "value"}), True),
    "adds an empty column": (lambda table: table.add_columns([pa.field("more", pa.int64())]), True),
    "indexes": (lambda table: table.create_scalar_index("id", "BTREE"), True),
    "deletes the row": (lambda table: table.delete("id = 3"), False),
    "updates the row": (lambda table: table.update({"views": "1"}, where="id = 3"), False),
    "merges the row": (
        lambda table: table.merge_insert("id").when_matched_update_all().execute(plain([3], views=1)),
        False,
    ),
    "moves the row": (lambda table: None, False),
    "compacts": (lambda table: table.optimize.compact_files(), False),
    "rewrites a column": (lambda table: table.add_columns({"more": "views + 1"}), False),
}


@pytest.mark.parametrize(("work", "stands"), OTHERS.values(), ids=OTHERS)
def test_what_others_do_meanwhile_is_kept(store, work, stands):
    """A lost race is told; from the next version on, the move counts only if its own rows are as they were."""
    move, before = prepared(store, [3, 12]), store.snapshot()
    work(lance.dataset(store.location.uri))
    if work is OTHERS["moves the row"][0]:
        assert commit_move(store, store.snapshot(), prepared(store, [3], views=1))
    expected = views(store)
    try:
        first = commit_move(store, before, move)
    except CommitConflictError:
        assert views(store) == expected, "a lost race changes nothing"
        first = commit_move(store, store.snapshot(), move)
    assert first == stands
    if stands:
        expected |= {3: 7, 12: 7}
    assert views(store) == expected


def test_rows_keep_all_their_columns_whatever_their_types(tmp_path):
    types = {
        "text": pa.array(["a", None, "ü"]),
        "large": pa.array([b"x", b"", None], pa.large_binary()),
        "when": pa.array([datetime.datetime(2024, 1, 1), None, datetime.datetime(1950, 1, 1)], pa.timestamp("us")),
        "list": pa.array([["a"], [], None]),
        "struct": pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": []}]),
        "flag": pa.array([True, None, False]),
        "half": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float16)), 2),
        "decimal": pa.array([1, 2, None], pa.decimal128(10, 2)),
        "enum": pa.array(["a", "b", None]).dictionary_encode(),
        "nothing": pa.nulls(3, pa.int32()),
    }
    table = pa.table({"id": pa.array([1, 2, 3], pa.int64()), **types})
    lance.write_dataset(table, str(tmp_path / "t.lance"))
    store = Store.open(locate(str(tmp_path / "t.lance")))
    before = store.snapshot().to_table()
    snapshot = store.snapshot()
    assert commit_move(store, snapshot, write_rows(store, snapshot, read_rows(snapshot, "id", [3, 1])))
    after = store.snapshot().to_table()
    assert after.sort_by("id").to_pylist() == before.to_pylist()
    assert after.schema.equals(before.schema, check_metadata=True)


def test_rows_with_stable_ids_or_blobs_cannot_move(tmp_path, store):
    assert unmovable(store.snapshot()) is None
    stable = lance.write_dataset(plain([1]), str(tmp_path / "stable.lance"), enable_stable_row_ids=True)
    assert "stable ids" in unmovable(stable)
    blob = pa.schema([KEY, pa.field("image", pa.large_binary(), metadata={"lance-encoding:blob": "true"})])
    rows = pa.table([pa.array([1], pa.int64()), pa.array([b"x"], pa.large_binary())], schema=blob)
    assert "image holds blobs" in unmovable(lance.write_dataset(rows, str(tmp_path / "blobs.lance")))


def test_moved_rows_come_back_into_the_indexes(store):
    store.writer().create_scalar_index("id", "BTREE")
    assert commit_move(store, store.snapshot(), prepared(store, [3, 12]))

    def unindexed():
        return store.snapshot().stats.index_stats("id_idx")["num_unindexed_rows"]

    assert unindexed() == 2
    update_index(store, more_than=2)
    assert unindexed() == 2
    update_index(store)
    assert unindexed() == 0
    version = store.snapshot().version
    update_index(store)
    assert store.snapshot().version == version, "an index that has all rows is left alone"
    assert store.snapshot().to_table(columns=["views"], filter="id = 12")["views"].to_pylist() == [7]
