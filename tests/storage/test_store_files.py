"""Files beside the table, staged natives, fragments and locations."""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.storage.files import FOLDER, Blobs
from compatstore.storage.fragments import list_fragments, read_physical, write_columns
from compatstore.storage.lease_table import last_number
from compatstore.storage.ledger import Ledger
from compatstore.storage.location import Location, locate
from compatstore.storage.records import Spent
from compatstore.storage.registry import read
from compatstore.storage.staging import NativeBatch, Staging
from compatstore.storage.store import Fence, Store


@pytest.fixture
def gallery(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), cs.EmbeddingVersion("v1", dim=2))
    gallery.add({"id": list("abcde"), "vector": np.arange(10, dtype=np.float32).reshape(5, 2)})
    return gallery


@pytest.fixture
def store(gallery, tmp_path):
    return Store.open(locate(str(tmp_path / "gallery.lance")))


def test_blobs_are_named_by_content_and_verified(store):
    blobs = Blobs(store.location)
    digest = blobs.put(b"weights")
    assert blobs.put(b"weights") == digest
    assert blobs.get(digest) == b"weights"
    path = Path(store.location.child(FOLDER, digest))
    path.write_bytes(b"weight")
    with pytest.raises(cs.errors.CorruptArtifact, match="was changed"):
        blobs.get(digest)
    path.unlink()
    with pytest.raises(cs.errors.CorruptArtifact, match=r"gallery\.artifacts\.link\(artifact\)"):
        blobs.get(digest)
    assert [name for name in os.listdir(path.parent) if name.startswith("tmp")] == []


