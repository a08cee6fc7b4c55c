"""A sync that was killed between two of its writes, and one beside an app that writes: the next one mends it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from stores.conftest import FAST, started
from stores.test_mirror import NAME, ROWS, held, key, mirror, new, require_same, row_of, rows, upgraded  # noqa: F401  (fixture)

import compatstore as cs
from compatstore.ingest import write
from compatstore.stores import link
from compatstore.stores.both_sides import HELD, digests_as_written
from compatstore.stores.ledger import UNKNOWN, MirrorLedger
from compatstore.stores.store import ID, VECTOR, digests, vector_column
from compatstore.stores.sync import Sync
from compatstore.upgrade.progress import UNOBSERVED


@pytest.fixture(params=[*FAST, "tracked"])
def engine(request, tmp_path):
    """A database whose targets lie in a column, a table or a file: what a sync does is the same for the others.

    The last is PostgreSQL with a change capture.
    """
    is_tracked = request.param == "tracked"
    for engine in started("postgres" if is_tracked else request.param, tmp_path):
        engine.track = is_tracked
        yield engine


class Killed(BaseException):
    """In place of the end of a process."""


@pytest.fixture
def killed_after(monkeypatch):
    """End the next sync after its next call of a function of the gallery."""

    def after(name):
        whole = getattr(write, name)

        def call(*args, **options):
            whole(*args, **options)
            monkeypatch.setattr(write, name, whole)
            raise Killed

        monkeypatch.setattr(write, name, call)

    return after


def test_a_row_that_a_killed_sync_added_and_the_app_deleted_is_deleted(engine, rows, tmp_path, killed_after):  # noqa: F811
    gallery = mirror(engine, tmp_path)
    engine.put(NAME, [row_of(key(engine, 1001), "an added text")])
    killed_after("add")
    with pytest.raises(Killed):
        gallery.sync()
    assert len(gallery) == ROWS + 1
    engine.delete(NAME, [key(engine, 1001)])
    assert gallery.sync().deleted == 1
    assert len(cs.Gallery.open(str(tmp_path / "notes.lance"))) == ROWS


def test_a_row_that_the_app_changed_back_after_a_killed_sync_is_as_the_app_has_it(
    engine, rows, tmp_path, killed_after  # noqa: F811
):  # fmt: skip
    gallery, before = mirror(engine, tmp_path), rows[2]
    engine.put(NAME, [row_of(before["id"], "another text")])
    killed_after("add")
    with pytest.raises(Killed):
        gallery.sync()
    engine.put(NAME, [before])
    gallery.sync()
    assert held(gallery, "v1")[before["id"]] == pytest.approx(before["vector"], abs=1e-5)


def test_metadata_that_the_app_changed_back_after_a_killed_sync_is_as_the_app_has_it(
    engine, rows, tmp_path, killed_after  # noqa: F811
):  # fmt: skip
    gallery, before = mirror(engine, tmp_path, metadata=engine.parts.metadata), rows[2]
    engine.put(NAME, [{**before, "lang": "de"}])
    killed_after("update")
    with pytest.raises(Killed):
        gallery.sync()
    engine.put(NAME, [before])
    gallery.sync()
    found = {row["id"]: row["lang"] for row in gallery.scan(["id", "lang"]).to_arrow().to_pylist()}
    assert found[before["id"]] == before["lang"]


def test_a_vector_with_a_negative_zero_has_its_target_vector(engine, rows, tmp_path):  # noqa: F811
    vector = np.array(rows[2]["vector"], np.float32)
    vector[0] = -0.0
    rows[2]["vector"] = (vector / np.linalg.norm(vector)).tolist()
    engine.put(NAME, [rows[2]])
    gallery = mirror(engine, tmp_path)
    upgraded(gallery, 1.0)
    require_same(engine, gallery, rows)
    assert gallery.status().store.held["v2"] == ROWS


def test_a_deleted_row_without_a_vector_is_deleted(engine, rows, tmp_path):  # noqa: F811
    if not getattr(engine, "keeps_nulls", True):
        pytest.skip("each row has a vector there")
    engine.put(NAME, [{**row_of(key(engine, 1001), "to be embedded later"), "vector": None}])
    gallery = mirror(engine, tmp_path)
    assert len(gallery) == ROWS + 1
    engine.delete(NAME, [key(engine, 1001)])
    assert gallery.sync().deleted == 1
    assert len(gallery) == ROWS


def test_a_row_that_the_app_deleted_and_added_again_has_its_target_vector(engine, rows, tmp_path):  # noqa: F811
    gallery, again = mirror(engine, tmp_path), rows[2]
    upgraded(gallery)
    gallery.sync()
    engine.delete(NAME, [again["id"]])
    engine.put(NAME, [again])
    gallery.sync()
    require_same(engine, gallery, rows)


def test_rows_that_the_app_changed_between_a_cutover_and_a_rollback_have_what_the_store_has(engine, rows, tmp_path):  # noqa: F811
    gallery, changed = mirror(engine, tmp_path), rows[2]
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    if not link.describe(gallery.status().store.store, vector=engine.parts.vector, id=engine.parts.id).switch:
        pytest.skip("the app changes the name that it reads itself")
    engine.put(NAME, [{**changed, "text": "another text", "vector": new(["another text"])[0].tolist()}])
    gallery.sync()
    gallery.rollback()
    gallery.sync()
    found, there = held(gallery, "v1"), engine.rows(NAME)
    assert found.keys() == there.keys()
    for one, row in there.items():
        assert found[one] == pytest.approx(list(row["vector"]), abs=1e-5)


def test_rows_that_the_app_added_since_the_upgrade_are_there_after_a_cutover(engine, rows, tmp_path):  # noqa: F811
    gallery, added = mirror(engine, tmp_path), row_of(key(engine, 1001), "an added text")
    upgraded(gallery)
    engine.put(NAME, [added])
    gallery.cutover("v2")
    assert held(gallery, "v2")[added["id"]] is not None
    done = gallery.sync()
    assert (done.added, done.deleted, done.written) == (0, 0, 0)
    assert len(gallery) == ROWS + 1


def test_a_row_that_the_app_changed_just_before_a_switch_has_no_stale_vector(engine, rows, tmp_path, monkeypatch):  # noqa: F811
    gallery, changed = mirror(engine, tmp_path), row_of(rows[2]["id"], "another text")
    upgraded(gallery, 1.0)
    hold, is_one_row = Sync.hold, []

    def hold_and_write(sync, target):
        hold(sync, target)
        if sync.store.describe(sync.link.parts).beside == "column":
            engine.put(NAME, [changed])
            is_one_row.append(True)

    monkeypatch.setattr(Sync, "hold", hold_and_write)
    gallery.cutover("v2")
    if not is_one_row or not engine_switches(gallery):
        pytest.skip("the app does not write during a switch there")
    upgraded(gallery, 1.0)
    wanted = new(["another text"])[0]
    assert held(gallery, "v2")[changed["id"]] == pytest.approx(wanted.tolist(), abs=1e-5)
    there = np.array(engine.rows(NAME)[changed["id"]]["vector"])
    assert there == pytest.approx(wanted, abs=1e-5)


def engine_switches(gallery):
    """True if the store gives the app the target by the name that it knows."""
    with link.syncing(gallery._catalog, UNOBSERVED) as sync:
        return bool(sync.store.describe(sync.link.parts).switch)


def test_a_killed_retirement_goes_on(engine, rows, tmp_path, monkeypatch):  # noqa: F811
    gallery, before = mirror(engine, tmp_path), engine.objects()
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    monkeypatch.setattr(MirrorLedger, "forget_retired", lambda ledger: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        gallery.retire("v1", drop_adopted=True)
    monkeypatch.undo()
    gallery = cs.Gallery.open(str(tmp_path / "notes.lance"))
    assert gallery.sync().written == 0
    assert gallery.retire("v1", drop_adopted=True).active == "v2"
    status = gallery.status().store
    assert (status.source, dict(status.held), status.switched) == ("v2", {}, "")
    assert len(gallery) == ROWS
    assert not [name for name in engine.objects() - before if "before" in name]


def test_a_vector_that_the_app_wrote_just_before_a_rollback_is_replaced(engine, rows, tmp_path, monkeypatch):  # noqa: F811
    gallery = mirror(engine, tmp_path)
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    changed = {**rows[2], "vector": new(["not its text"])[0].tolist()}
    run = Sync.run

    def run_and_write(sync):
        done = run(sync)
        if sync.switched and sync.store.before("v2"):
            engine.put(NAME, [changed])
        return done

    monkeypatch.setattr(Sync, "run", run_and_write)
    gallery.rollback()
    monkeypatch.undo()
    gallery.sync()
    require_same(engine, gallery, rows)


def test_a_vector_that_the_app_writes_between_a_pull_and_a_push_is_kept(engine, rows, tmp_path):  # noqa: F811
    gallery, changed = mirror(engine, tmp_path), rows[2]
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    if not engine_switches(gallery):
        pytest.skip("the app names the place of the target itself")
    own = new(["not its text"])[0]
    with link.syncing(gallery._catalog, UNOBSERVED) as sync:
        sync.pull()
        engine.put(NAME, [{**changed, "vector": own.tolist()}])
        sync.ledger.mark_unconfirmed("v2", [changed["id"]])  # as after a killed push
        sync.push("v2")
    assert np.array(engine.rows(NAME)[changed["id"]]["vector"]) == pytest.approx(own, abs=1e-5)
    gallery.sync()
    assert held(gallery, "v2")[changed["id"]] == pytest.approx(own.tolist(), abs=1e-5)


def test_a_vector_that_a_killed_push_has_written_is_not_taken_for_the_app_s(engine, rows, tmp_path):  # noqa: F811
    gallery = mirror(engine, tmp_path)
    upgraded(gallery)
    gallery.cutover("v2")
    if not engine_switches(gallery):
        pytest.skip("the app names the place of the target itself")
    before = gallery._catalog.store.snapshot().to_table(["id", "v2__origin"])
    with link.syncing(gallery._catalog, UNOBSERVED) as sync, sync.ledger.changes():
        for key_of_digests in ("v2", f"v2{HELD}"):
            sync.ledger.set_vectors(key_of_digests, dict.fromkeys(before["id"].to_pylist(), UNKNOWN))
    done = gallery.sync()
    assert (done.changed, done.written) == (0, 0)
    after = gallery._catalog.store.snapshot().to_table(["id", "v2__origin"])
    assert after.sort_by("id").equals(before.sort_by("id"))


def test_what_a_store_rounds_or_scales_is_what_was_written_and_another_vector_is_the_app_s():
    wrote, ids = np.array([[3.0, 4.0], [1.0, 1.0], [0.0, 2.0]], np.float32), ["a", "b", "c"]
    found = np.array([[1.0, 1.0], [0.6, 0.8001], [0.0, 0.0]], np.float32)
    written = pa.table({ID: ids, VECTOR: vector_column(wrote, 2)})
    there = pa.table({ID: ["b", "a", "c"], VECTOR: vector_column(found, 2)})
    assert digests_as_written(written, there) == dict(zip(["b", "a"], digests(there[VECTOR])[:2], strict=True))


def test_an_upgrade_that_was_killed_before_its_place_was_made_begins_again(engine, rows, tmp_path, monkeypatch):  # noqa: F811
    gallery, before = mirror(engine, tmp_path), engine.objects()
    place = MirrorLedger.place

    def place_and_die(ledger, *target):
        place(ledger, *target)
        raise Killed

    monkeypatch.setattr(MirrorLedger, "place", place_and_die)
    with pytest.raises(Killed):
        upgraded(gallery)
    monkeypatch.undo()
    gallery = cs.Gallery.open(str(tmp_path / "notes.lance"))
    assert not [each for each in gallery.maintenance.verify().findings if each.check == "store"]
    assert gallery.sync().written == 0
    assert engine.objects() == before
    upgraded(gallery)
    assert gallery.status().store.held["v2"] == ROWS
