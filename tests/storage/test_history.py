"""The history: every step is kept, in a place that does not make commits grow."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import compatstore as cs
from compatstore.storage.history import PAGE, PREFIX, HistoryEntry
from compatstore.storage.location import locate
from compatstore.storage.registry import edit
from compatstore.storage.store import Store


@pytest.fixture
def store(gallery):
    return Store.open(locate(gallery.status().gallery))


def add_steps(store, count):
    for number in range(count):
        edit(store, lambda registry: registry, HistoryEntry("backfill", "v1", rows=number, note="25% in sigma order"))


def manifest_bytes(store):
    """Size of the latest manifest: what a commit of anybody writes besides its data."""
    folder = Path(store.location.uri, "_versions")
    return max((path for path in folder.glob("*.manifest")), key=lambda path: path.stat().st_mtime_ns).stat().st_size


@pytest.mark.full
def test_many_steps_are_all_kept_in_order(store, gallery):
    add_steps(store, 3 * PAGE + 5)
    entries = gallery.maintenance.history()
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry.rows for entry in entries[1:]] == list(range(3 * PAGE + 5))
    assert cs.Gallery.open(store.location.uri).maintenance.history()[0].step == "create"


@pytest.mark.full
def test_commits_do_not_grow_with_the_history(store):
    add_steps(store, PAGE)
    full = manifest_bytes(store)
    add_steps(store, 4 * PAGE)
    assert manifest_bytes(store) <= full + 500
    assert sum(key.startswith(PREFIX) for key in store.snapshot().config()) <= PAGE


@pytest.mark.full
def test_a_snapshot_has_the_history_of_its_time(store, gallery):
    from compatstore.storage import registry as registry_module

    add_steps(store, PAGE)
    then = store.snapshot()
    before = registry_module.history(store, then)
    add_steps(store, 2 * PAGE)
    assert registry_module.history(store, then) == before
    assert gallery.maintenance.history()[: len(before)] == before


@pytest.mark.full
def test_steps_of_many_writers_at_once_fill_pages_without_loss(store, gallery):
    def work():
        add_steps(Store.open(store.location), PAGE // 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [entry.number for entry in gallery.maintenance.history()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 2 * PAGE
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_a_page_that_is_gone_is_named_and_stops_nothing_else(store, gallery):
    add_steps(store, PAGE + 1)
    digest = json.loads(store.snapshot().config()["compatstore.registry"])["history_page"]
    Path(store.location.uri, "_compatstore", digest).unlink()
    with pytest.raises(cs.errors.CorruptArtifact, match=rf"read the history.*{digest[:12]}"):
        gallery.maintenance.history()
    assert [finding.check for finding in gallery.maintenance.verify().findings] == ["history"]
    assert gallery.status().rows == 10
    add_steps(store, 1)


def test_a_step_says_who_when_and_with_which_model(upgradable):
    upgradable.upgrade("v2")
    steps = {entry.step: entry for entry in upgradable.maintenance.history()}
    hop = steps["hop"]
    assert hop.who
    assert hop.at.endswith("+00:00")
    assert (hop.source, hop.version, hop.rows) == ("v1", "v2", 10)
    assert hop.fingerprint == upgradable.version("v2").fingerprint
    assert hop.artifact == upgradable.artifacts[0].id
    assert steps["create"].fingerprint == upgradable.version("v1").fingerprint
