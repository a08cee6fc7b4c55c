"""Columns that an upgrade adds are not dropped by maintenance that began before."""

from __future__ import annotations

import threading

import pytest

import compatstore as cs
from compatstore.storage import registry
from compatstore.storage.store import Store
from compatstore.upgrade import hop


class Meeting:
    """Stops the upgrade between adding its columns and recording them, until a rival has dropped what is unused.

    The rival waits for the columns before it drops, or before it decides what is unused.
    """

    def __init__(self, monkeypatch, waits_before):
        self.columns_are_there, self.rival_is_done = threading.Event(), threading.Event()
        edit, drop, unused = hop.edit, Store.drop_columns, registry.Registry.unused

        def late_decision(state, names):
            if waits_before == "deciding" and threading.current_thread().name == "rival":
                assert self.columns_are_there.wait(60)
            return unused(state, names)

        def slow_edit(store, change, entry=None):
            if entry is not None and entry.step == "expand":
                self.columns_are_there.set()
                assert self.rival_is_done.wait(60)
            return edit(store, change, entry)

        def late_drop(store, chosen):
            if threading.current_thread().name == "rival":
                assert waits_before == "deciding" or self.columns_are_there.wait(60)
                try:
                    return drop(store, chosen)
                finally:
                    self.rival_is_done.set()
            return drop(store, chosen)

        monkeypatch.setattr(hop, "edit", slow_edit)
        monkeypatch.setattr(Store, "drop_columns", late_drop)
        monkeypatch.setattr(registry.Registry, "unused", late_decision)


@pytest.mark.parametrize("waits_before", ["dropping", "deciding"])
@pytest.mark.parametrize("verb", ["optimize", "retire"])
def test_a_rival_that_drops_what_is_unused_leaves_them(upgradable, linear, monkeypatch, verb, waits_before):
    path = upgradable._catalog.store.location.uri
    if verb == "retire":  # of a version before: v0 -> v1 -> v2
        upgradable.register(cs.EmbeddingVersion("v0", dim=3, metric="l2"))
    meeting, failures = Meeting(monkeypatch, waits_before), []

    def rival():
        gallery = cs.Gallery.open(path)
        try:
            gallery.maintenance.optimize(grace=0) if verb == "optimize" else gallery.retire("v0")
        except cs.errors.LeaseHeld as error:  # the upgrade that began meanwhile ends it
            failures.append(error)

    thread = threading.Thread(target=rival, name="rival")
    thread.start()
    report = cs.Gallery.open(path).upgrade("v2")
    thread.join()
    assert meeting.rival_is_done.is_set()
    assert report.state == "ready"
    gallery = cs.Gallery.open(path)
    gallery.add({"id": ["new"], "vector": [[1.0, 2.0, 3.0, 4.0]]})
    assert gallery.status().versions[1].transformed == 11
    assert gallery.maintenance.verify().clean


def kill_before_recording(gallery, monkeypatch):
    """End an upgrade after its columns were added and before they are recorded."""

    def killed(store, change, entry=None):
        if entry is not None:
            raise KeyboardInterrupt
        return registry.edit(store, change)

    with monkeypatch.context() as patch:
        patch.setattr(hop, "edit", killed)
        with pytest.raises(KeyboardInterrupt):
            gallery.upgrade("v2")


def test_an_upgrade_that_was_killed_before_its_columns_were_recorded_goes_on(upgradable, monkeypatch):
    kill_before_recording(upgradable, monkeypatch)
    assert "label" not in upgradable.columns.metadata.names
    assert "v2" not in upgradable.columns.metadata.names
    assert upgradable.maintenance.optimize(grace=0).dropped == ()
    assert upgradable.upgrade("v2").state == "ready"


def test_a_retirement_drops_what_such_a_killed_upgrade_left(upgradable, monkeypatch):
    kill_before_recording(upgradable, monkeypatch)
    assert not upgradable.maintenance.verify().clean
    upgradable.retire("v2")
    assert upgradable.maintenance.verify().clean
