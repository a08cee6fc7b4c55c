"""Two managers on one gallery, from the inside: what a second one does while the first is at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

import compatstore as cs
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.location import locate
from compatstore.upgrade.leases.lease import Holder, key_of, lease_in, pause
from states import UPGRADE, open_with_encoder


@pytest.fixture
def path(at):
    return at("upgradable")


def doing(gallery):
    return gallery.status().upgrades[0].activity


def meanwhile(path, step, act):
    """A `progress` that lets another handle of the gallery do something, once, in a step."""
    done = []

    def progress(at):
        if at.step == step and not done:
            done.append(at)
            act(cs.Gallery.open(path))

    return progress


@pytest.mark.full
@pytest.mark.parametrize(
    "verb",
    [
        lambda gallery: gallery.upgrade("v2"),
        lambda gallery: gallery.retire("v2"),
        lambda gallery: gallery.abort("v2", wait=0.0),
    ],
    ids=["upgrade", "retire", "abort"],
)
@pytest.mark.parametrize("step", ["hop", "backfill"])
def test_a_second_manager_is_told_who_works(path, step, verb):
    refused = []

    def act(other):
        with pytest.raises(cs.errors.LeaseHeld) as refusal:
            verb(other)
        refused.append(refusal.value)
        assert doing(other).doing == "running"

    gallery = open_with_encoder(path)
    try:
        gallery.upgrade("v2", **UPGRADE, progress=meanwhile(path, step, act))
    except cs.errors.Interrupted:  # by the abort, which had asked before it gave up
        gallery.upgrade("v2", **UPGRADE)
    assert refused[0].holder == str(Holder.here())
    assert doing(gallery).doing == "waiting"
    assert gallery.status().missing == 0


@pytest.mark.full
def test_what_reads_and_what_only_points_waits_for_nobody(path, files):
    def act(other):
        before = files(path, but=leases)
        (
            other.status(),
            other.maintenance.history(),
            other.upgrade("v2", dry_run=True),
            other.maintenance.verify(),
            other.versions(),
        )
        with pytest.raises(cs.errors.UpgradeError, match="one in state hop"):
            other.cutover("v2", dry_run=True)
        assert files(path, but=leases) == before

    leases = "_compatstore/leases.lance"  # the one who works renews theirs meanwhile, by files that come and go
    open_with_encoder(path).upgrade("v2", **UPGRADE, progress=meanwhile(path, "hop", act))


@pytest.mark.full
@pytest.mark.parametrize("step", ["hop", "backfill"])
def test_a_rollback_while_somebody_works_holds(path, step):
    gallery = open_with_encoder(path)
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", **UPGRADE, progress=meanwhile(path, step, lambda other: other.rollback()))
    assert gallery.status().upgrades[0].state == "rolled-back"
    assert gallery.upgrade("v2", **UPGRADE).state == "ready"


def test_a_manager_that_lost_its_lease_commits_nothing_more(path):
    table = LeaseTable(locate(path))
    versions = []

    def take_over(other):
        theirs = replace(lease_in(table.read(), "v2"), token="theirs", holder=Holder("ann", "another-host", 12))
        while not table.swap(table.read().version, key_of("v2"), theirs):
            pass  # a renewal came first
        versions.append(other.status().table_version)

    gallery = open_with_encoder(path)
    with pytest.raises(cs.errors.LeaseLost, match=r"ann on another-host.*gallery\.status\(\)"):
        gallery.upgrade("v2", **UPGRADE, progress=meanwhile(path, "hop", take_over))
    assert gallery.status().table_version == versions[0]
    assert lease_in(table.read(), "v2").token == "theirs", "the other one's lease is left alone"


@pytest.mark.full
def test_a_failure_stays_in_status_and_history_until_work_ends_well(path):
    gallery = open_with_encoder(path)

    def fail(at):
        if at.step == "backfill":
            raise ValueError("the disk melted")

    with pytest.raises(ValueError, match="melted"):
        gallery.upgrade("v2", **UPGRADE, progress=fail)
    activity = doing(gallery)
    assert (activity.doing, activity.error) == ("failed", "ValueError: the disk melted")
    assert activity.error_at
    entry = gallery.maintenance.history()[-1]
    assert (entry.step, entry.version, entry.source) == ("failed", "v2", "v1")
    assert "in backfill" in entry.note
    assert "the disk melted" in entry.note
    gallery.upgrade("v2", **UPGRADE)
    assert (doing(gallery).doing, doing(gallery).error) == ("waiting", "")


@pytest.mark.full
def test_a_refused_cutover_is_an_error_but_no_failed_upgrade(path):
    gallery = open_with_encoder(path)
    gallery.upgrade("v2", **UPGRADE)
    late = {"id": ["late"], "vector": gallery.vectors(["item-000001"], "v1")}
    gallery.add(late, version="v1")
    with pytest.raises(cs.errors.UpgradeError, match="vector"):
        gallery.cutover("v2")
    activity = doing(gallery)
    assert activity.doing == "waiting"
    assert "UpgradeError" in activity.error
    assert gallery.maintenance.history()[-1].step == "ready"


def test_natives_that_are_not_folded_yet_are_counted(at):
    found = cs.Gallery.open(at("backfilling")).status()
    (status,) = found.upgrades
    assert status.staged == status.spent.rows > 0
    assert status.left.rows == int(status.backfill * found.rows) - status.staged
    assert (status.state, status.activity.doing) == ("backfill", "paused")


def test_a_pause_with_nobody_at_work_changes_nothing(at, files):
    path = at("backfilling")
    before = files(path)
    paused = pause(cs.Gallery.open(path)._catalog, "v2")
    assert (paused.holder, paused.stopped) == ("", True)
    assert files(path) == before
    with pytest.raises(cs.errors.NotFound, match="version"):
        pause(cs.Gallery.open(path)._catalog, "v9")


@pytest.mark.full
def test_a_renewal_makes_no_version_of_the_gallery(path):
    gallery = open_with_encoder(path)
    gallery.upgrade("v2", **UPGRADE)
    before = gallery.status().table_version
    gallery.upgrade("v2", **UPGRADE)
    assert gallery.status().table_version == before


@pytest.mark.full
@pytest.mark.parametrize("verb", ["upgrade", "abort"])
def test_a_process_is_not_refused_by_a_lease_that_it_could_not_give_back(path, monkeypatch, verb):
    """As when its disk got full: nothing can be written, its record neither."""
    gallery = open_with_encoder(path)
    full = []

    def fill_the_disk(at):
        if at.step == "backfill":
            full.append(at)
            raise OSError("No space left on device")

    swap = LeaseTable.swap

    def swap_on_a_full_disk(self, *arguments):
        if full:
            raise cs.errors.StorageError("note who works", found="No space left on device")
        return swap(self, *arguments)

    monkeypatch.setattr(LeaseTable, "swap", swap_on_a_full_disk)
    with pytest.raises((OSError, cs.errors.StorageError), match="No space left"):
        gallery.upgrade("v2", **UPGRADE, progress=fill_the_disk)
    with pytest.raises(cs.errors.StorageError, match="No space left"):
        getattr(gallery, verb)("v2")
    full.clear()
    assert lease_in(LeaseTable(locate(path)).read(), "v2").outcome == "running"
    getattr(gallery, verb)("v2")
    assert gallery.maintenance.verify().clean
