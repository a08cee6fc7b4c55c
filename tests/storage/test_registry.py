from __future__ import annotations

import threading
from dataclasses import replace

import lance
import pytest

import compatstore as cs
from compatstore.storage import registry as registry_module
from compatstore.storage.history import HistoryEntry
from compatstore.storage.location import locate
from compatstore.storage.registry import KEY, Registry, edit
from compatstore.storage.store import Store


@pytest.fixture
def store(tmp_path):
    path = str(tmp_path / "gallery.lance")
    cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=4))
    return Store.open(locate(path))


def test_it_survives_a_round_trip(store):
    registry = registry_module.read(store.snapshot(), "here")
    assert Registry.loads(registry.dumps(), "here") == registry
    assert registry.versions["v1"].version().fingerprint == cs.EmbeddingVersion("v1", dim=4).fingerprint


def test_edits_of_many_threads_are_all_kept(store):
    def work(number):
        mine = Store.open(store.location)
        version = cs.EmbeddingVersion(f"w{number}", dim=2)
        record = registry_module.VersionRecord.of(version)
        edit(mine, lambda state: state.with_version(record), HistoryEntry("register", version.name))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    registry = registry_module.read(store.snapshot(), "here")
    assert {f"w{number}" for number in range(6)} < registry.versions.keys()
    numbers = [entry.number for entry in registry_module.history(store)]
    assert numbers == list(range(1, 8)), "create and six registrations, none lost, none twice"


def test_an_edit_that_changes_nothing_commits_nothing(store):
    before = store.snapshot().version
    edit(store, lambda state: state)
    assert store.snapshot().version == before


def test_a_refusal_commits_nothing(store):
    before = store.snapshot().version

    def refuse(_):
        raise cs.errors.InvalidInput("try")

    with pytest.raises(cs.errors.InvalidInput):
        edit(store, refuse)
    assert store.snapshot().version == before


def test_a_later_format_and_a_broken_registry_are_refused(store):
    registry = registry_module.read(store.snapshot(), "here")
    lance.dataset(store.location.uri).update_config({KEY: replace(registry, format=99).dumps()})
    with pytest.raises(cs.errors.CorruptArtifact, match="pip install --upgrade"):
        cs.Gallery.open(store.location.uri)
    lance.dataset(store.location.uri).update_config({KEY: "{"})
    with pytest.raises(cs.errors.CorruptArtifact, match="readable registry"):
        cs.Gallery.open(store.location.uri)


def test_a_plain_lance_table_is_told_how_to_become_a_gallery(tmp_path):
    import pyarrow as pa

    lance.write_dataset(pa.table({"x": [1]}), str(tmp_path / "plain.lance"))
    with pytest.raises(cs.errors.StorageError, match=r"cs\.Gallery\.adopt"):
        cs.Gallery.open(str(tmp_path / "plain.lance"))
