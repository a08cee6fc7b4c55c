"""Galleries that are upgraded as one: one budget, one status, one cutover; a failed shard stops no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import Interrupted, InvalidInput, LeaseHeld, NotFound, UpgradeError
from compatstore.storage.location import is_pattern

NAMES = ["photos_a", "photos_b", "photos_c"]


def natives(shards):
    return [shard.native for shard in shards.status("v2").shards]


def test_a_pattern_stands_for_the_tables_that_match(shards, database):
    assert [address.rpartition("#")[2] for address in shards.addresses] == NAMES
    assert cs.Shards.open(f"{database}#photos_[bc]").addresses == shards.addresses[1:]
    assert cs.Shards.open(f"{database}#photos_?").addresses == shards.addresses
    with pytest.raises(NotFound, match="a table whose name matches"):
        cs.Shards.open(f"{database}#none_*")
    with pytest.raises(InvalidInput, match="DATABASE#PATTERN"):
        cs.Shards.open(f"{database}#photos_a")
    with pytest.raises(InvalidInput, match="which are one"):
        cs.Shards([shards.addresses[0]] * 2)
    assert not any(map(is_pattern, ["photos*.lance", "#photos_*", "a*b#photos", "s3://bucket/photos.lance"]))


def test_all_are_upgraded_and_then_nothing_is_left_to_do(shards):
    report = shards.upgrade("v2", backfill=0.5)
    assert (report.ready, report.failed, report.transformed, report.backfilled, report.missing) == (3, 0, 70, 35, 0)
    assert natives(shards) == [20, 10, 5]
    versions = [shards.gallery(address).status().table_version for address in shards.addresses]
    again = shards.upgrade("v2", backfill=0.5)
    assert (again.ready, again.transformed, again.backfilled) == (3, 0, 0)
    assert [shards.gallery(address).status().table_version for address in shards.addresses] == versions


@pytest.mark.full
@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"max_cost": 0.35, "price_per_item": 0.01}, 35), ({"max_rows": 1}, 1)],
    ids=["money", "fewer items than shards"],
)
def test_limits_are_of_all_shards_together_over_all_calls(shards, limits, expected):
    for _ in range(2):
        report = shards.upgrade("v2", backfill=cs.Backfill(**limits))
        assert report.spent.rows == sum(natives(shards)) == expected
        assert (report.ready, report.missing) == (3, 0)
    more = {name: 2 * limit for name, limit in limits.items() if name.startswith("max")}
    assert shards.upgrade("v2", backfill=cs.Backfill(**{**limits, **more})).spent.rows == 2 * expected


@pytest.mark.full
def test_each_gets_a_part_by_its_items(shards):
    shards.upgrade("v2", backfill=cs.Backfill(max_rows=14))
    assert natives(shards) == [8, 4, 2]


@pytest.mark.full
def test_what_one_cannot_use_goes_to_the_others(shards, database):
    largest = cs.Gallery.open(f"{database}#photos_a")
    ids = [f"other-{number}" for number in range(60)]  # the encoder of v2 has no vector of these
    largest.add({"id": ids, "vector": np.ones((60, 4), np.float32)})
    report = shards.upgrade("v2", backfill=cs.Backfill(max_rows=65, order="random"))
    assert report.spent.rows == 65
    assert natives(shards) == [40, 17, 8], "of 50, 10 and 5 items the first cannot use 10"


@pytest.mark.full
def test_a_shard_that_fails_does_not_stop_the_others_and_its_part_is_kept(shards, database, tmp_path):
    broken = Path(database, "photos_a.lance", "_versions")
    shutil.move(broken, tmp_path / "aside")
    report = shards.upgrade("v2", backfill=cs.Backfill(max_rows=14))
    assert (report.ready, report.failed) == (2, 1)
    failed = report.shards[0]
    assert failed.result is None
    assert isinstance(failed.error, NotFound)
    assert [shard.error != "" for shard in shards.status("v2").shards] == [True, False, False]
    with pytest.raises(UpgradeError, match="all of them to be ready"):
        shards.cutover("v2")
    assert {shards.gallery(address).active for address in shards.addresses[1:]} == {"v1"}
    shutil.move(tmp_path / "aside", broken)
    report = shards.upgrade("v2", backfill=cs.Backfill(max_rows=14))
    assert (report.ready, report.failed, report.spent.rows) == (3, 0, 14)
    assert shards.cutover("v2").active == "v2"


@pytest.mark.full
def test_another_manager_on_one_shard_is_a_failure_of_that_shard(shards):
    seen = []

    def second(progress):
        if not seen:
            seen.append(cs.Shards(shards.addresses).upgrade("v2", backfill=1.0))

    first = shards.upgrade("v2", backfill=1.0, progress=second)
    assert first.failed == 0
    assert [type(shard.error) for shard in seen[0].shards if shard.error] == [LeaseHeld]
    assert seen[0].ready == 2


@pytest.mark.full
def test_all_are_switched_or_none(shards):
    shards.upgrade("v2")
    late = shards.gallery(shards.addresses[1])
    assert shards.status("v2").can_cut_over
    assert shards.status() == shards.status("v2"), "there is one upgrade"
    switched = shards.cutover("v2")
    assert (switched.active, switched.switched, switched.before) == ("v2", shards.addresses, ())
    assert late.active == "v2"
    again = shards.cutover("v2")
    assert (again.switched, again.before) == ((), shards.addresses)
    back = shards.rollback("v2")
    assert (back.active, len(back.switched)) == ("v1", 3)
    with pytest.raises(UpgradeError, match="a shard that uses it"):
        shards.rollback("v2")


def write_plainly(gallery, *ids, **columns):
    """What an app adds past the API."""
    gallery._catalog.store.writer().insert(pa.table({"id": list(ids), **columns}))


@pytest.mark.full
def test_what_came_meanwhile_is_caught_up_with(shards):
    shards.upgrade("v2")
    vectors = shards.gallery(shards.addresses[1])._catalog.store.schema.field("v1").type
    write_plainly(shards.gallery(shards.addresses[1]), "late", v1=pa.array([[1.0, 2, 3, 4]], vectors))
    assert shards.status("v2").missing == 1
    shards.cutover("v2")
    assert shards.status("v2").missing == 0


@pytest.mark.full
def test_a_switch_that_fails_takes_the_others_back(shards):
    shards.upgrade("v2")
    for address, ids in zip(shards.addresses, (["x", "y"], ["x"]), strict=False):
        vectors = shards.gallery(address)._catalog.store.schema.field("v1").type
        write_plainly(shards.gallery(address), *ids, v1=pa.array([[1.0, 2, 3, 4]] * len(ids), vectors))
    active = []

    def stop():
        active.append({shard.active for shard in shards.status("v2").shards})
        return active[-1] == {"v1", "v2"}  # the first is switched, the second is being caught up with

    with pytest.raises(Interrupted):
        shards.cutover("v2", should_stop=stop)
    assert {"v1", "v2"} in active
    assert [shard.active for shard in shards.status("v2").shards] == ["v1"] * 3


@pytest.mark.full
def test_rows_without_a_vector_stand_in_the_way_before_any_is_switched(shards):
    shards.upgrade("v2")
    write_plainly(shards.gallery(shards.addresses[2]), "without")
    versions = [shards.gallery(address).status().table_version for address in shards.addresses[:2]]
    with pytest.raises(UpgradeError, match="1 items without one: without"):
        shards.cutover("v2")
    assert [shards.gallery(address).status().table_version for address in shards.addresses[:2]] == versions
    assert shards.cutover("v2", force=True).active == "v2"


@pytest.mark.full
def test_a_stop_ends_all_and_the_same_call_goes_on(shards):
    stopped = []

    def stop():
        stopped.append(len(stopped))
        return len(stopped) == 4

    with pytest.raises(Interrupted):
        shards.upgrade("v2", backfill=1.0, should_stop=stop)
    assert sum(natives(shards)) < 70
    report = shards.upgrade("v2", backfill=1.0)
    assert (report.ready, sum(natives(shards))) == (3, 70)


@pytest.mark.full
def test_progress_names_the_shard(shards):
    steps = []
    shards.upgrade("v2", backfill=1.0, progress=lambda told: steps.append(told.step))
    assert {step.partition(": ")[0] for step in steps} == set(NAMES)


def test_several_upgrades_want_the_target_named(shards):
    assert shards.status().target == "v1"
    shards.gallery(shards.addresses[0]).upgrade("v2")
    assert shards.status().target == "v2"
    assert [shard.state for shard in shards.status().shards] == ["ready", "", ""]
    other = shards.gallery(shards.addresses[1])
    other.register(cs.EmbeddingVersion("v3", dim=4, metric="l2", model="third"))
    other.artifacts.link(cs.Artifact.create("Identity", source=space("v1"), target=space("v3", "third")))
    assert shards.status("v3").shards[0].error == "v3 is not registered"


def space(name, model=""):
    from compatstore.artifacts import Space

    return Space.of(cs.EmbeddingVersion(name, dim=4, metric="l2", model=model))


def test_a_rollback_with_a_shard_that_cannot_be_read_switches_none(shards, database):
    shards.upgrade("v2", backfill=0.0)
    shards.cutover("v2")
    (database / "photos_b.lance" / "_versions").rename(database / "hidden")
    with pytest.raises(cs.errors.UpgradeError, match="photos_b"):
        shards.rollback("v2")
    (database / "hidden").rename(database / "photos_b.lance" / "_versions")
    assert {shards.gallery(address).active for address in shards.addresses} == {"v2"}
    assert shards.rollback("v2").switched == shards.addresses


@pytest.mark.parametrize("spelling", ["{0}/photos_a.lance", "{0}/../app-db#photos_a", "file://{0}/photos_a.lance"])
def test_one_table_under_two_spellings_is_refused(database, spelling):
    with pytest.raises(cs.errors.InvalidInput, match="which are one"):
        cs.Shards([f"{database}#photos_a", spelling.format(database)])
