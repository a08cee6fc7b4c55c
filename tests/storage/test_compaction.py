"""Fragments are merged when it pays, and what Lance's indexes hold stays found."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import StorageError
from compatstore.storage import compaction
from compatstore.storage.compaction import FEWEST, LARGEST_ROWS, SMALL_ROWS, Group, Piece, groups, merge
from compatstore.storage.indexes import deltas_to_merge
from compatstore.storage.location import locate
from compatstore.storage.store import Conflict, Store
from properties import examples


def group(rows, indexed_rows=0):
    return Group(tuple(Piece(number, size) for number, size in enumerate(rows)), indexed_rows)


@examples(50)
@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=400))
def test_fragments_stay_few_and_the_work_near_n_log_n(batches):
    rows, rewritten = [], 0
    for batch in batches:
        rows.append(batch)
        merged = [piece.rows for piece in group(rows).worth_merging()]
        for size in merged:
            rows.remove(size)
        rewritten += sum(merged)
        rows += [sum(merged)] if merged else []
    total = sum(batches)
    assert len(rows) <= FEWEST + np.log2(total + 1) + total / (LARGEST_ROWS / 4)
    assert rewritten <= total * (np.log2(total + 1) + 1) + SMALL_ROWS * len(batches)


@examples(50)
@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=300))
def test_deltas_of_an_index_stay_few(batches):
    rows, rewritten = [], 0
    for new in batches:
        merged = deltas_to_merge(rows, new)
        taken = rows[len(rows) - merged :]
        rewritten += sum(taken) + new
        rows = [*rows[: len(rows) - merged], sum(taken) + new]
    total = sum(batches)
    assert len(rows) <= np.log2(total) + 2 + total / 1_000_000
    assert rewritten <= total * (np.log2(total) + 2)


def test_what_a_large_index_holds_is_not_worth_merging():
    assert len(group([1] * 10).worth_merging()) == 10
    assert len(group([1] * 10, indexed_rows=40).worth_merging()) == 10
    assert group([1] * 10, indexed_rows=41).worth_merging() == ()


def test_what_is_rewritten_at_once_is_never_larger_than_a_full_fragment():
    full, small = 1_048_576, 600_000
    assert list(group([full, full]).to_rewrite()) == []
    assert [len(part) for part in group([small, small, 100, full, 100]).to_rewrite()] == [3]
    wasteful = Group((Piece(0, full, deleted=full), Piece(1, full), Piece(2, full, dropped=True)), 0)
    assert [[piece.id for piece in part] for part in wasteful.to_rewrite()] == [[0], [2]]


@pytest.mark.full
def test_a_merge_leaves_deleted_rows_out_and_indexes_complete(gallery, vectors, tmp_path):
    path = str(tmp_path / "gallery.lance")
    more = vectors(400, seed=1)
    gallery.add({"id": [f"m{n}" for n in range(400)], "vector": more})
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=1)
    gallery.delete(["a", "m3"])
    store = Store.open(locate(path))
    table = store.writer()
    (found,) = groups(table)
    assert found.indexed_rows > 0
    before = table.to_table().sort_by("id")
    assert merge(store, table, found.pieces) == 1
    after = lance.dataset(path)
    assert after.to_table().sort_by("id") == before
    (fragment,) = after.get_fragments()
    assert fragment.metadata.physical_rows == 408
    assert after.stats.index_stats("v1_idx")["num_unindexed_rows"] == 0
    assert gallery.search(more[7], k=1)["id"].to_pylist() == ["m7"]


def test_a_file_that_was_cut_short_is_not_committed(gallery, vectors, tmp_path, monkeypatch):
    for n in range(2):
        gallery.add({"id": [f"m{n}"], "vector": vectors(1, seed=n)})
    store = Store.open(locate(str(tmp_path / "gallery.lance")))
    seen = []

    def cut(location, path):
        seen.append(path)
        raise StorageError("write", expected="all", found="a part")

    monkeypatch.setattr(compaction, "require_whole", cut)
    table = store.writer()
    version = table.version
    with pytest.raises(StorageError):
        merge(store, table, groups(table)[0].pieces)
    assert seen
    assert all(path.startswith("data/") for path in seen)
    assert len(lance.dataset(store.location.uri).get_fragments()) == 3
    assert lance.dataset(store.location.uri).version <= version + 1, "Lance reserves the number of a fragment"


def test_the_data_of_a_dropped_column_goes(tmp_path):
    table = pa.table({"n": range(1000), "kept": np.arange(1000.0), "dropped": np.random.default_rng(0).random(1000)})
    nested = table.append_column("s", pa.array([{"x": n, "y": [n]} for n in range(1000)]))
    lance.write_dataset(nested, str(tmp_path / "t.lance"))
    store = Store.open(locate(str(tmp_path / "t.lance")))
    assert [piece.dropped for piece in groups(store.writer())[0].pieces] == [False]
    store.drop_columns(["dropped"])
    writer = store.writer()
    writer.delete("n = 3")
    before = size(writer)
    (part,) = groups(writer)[0].to_rewrite()
    merge(store, writer, part)
    after = lance.dataset(store.location.uri)
    assert size(after) < before - 7_000
    assert after.to_table() == nested.drop_columns(["dropped"]).filter(pc.field("n") != 3)
    assert [piece.dropped for piece in groups(after)[0].pieces] == [False]


def size(table):
    return sum(file.file_size_bytes for fragment in table.get_fragments() for file in fragment.metadata.files)


def test_fragments_that_are_no_neighbours_are_merged(gallery, vectors, tmp_path):
    for n in range(2):
        gallery.add({"id": [f"m{n}"], "vector": vectors(1, seed=n)})
    store = Store.open(locate(str(tmp_path / "gallery.lance")))
    table = store.writer()
    pieces = groups(table)[0].pieces
    before = table.to_table().sort_by("id")
    assert merge(store, table, [pieces[2], pieces[0]]) == 1
    after = lance.dataset(store.location.uri)
    assert after.to_table().sort_by("id") == before
    assert gallery.vectors(["m0", "m1"]).tolist() == [vectors(1, seed=0)[0].tolist(), vectors(1, seed=1)[0].tolist()]


def test_fragments_that_another_writer_merged_meanwhile_are_a_lost_race(gallery, vectors, tmp_path):
    for n in range(3):
        gallery.add({"id": [f"m{n}"], "vector": vectors(1, seed=n)})
    store = Store.open(locate(str(tmp_path / "gallery.lance")))
    table = store.writer()
    pieces = groups(table)[0].pieces
    merge(store, store.writer(), pieces[:2])
    table.delete("id = 'm2'")  # a commit of its own takes the other's along
    before = lance.dataset(store.location.uri)
    with pytest.raises(Conflict, match="no longer there"):
        merge(store, table, pieces[:2])
    after = lance.dataset(store.location.uri)
    assert after.version == before.version
    assert after.to_table() == before.to_table()