def test_lances_clean_up_leaves_the_files_beside_the_table(store):
    digest = Blobs(store.location).put(b"weights")
    snapshot = lance.dataset(store.location.uri)
    snapshot.cleanup_old_versions(
        older_than=datetime.timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    assert Blobs(store.location).get(digest) == b"weights"


def test_the_version_that_was_active_is_pinned_against_clean_up(store):
    tagged = lance.dataset(store.location.uri).tags.list()["compatstore-v1"]["version"]
    lance.dataset(store.location.uri).cleanup_old_versions(
        older_than=datetime.timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    assert lance.dataset(store.location.uri, version=tagged).count_rows() == 0


def test_staged_batches_are_durable_and_go_away(store):
    staging = Staging(store.location, "v2", 3, pa.string())
    assert len(staging) == len(staging.read().ids) == 0
    staging.store(NativeBatch.of(["a"], np.ones((1, 3), np.float32), np.array([7], np.uint64)))
    staging.store(NativeBatch.of(["b"], np.zeros((1, 3), np.float32), np.array([2**64 - 1], np.uint64)))
    again = Staging(store.location, "v2", 3, pa.string())
    staged = again.read()
    assert staged.ids.to_pylist() == ["a", "b"]
    assert staged.input_hash.tolist() == [7, 2**64 - 1]
    assert staged.read(np.array([1, 0]))[0].tolist() == [[0, 0, 0], [1, 1, 1]]
    staging.clear()
    assert len(staging) == 0
    staging.clear()


@pytest.mark.parametrize("left", [[], ["latest_version_hint.json"], [".tmp-manifest"]])
def test_a_staging_whose_removal_was_killed_is_empty_and_can_be_used_again(store, left):
    staging = Staging(store.location, "v2", 3, pa.string())
    staging.store(NativeBatch.of(["a"], np.ones((1, 3), np.float32), np.array([7], np.uint64)))
    versions = Path(store.location.child(FOLDER, "staged-v2-0.lance", "_versions"))
    shutil.rmtree(versions)
    for name in left:
        versions.mkdir(exist_ok=True)
        (versions / name).write_text("{}")
    assert len(staging) == 0
    staging.store(NativeBatch.of(["b"], np.zeros((1, 3), np.float32), np.array([8], np.uint64)))
    assert staging.read().ids.to_pylist() == ["b"]
    assert staging.read().read(np.array([0]))[0].tolist() == [[0, 0, 0]]


class LostError(Exception):
    pass


def lost():
    raise LostError


def test_each_lease_stages_in_a_table_of_its_own(store):
    def staging(number, require=lambda: None):
        fence = None if number is None else Fence("v2", number, require)
        return Staging(store.location, "v2", 2, pa.string(), 1, fence)

    def stage(into, item, **side):
        into.store(NativeBatch.of([item], np.full((1, 2), len(item), np.float32), np.array([1], np.uint64), **side))

    stage(staging(8), "a")
    stage(staging(9), "bb")
    stage(staging(10), "ccc", side=np.ones((1, 1), np.float32))
    assert [len(staging(number)) for number in (None, 9, 10)] == [3, 2, 3]
    staged = staging(10).read()
    assert staged.ids.to_pylist() == ["a", "bb", "ccc"]
    assert staged.read(np.array([2, 0, 1]))[0].tolist() == [[3, 3], [1, 1], [2, 2]]
    np.testing.assert_array_equal(staged.read(np.array([2, 0]))[1], [[1], [np.nan]])
    for late in (lambda: stage(staging(9, lost), "late"), staging(9, lost).clear):
        with pytest.raises(LostError):
            late()
    assert staging(None).read().ids.to_pylist() == ["a", "bb", "ccc"]
    staging(9).clear()
    assert staging(None).read().ids.to_pylist() == ["ccc"], "a predecessor takes nothing from its successor"
    assert last_number(store.location, "v2") == 10


def test_the_ledger_of_the_latest_lease_counts(store):
    def ledger(number, require=lambda: None):
        fence = None if number is None else Fence("v2", number, require)
        return Ledger(store.location, "v2", pa.string(), "today", fence)

    def spend(number, rows, **how):
        ledger(number, **how).save(Spent(rows=rows), ledger(number).rows([], np.zeros(0, np.uint64), []))

    spend(8, 100)
    spend(9, 200)
    assert ledger(10).load()[0].rows == 200, "the next lease begins with what the one before it spent"
    spend(10, 300)
    spend(9, 900)  # its manager woke up
    assert [ledger(number).load()[0].rows for number in (None, 9, 10)] == [300, 900, 300]
    with pytest.raises(LostError):
        spend(9, 900, require=lost)
    ledger(9).clear()
    assert ledger(None).load()[0].rows == 300
    ledger(10).clear()
    assert ledger(None).load()[0].rows == 0


def test_fragments_are_read_with_deleted_rows_in_equal_batches(gallery, store):
    gallery.delete(["b"])
    snapshot = store.snapshot()
    (fragment,) = list_fragments(snapshot)
    batches = list(read_physical(snapshot, fragment, ["id", "v1"], batch_rows=2))
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    assert [batch["_rowid"].null_count for batch in batches] == [1, 0, 0]


def test_a_file_of_the_wrong_length_is_refused_before_it_breaks_the_column(gallery, store):
    columns = read(store.snapshot(), "here").columns("v1")
    snapshot = store.snapshot()
    (fragment,) = list_fragments(snapshot)
    short = [columns.encode(columns.decode(batch)) for batch in read_physical(snapshot, fragment, columns.names, 2)][:2]
    with pytest.raises(cs.errors.StorageError, match="expected 5 rows; found 4"):
        write_columns(store, snapshot, fragment, columns, short)
    assert store.snapshot().version == snapshot.version
    assert gallery.get(["e"])["v1"].to_pylist() == [[8, 9]]


def test_locations():
    assert locate("/data/photos.lance").uri == "/data/photos.lance"
    assert locate("/data/db#photos").uri == "/data/db/photos.lance"
    assert locate("s3://bucket/db/#photos").uri == "s3://bucket/db/photos.lance"
    assert locate("file:///data/photos.lance").uri == "/data/photos.lance"
    assert not locate("gs://bucket/photos.lance").is_local
    assert locate("s3://bucket/photos.lance").name == "s3://bucket/photos.lance"
    assert locate("db#photos").name == "db#photos"
    assert locate(Location("/x")) == Location("/x")
    assert Path(locate("relative.lance").uri).is_absolute()
    for wrong in ("", None, 7):
        with pytest.raises(cs.errors.InvalidInput, match="a path, a URI"):
            locate(wrong)


def test_a_table_that_vanishes_is_reported_as_such(gallery, store):
    shutil.rmtree(store.location.uri)
    with pytest.raises(cs.errors.StorageError, match="a table that can be read"):
        gallery.status()
    with pytest.raises(cs.errors.NotFound, match="open a gallery"):
        cs.Gallery.open(store.location.uri)


def test_staged_rows_that_another_process_moves_meanwhile_are_none(store, monkeypatch):
    """The rival removes a table between the look at the folder and the opening, as a fold or an abort does."""
    staging, rival = (Staging(store.location, "v2", 3, pa.string()) for _ in range(2))
    staging.store(NativeBatch.of(["a"], np.ones((1, 3), np.float32), np.ones(1, np.uint64)))
    real = lance.dataset

    def after_the_rival(address, *args, **options):
        monkeypatch.undo()
        rival.clear()
        return real(address, *args, **options)

    for look in (len, lambda staging: len(staging.read().ids)):
        monkeypatch.setattr(lance, "dataset", after_the_rival)
        assert look(staging) == 0
        staging.store(NativeBatch.of(["a"], np.ones((1, 3), np.float32), np.ones(1, np.uint64)))
        assert look(staging) == 1
