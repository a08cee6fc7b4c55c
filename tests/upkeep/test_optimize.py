"""All upkeep at once: what goes, what stays, and beside whom it works."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import lance
import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import LeaseHeld
from compatstore.storage.files import Blobs
from compatstore.storage.staging import NativeBatch, Staging
from compatstore.upgrade.cutover import _pin
from compatstore.upgrade.leases.holding import hold_lease
from lazily import Lazy

lancedb = Lazy("lancedb")

GRACE = 0.05


@pytest.fixture
def worn(upgradable, tmp_path, vectors):
    """A gallery that has been through much: fragments, parts of indexes, deleted rows, an upgrade, and its path."""
    with hold_lease(upgradable._catalog, "v9", "upgrade"):  # keeps it from looking after itself
        for n in range(12):
            upgradable.add({"id": [f"m{n}-{i}" for i in range(60)], "vector": vectors(60, seed=n)})
            if n == 5:
                lance.dataset(str(tmp_path / "gallery.lance")).create_index(
                    "v1", "IVF_FLAT", metric="l2", num_partitions=2
                )
            if n > 5:
                lance.dataset(str(tmp_path / "gallery.lance")).optimize.optimize_indices(num_indices_to_merge=0)
        upgradable.delete([f"m2-{i}" for i in range(20)])
    return upgradable, tmp_path / "gallery.lance"


def old(path):
    """Make a file look as if nobody had touched it for a day."""
    before = time.time() - 86_400
    os.utime(path, (before, before))


@pytest.mark.full
def test_fragments_indexes_and_versions_become_one_and_the_rows_stay(worn):
    gallery, path = worn
    before = lance.dataset(str(path)).to_table().sort_by("id")
    done = gallery.maintenance.optimize(grace=GRACE)
    table = lance.dataset(str(path))
    assert table.to_table().sort_by("id") == before
    assert (done.before.fragments, done.after.fragments) == (13, 1)
    assert done.before.index_parts > done.after.index_parts == len(table.describe_indices()) == 2
    assert {stats["num_unindexed_rows"] for stats in map(table.stats.index_stats, ("id_idx", "v1_idx"))} == {0}
    assert done.after.versions < 5 < done.before.versions
    assert done.after.files < done.before.files
    assert done.after.bytes < done.before.bytes
    assert done.tags == ("compatstore-v1",)
    assert table.checkout_version("compatstore-v1").count_rows() == 0
    query = gallery.vectors(["m7-3"])[0]
    assert gallery.search(query, k=1)["id"].to_pylist() == ["m7-3"]
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_a_second_time_there_is_nothing_to_do(worn):
    gallery, path = worn
    gallery.maintenance.optimize(grace=GRACE)
    version = lance.dataset(str(path)).version
    again = gallery.maintenance.optimize(grace=GRACE)
    assert lance.dataset(str(path)).version == version
    assert again.before.fragments == again.after.fragments == 1
    assert again.dropped == again.leftovers == ()


@pytest.mark.full
def test_a_dry_run_says_what_would_go_and_touches_nothing(worn, files):
    gallery, path = worn
    before = files(path)
    said = gallery.maintenance.optimize(grace=0.0, dry_run=True)
    assert files(path) == before
    assert said.dry_run
    done = gallery.maintenance.optimize(grace=0.0)
    assert said.before == done.before
    assert (said.after.fragments, said.after.index_parts) == (done.after.fragments, done.after.index_parts)
    assert said.after.bytes < said.before.bytes
    assert said.after.files < said.before.files


@pytest.mark.full
def test_an_upgrade_goes_on_and_cuts_over_after_it(worn, vectors):
    gallery, _ = worn
    gallery.upgrade("v2")
    gallery.maintenance.optimize(grace=GRACE)
    assert gallery.upgrade("v2").transformed == 0
    assert gallery.cutover("v2").missing == 0
    gallery.maintenance.optimize(grace=GRACE)
    assert gallery.rollback().active == "v1"
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_the_data_of_a_retired_version_goes(worn):
    gallery, path = worn
    gallery.upgrade("v2")
    gallery.cutover("v2")
    gallery.maintenance.optimize(grace=GRACE)
    gallery.retire("v1")
    table = lance.dataset(str(path))
    held = {field for fragment in table.get_fragments() for file in fragment.metadata.files for field in file.fields}
    known = {field.id() for field in table.lance_schema.fields()}
    assert held - known, "the columns are dropped, their data is still there"
    done = gallery.maintenance.optimize(grace=GRACE)
    table = lance.dataset(str(path))
    held = {field for fragment in table.get_fragments() for file in fragment.metadata.files for field in file.fields}
    assert held <= known
    assert done.after.bytes < done.before.bytes
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_what_killed_processes_left_goes_and_what_may_be_under_way_stays(worn):
    gallery, path = worn
    catalog = gallery._catalog
    lost = Blobs(catalog.store.location).put(b"nobody links this")
    fresh = Blobs(catalog.store.location).put(b"somebody may link this in a moment")
    temporary = path / "_compatstore" / "tmpabc123"
    temporary.write_bytes(b"half a file")
    orphan, written = path / "data" / "orphan.lance", path / "data" / "under-way.lance"
    for file in (orphan, written):
        file.write_bytes(b"never committed")
    for file in (path / "_compatstore" / lost, temporary, orphan):
        old(file)
    registry = catalog.registry()
    Staging(catalog.store.location, "v2", 6, catalog.store.schema.field("id").type).store(
        NativeBatch.of(["a"], np.ones((1, 6), np.float32), np.ones(1, np.uint64))
    )
    assert registry.versions["v2"].columns is None, "an upgrade that was aborted leaves no natives"
    catalog.store.add_columns([field for field in _columns(registry, "v2").fields if field.name == "v2"])
    said = gallery.maintenance.optimize(grace=GRACE, dry_run=True)
    done = gallery.maintenance.optimize(grace=GRACE)
    assert said.dropped == done.dropped == ("v2",)
    assert said.orphans == done.orphans == 1
    assert said.leftovers == done.leftovers
    assert {Path(name).parts[1] for name in done.leftovers} == {lost, "tmpabc123", "staged-v2-0.lance"}
    assert not orphan.exists()
    assert written.exists()
    assert (path / "_compatstore" / fresh).exists()
    assert all((path / "_compatstore" / record.weights).exists() for record in gallery.artifacts)
    gallery.upgrade("v2")
    assert gallery.maintenance.verify().clean


def test_the_tag_of_a_killed_abort_goes(worn):
    gallery, _ = worn
    gallery._catalog.store.tag("compatstore-v2")
    assert [one.check for one in gallery.maintenance.verify().findings] == ["tags"]
    gallery.maintenance.optimize(grace=GRACE)
    assert gallery.maintenance.verify().clean
    assert gallery._catalog.store.tags().keys() == {"compatstore-v1"}


def test_a_cutover_that_was_suspended_until_its_version_had_ended_leaves_no_tag(worn):
    gallery, _ = worn
    _pin(gallery._catalog, "v2")
    assert gallery._catalog.store.tags().keys() == {"compatstore-v1"}


def _columns(registry, name):
    from compatstore.storage.columns import VersionColumns

    return VersionColumns.of(registry.record(name).version())


@pytest.mark.full
def test_what_a_tagged_version_names_stays(worn):
    gallery, path = worn
    artifact = gallery.artifacts[0]
    lance.dataset(str(path)).tags.create("mine", lance.dataset(str(path)).version)
    gallery.artifacts.unlink(artifact.id)
    for digest in (artifact.manifest, artifact.weights):
        old(path / "_compatstore" / digest)
    assert gallery.maintenance.optimize(grace=GRACE).leftovers == ()
    lance.dataset(str(path)).tags.delete("mine")
    assert len(gallery.maintenance.optimize(grace=GRACE).leftovers) == 2


@pytest.mark.parametrize("grace", [-1.0, float("nan"), float("inf")])
def test_a_grace_that_is_none_is_refused(gallery, grace):
    with pytest.raises(cs.errors.InvalidInput, match="grace"):
        gallery.maintenance.optimize(grace=grace)


@pytest.mark.full
@pytest.mark.parametrize("target", ["v2", "the index of v1", "the gallery"])
def test_it_is_refused_while_somebody_works(worn, files, target):
    gallery, path = worn
    with hold_lease(gallery._catalog, target, "upgrade"):
        tables = {name: digest for name, digest in files(path).items() if "leases" not in name}
        with pytest.raises(LeaseHeld) as refused:
            gallery.maintenance.optimize(grace=GRACE)
        assert {name: digest for name, digest in files(path).items() if "leases" not in name} == tables
        assert gallery.maintenance.optimize(dry_run=True).dry_run
    assert refused.value.target == target
    assert "optimize the gallery" in str(refused.value)
    assert gallery.maintenance.optimize(grace=GRACE).after.fragments == 1


@pytest.mark.full
def test_searches_and_writes_go_on_beside_it(worn, vectors):
    gallery, path = worn
    query, halt, failures, found = vectors(1)[0], threading.Event(), [], []

    def search():
        reader = cs.Gallery.open(str(path))
        while not halt.is_set():
            try:
                found.append(reader.search(query, k=5).num_rows)
            except Exception as error:
                failures.append(error)

    def write():
        writer = cs.Gallery.open(str(path))
        for n in range(20):
            try:
                writer.add({"id": [f"new{n}", "a"], "vector": vectors(2, seed=n)}, upsert=True)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=search), threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    gallery.maintenance.optimize(grace=1.0)
    threads[1].join()
    halt.set()
    threads[0].join()
    assert failures == []
    assert set(found) == {5}
    assert len(gallery) == 10 + 12 * 60 - 20 + 20
    assert gallery.maintenance.verify().clean


@pytest.fixture
def adopted(tmp_path, vectors):
    database = lancedb.connect(tmp_path)
    table = database.create_table("photos", [{"key": "p0", "vector": vectors(1)[0]}])
    for n in range(1, 8):
        table.add([{"key": f"p{n}", "vector": vectors(1, seed=n)[0]}])
    gallery = cs.Gallery.adopt(table, cs.EmbeddingVersion("v1", dim=4), vector="vector", id="key")
    return gallery, tmp_path / "photos.lance", table


def test_an_apps_table_is_optimised_only_when_that_is_asked_for(adopted):
    gallery, path, table = adopted
    lost = Blobs(gallery._catalog.store.location).put(b"nobody links this")
    before = (path / "_compatstore" / lost).stat()
    os.utime(path / "_compatstore" / lost, (before.st_mtime - 8 * 86_400,) * 2)
    done = gallery.maintenance.optimize()
    assert done.left_alone
    assert done.before.fragments == done.after.fragments == 8
    assert done.before.versions == done.after.versions
    assert len(done.leftovers) == 1
    done = gallery.maintenance.optimize(adopted=True)
    assert not done.left_alone
    assert done.after.fragments == 1
    assert done.after.versions >= done.before.versions, "its versions of the last seven days stay"
    assert table.count_rows() == 8, "the app's handle reads on"
    assert gallery.maintenance.optimize(adopted=True, grace=0.0).after.versions == 1
    table.checkout_latest()
    assert table.search(np.zeros(4, np.float32)).limit(8).to_arrow().num_rows == 8
