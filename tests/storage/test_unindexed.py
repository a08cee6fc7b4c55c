"""Rows that an index does not hold, compared in memory, are found as Lance finds them."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.storage.nearest import find_nearest
from compatstore.storage.recall import choose_settings
from compatstore.storage.unindexed import MOST_ROWS, Unindexed, distances_between

DIM, INDEXED, LATE = 8, 1_500, 40


def gallery(tmp_path, metric, late=LATE):
    """A gallery with an index, and rows in three fragments that came after it."""
    rng = np.random.default_rng(0)
    made = cs.Gallery.create(tmp_path / "g.lance", cs.EmbeddingVersion("v1", dim=DIM, metric=metric))
    vectors = rng.normal(size=(INDEXED + 3 * late, DIM)).astype(np.float32)
    made.add({"id": [f"a{n}" for n in range(INDEXED)], "vector": vectors[:INDEXED]})
    made.maintenance.index("v1").create(kind="IVF_FLAT", num_partitions=4)
    for part in range(3 if late else 0):
        rows = slice(INDEXED + part * late, INDEXED + (part + 1) * late)
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors[rows].reshape(-1)), DIM)
        ids = pa.array([f"late-{part}-{n}" for n in range(late)])
        origin = pa.array(["native"] * late)
        table = pa.table({"id": ids, "v1": column, "v1__origin": origin})
        lance.write_dataset(table, tmp_path / "g.lance", mode="append")  # an app's write, behind the gallery's back
    return cs.Gallery.open(tmp_path / "g.lance"), rng.normal(size=(5, DIM)).astype(np.float32)


def parts(opened):
    snapshot = opened._catalog.store.snapshot()
    return snapshot, opened._catalog.registry().columns("v1")


@pytest.mark.full
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_index_and_late_rows_together_are_lances_own_search(tmp_path, metric):
    opened, queries = gallery(tmp_path, metric)
    snapshot, columns = parts(opened)
    nearest = {"column": columns.vector, "k": 30, "metric": metric, "nprobes": 4}
    whole = find_nearest(snapshot, nearest, queries, ["_distance"], with_row_id=True)
    apart = Unindexed.of(snapshot, columns, metric, queries)
    assert len(apart.rows) == 3 * LATE
    held = find_nearest(snapshot, nearest, queries, ["_distance"], with_row_id=True, indexed_only=True)
    late = set(apart.rows.tolist())
    assert any(late & set(table["_rowid"].to_pylist()) for table in whole)
    for query, (found, expected) in enumerate(zip(held, whole, strict=True)):
        assert not late & set(found["_rowid"].to_pylist())
        made = apart.added_to(found, query, 30)
        assert made["_rowid"].to_pylist() == expected["_rowid"].to_pylist()
        np.testing.assert_allclose(made["_distance"].to_numpy(), expected["_distance"].to_numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_an_index_that_holds_all_rows_is_searched_as_it_is(tmp_path):
    opened, queries = gallery(tmp_path, "l2", late=0)
    assert Unindexed.of(*parts(opened), "l2", queries) is None


@pytest.mark.full
def test_more_late_rows_than_are_held_in_memory_are_left_to_lance(tmp_path):
    opened, queries = gallery(tmp_path, "l2", late=MOST_ROWS // 3 + 1)
    assert Unindexed.of(*parts(opened), "l2", queries) is None


@pytest.mark.full
def test_the_recall_of_a_flat_index_with_late_rows_is_whole(tmp_path):
    opened, _ = gallery(tmp_path, "l2")
    snapshot, columns = parts(opened)
    measured = choose_settings(snapshot, columns, "l2", cells=4, goal=1.0)
    assert measured.recall == 1.0


def test_a_late_vector_without_a_direction_comes_last():
    distances = distances_between(np.array([[1, 0]], np.float32), np.array([[0, 0], [3, 0]], np.float32), "cosine")
    found = pa.table({"_rowid": pa.array([1], pa.uint64()), "_distance": pa.array([0.5], pa.float32())})
    assert Unindexed(np.array([7, 8]), distances).added_to(found, 0, 3)["_rowid"].to_pylist() == [8, 1, 7]
