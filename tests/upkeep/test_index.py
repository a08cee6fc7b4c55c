"""A user creates, looks at, refreshes and drops the index of a version."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput, LeaseHeld, NotFound, UpgradeError
from compatstore.storage import indexes, recall
from compatstore.storage.index_status import compared_share
from compatstore.storage.store import Store
from compatstore.upgrade.indexing import hold_index
from compatstore.upkeep import optimize as upkeep
from lazily import Lazy

index = Lazy("lancedb.index")
lancedb = Lazy("lancedb")

ROWS, DIM = 1024, 8
SCHEMA = pa.schema([("key", pa.int64()), ("own", pa.list_(pa.float32(), DIM))])


@pytest.fixture(autouse=True)
def few_queries(monkeypatch):
    monkeypatch.setattr(recall, "QUERIES", 40)


@pytest.fixture
def gallery(tmp_path):
    return filled(cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=DIM, metric="l2")))


def filled(gallery, rows=ROWS):
    gallery.add({"id": [f"i{row}" for row in range(rows)], "vector": drawn(rows)})
    return gallery


def drawn(rows, seed=0, centre=0.0, scale=1.0):
    return (centre + scale * np.random.default_rng(seed).normal(size=(rows, DIM))).astype(np.float32)


def late(gallery, rows, prefix="late", **how):
    gallery.add({"id": [f"{prefix}{row}" for row in range(rows)], "vector": drawn(rows, seed=1, **how)})


def record(gallery, name="v1"):
    return gallery._catalog.recorded().record(name)


def test_a_version_without_an_index_says_so(gallery):
    status = gallery.maintenance.index().status()
    assert (status.version, status.kind, status.cells, status.bytes, status.deltas) == ("v1", "", 0, 0, 0)
    assert (status.indexed_rows, status.unindexed_rows, status.recall) == (0, ROWS, None)


def test_lance_is_asked_for_no_more_cells_than_it_builds(gallery, capfd):
    assert gallery.maintenance.index().create().cells == ROWS // 256
    assert "WARN" not in capfd.readouterr().err


def test_parts_that_do_not_divide_a_vector_are_refused_with_some_that_do(gallery):
    with pytest.raises(InvalidInput, match=r"divides 8, the values of a stored vector; found 3\. 4 does"):
        gallery.maintenance.index().create(num_sub_vectors=3)
    assert not gallery.maintenance.index().status().kind


def test_a_new_index_says_what_it_is_and_what_was_measured(gallery):
    status = gallery.maintenance.index("v1").create(kind="IVF_PQ", num_partitions=4)
    assert status == gallery.maintenance.index().status()
    assert (status.kind, status.metric, status.cells, status.sub_vectors, status.deltas) == ("IVF_PQ", "l2", 4, 1, 1)
    assert (status.indexed_rows, status.unindexed_rows, status.changed) == (ROWS, 0, 0.0)
    assert status.bytes > 0
    assert status.recall >= recall.GOAL
    assert status.recall_at[:2] == "20"
    assert status.settings == record(gallery).search
    assert 0 < status.compared <= 1


@pytest.mark.full
def test_a_refresh_takes_in_what_came_later(gallery):
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
    late(gallery, 30)
    gallery.delete([f"i{row}" for row in range(100)])
    assert gallery.maintenance.index().status().unindexed_rows == 30
    done = gallery.maintenance.index().refresh()
    assert (done.added, done.retrained) == (30, "")
    assert (done.status.indexed_rows, done.status.unindexed_rows) == (ROWS - 100 + 30, 0)
    again = gallery.maintenance.index().refresh()
    assert (again.added, again.status.deltas) == (0, done.status.deltas)


@pytest.mark.full
def test_a_distribution_that_has_moved_is_learned_again(gallery):
    """Vectors in a corner that no code was learned for: their neighbours are not told apart."""
    gallery.maintenance.index().create(kind="IVF_PQ", num_partitions=4, num_sub_vectors=4)
    late(gallery, 2 * ROWS, centre=30.0, scale=0.01)
    done = gallery.maintenance.index().refresh()
    assert done.retrained
    assert done.status.recall >= recall.GOAL
    assert (done.status.deltas, done.status.cells, done.status.sub_vectors) == (1, 4, 4)


@pytest.mark.full
def test_cells_that_have_become_crowded_are_learned_again(gallery):
    """With whole vectors nothing is lost, but a search reads the one cell in which all that is new lies."""
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=16)
    before = record(gallery).compared
    late(gallery, 2 * ROWS, centre=30.0)
    done = gallery.maintenance.index().refresh()
    assert "of the vectors" in done.retrained
    assert done.status.compared < recall.CROWDED * before


@pytest.mark.full
def test_what_did_not_move_is_not_trained_again(gallery):
    gallery.maintenance.index().create(kind="IVF_PQ", num_partitions=4, num_sub_vectors=4)
    late(gallery, ROWS)
    done = gallery.maintenance.index().refresh()
    assert done.retrained == ""
    assert done.status.recall >= recall.GOAL


def test_a_dropped_index_leaves_nothing_behind(gallery):
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
    assert gallery.maintenance.index("v1").drop().dropped == ("v1_idx",)
    assert record(gallery) == record(gallery).without_index()
    assert gallery.status().versions[0].recall is None
    assert gallery.maintenance.index().status().kind == ""
    assert "index" not in str(gallery.explain())
    version = gallery._catalog.store.snapshot().version
    assert gallery.maintenance.index("v1").drop().dropped == ()
    assert gallery._catalog.store.snapshot().version == version


def test_a_measurement_that_outlived_its_index_goes_with_a_drop(gallery):
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
    gallery._catalog.store.writer().drop_index("v1_idx")
    gallery.maintenance.index().drop()
    assert record(gallery).recall is None


def test_more_cells_than_vectors(gallery):
    status = gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=2 * ROWS)
    assert status.recall >= recall.GOAL
    assert gallery.search(drawn(ROWS)[5], k=1)["id"].to_pylist() == ["i5"]


def test_an_empty_gallery_has_nothing_to_index(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "empty.lance"), cs.EmbeddingVersion("v1", dim=DIM))
    assert gallery.maintenance.index().status().unindexed_rows == 0
    assert gallery.maintenance.index().drop().dropped == ()
    with pytest.raises(InvalidInput, match="found 0"):
        gallery.maintenance.index().create()
    with pytest.raises(InvalidInput, match=r"gallery\.maintenance\.index"):
        gallery.maintenance.index().refresh()


@pytest.mark.full
def test_an_index_of_which_all_rows_were_deleted(gallery):
    gallery.maintenance.index().create(kind="IVF_PQ", num_partitions=4)
    gallery.delete([f"i{row}" for row in range(ROWS)])
    assert gallery.maintenance.index().status().indexed_rows == 0
    assert gallery.maintenance.index().refresh().status.recall is None
    late(gallery, 3)
    assert gallery.search(drawn(1, seed=1)[0], k=1).num_rows == 1


@pytest.mark.parametrize("name", ["v2", "v9"])
def test_a_version_without_vectors_has_no_index(gallery, name):
    gallery.register(cs.EmbeddingVersion("v2", dim=DIM))
    for call in ("create", "status", "refresh", "drop"):
        with pytest.raises(NotFound, match="version"):
            getattr(gallery.maintenance.index(name), call)()


def test_items_without_a_vector_are_in_no_figure(tmp_path):
    rows = [{"key": row, "own": None if row % 4 == 0 else vector} for row, vector in enumerate(drawn(ROWS).tolist())]
    table = lancedb.connect(tmp_path).create_table("app", rows, schema=SCHEMA)
    gallery = cs.Gallery.adopt(table, cs.EmbeddingVersion("v1", dim=DIM, metric="l2"), vector="own", id="key")
    status = gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
    assert (status.indexed_rows, status.unindexed_rows) == (768, 0)
    table.add([{"key": 9000 + row, "own": None} for row in range(20)])
    assert gallery.maintenance.index().status().unindexed_rows == 0
    assert gallery.maintenance.index().refresh().status.recall >= recall.GOAL


def test_the_index_of_an_app_is_dropped_only_where_that_is_said(tmp_path):
    rows = [{"key": row, "own": vector} for row, vector in enumerate(drawn(ROWS).tolist())]
    table = lancedb.connect(tmp_path).create_table("app", rows, schema=SCHEMA)
    table.create_index("own", config=index.IvfPq(distance_type="l2", num_partitions=4, num_sub_vectors=4))
    gallery = cs.Gallery.adopt(table, cs.EmbeddingVersion("v1", dim=DIM, metric="l2"), vector="own", id="key")
    status = gallery.maintenance.index().status()
    assert (status.kind, status.cells, status.sub_vectors) == ("IVF_PQ", 4, 4)
    assert status.recall >= recall.GOAL
    with pytest.raises(UpgradeError, match="adopted=True"):
        gallery.maintenance.index().drop()
    table.checkout_latest()
    assert len(table.list_indices()) == 1
    assert gallery.maintenance.index().drop(adopted=True).dropped == ("own_idx",)
    table.checkout_latest()
    assert table.list_indices() == []


def test_rows_that_come_while_an_index_is_built_are_found(gallery, monkeypatch):
    """From another process, as far as the build can tell: through another handle, in the middle of it."""
    other, added = cs.Gallery.open(gallery._catalog.store.location.uri), []

    steps, writer = [], Store.writer

    def writer_with_rows_after_it(store):
        handle = writer(store)
        if steps[-1:] == ["index: build"] and not added:
            added.append(20)
            late(other, 20)
        return handle

    monkeypatch.setattr(Store, "writer", writer_with_rows_after_it)
    status = gallery.maintenance.index().create(
        kind="IVF_FLAT", num_partitions=4, progress=lambda at: steps.append(at.step)
    )
    assert added
    assert (status.indexed_rows, status.unindexed_rows) == (ROWS, 20)
    assert gallery.search(drawn(20, seed=1)[3], k=1)["id"].to_pylist() == ["late3"]


@pytest.mark.full
def test_a_build_that_is_stopped_can_be_run_again(gallery):
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
    with pytest.raises(cs.errors.Interrupted, match="at build"):
        gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=8, should_stop=lambda: True)
    assert gallery.maintenance.index().status().cells == 4
    assert gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=8).cells == 8


def test_a_report_may_read_the_gallery(gallery):
    seen = []
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4, progress=lambda at: seen.append(len(gallery)))
    assert set(seen) == {ROWS}


def test_of_two_who_build_one_is_told(gallery):
    other = cs.Gallery.open(gallery._catalog.store.location.uri)
    with hold_index(other._catalog, "v1", "build"), pytest.raises(LeaseHeld):
        gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)


def test_a_gallery_takes_many_new_vectors_in_by_itself(gallery, monkeypatch):
    monkeypatch.setattr(upkeep, "UNINDEXED_ROWS", 50)
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
    late(gallery, 30, "first")
    assert gallery.maintenance.index().status().unindexed_rows == 30
    with hold_index(gallery._catalog, "v1", "build"):
        late(gallery, 30, "second")
        assert gallery.maintenance.index().status().unindexed_rows == 60
    late(gallery, 1, "third")
    assert gallery.maintenance.index().status().unindexed_rows == 0


def test_late_indexes_are_found_without_reading_them(gallery):
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=4)
    late(gallery, 30)
    snapshot = gallery._catalog.store.snapshot()
    assert indexes.late_indexes(snapshot, 29) == [*indexes.late_indexes(snapshot, 30), "v1_idx"]


def test_the_share_that_is_compared_is_that_of_the_cells_where_vectors_lie():
    def parts(*sizes):
        return [{"partitions": [{"size": size} for size in of]} for of in sizes]

    one, two = cs.SearchSettings(nprobes=1), cs.SearchSettings(nprobes=2)
    assert compared_share(parts([50, 50]), one) == 0.5
    assert compared_share(parts([100, 0]), one) == 1.0
    assert compared_share(parts([50, 0], [0, 50]), one) == 0.5
    assert compared_share(parts([25, 25, 25, 25]), two) == 0.5
    assert compared_share(parts([50, 50]), cs.SearchSettings()) is None
    assert compared_share([], one) is None
