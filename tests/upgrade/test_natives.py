"""Native vectors on their way into the table, by rows and by columns: durable, whole, never beside a changed item."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.storage import indexes
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import find
from compatstore.storage.index_status import index_status
from compatstore.storage.location import locate
from compatstore.storage.staging import NativeBatch
from compatstore.storage.store import Store
from compatstore.upgrade.backfilling import natives as natives_module
from compatstore.upgrade.backfilling.natives import Natives
from compatstore.upgrade.context import UpgradeContext
from galleries import SOURCE, TARGET, artifact, items, make
from tiers import few

ROWS = 120
IDS = [f"item-{number:06d}" for number in range(3 * ROWS)]
MODES = ("move_rows", "rewrite_columns")
STAGED_ROWS = "moved-in-waves"  # as the rows of many batches are; it is in the gallery's path


def native_of(ids):
    """What the encoder makes of items: (n, dim) float32, a function of the id alone."""
    numbers = np.array([int(i.split("-")[1]) for i in ids])
    return np.cos(numbers[:, None] + np.arange(TARGET.dim)).astype(np.float32)


@pytest.fixture(params=few(1, (*MODES, STAGED_ROWS)))
def gallery(request, tmp_path):
    """Three fragments, hopped; some items are deleted."""
    gallery = make(str(tmp_path / f"{request.param}.lance"), fragments=3, rows=ROWS)
    mode = request.param if request.param in MODES else "move_rows"
    gallery.upgrade("v2", backfill=cs.Backfill(write_mode=mode))
    return gallery


def path_of(gallery):
    return gallery._catalog.store.location.uri


def natives_of(gallery):
    """What a new process would make: nothing is carried over but what is on disk."""
    return natives_at(path_of(gallery))


def hashes_of(natives, rows):
    """Input hashes of rows as they are now, an Arrow table."""
    return natives.context.source.input_hashes(rows, natives.context.registry.source_column).native


def stored(natives, ids):
    """Store natives of items as the table has them now."""
    registry = natives.context.registry
    columns = [registry.id_column, registry.columns("v1").vector, "v1__side", "source"]
    rows = find(natives.context.catalog.store, registry.id_column, ids, [c for c in columns if c])
    found = rows[registry.id_column].to_pylist()
    return found, native_of(found), hashes_of(natives, rows)


def table_of(gallery):
    table = lance.dataset(path_of(gallery)).to_table().sort_by("id")
    assert table.num_rows == len(set(table["id"].to_pylist())), "no row is doubled"
    return {row["id"]: row for row in table.to_pylist()}


def assert_native(row):
    np.testing.assert_array_equal(np.float32(row["v2"]), native_of([row["id"]])[0])
    assert row["v2__origin"] == "native"
    assert row["v2__uncertainty"] is None
    assert row["v2__input_hash"] is not None


@pytest.mark.full
def test_natives_reach_the_table_and_nothing_else_changes(gallery):
    before, chosen = table_of(gallery), IDS[1:200:3]
    natives = natives_of(gallery)
    for start in range(0, len(chosen), 16):
        batch = stored(natives, chosen[start : start + 16])
        assert natives.store(NativeBatch.of(*batch)) == len(batch[0])
    assert natives.fold() == len([i for i in chosen if i in before])
    after = table_of(gallery)
    assert after.keys() == before.keys()
    for key, row in after.items():
        if key in chosen:
            assert_native(row)
            unchanged = [name for name in row if name not in ("v2", "v2__origin", "v2__uncertainty")]
            assert {name: row[name] for name in unchanged} == {name: before[key][name] for name in unchanged}
        else:
            assert row == before[key]
    version = gallery.status().table_version
    assert natives.fold() == natives_of(gallery).fold() == 0
    assert gallery.status().table_version == version, "a second fold writes nothing"


@pytest.mark.parametrize(
    ("at_once", "wave_rows", "reads"),
    [
        (natives_module.MOST_NATIVES, 3 * ROWS, [9]),
        (natives_module.MOST_NATIVES, 2 * ROWS, [6, 3]),
        (8, 3 * ROWS, [3, 3, 3]),
    ],
    ids=["one wave", "two waves", "too many for memory"],
)
def test_natives_of_several_fragments_are_read_at_once_where_memory_allows(
    tmp_path, monkeypatch, at_once, wave_rows, reads
):
    monkeypatch.setattr(natives_module, "MOST_NATIVES", at_once)
    monkeypatch.setattr(natives_module, "WAVE_ROWS", wave_rows)
    gallery = make(str(tmp_path / "items.lance"), fragments=3, rows=ROWS)
    gallery.upgrade("v2", backfill=cs.Backfill(write_mode="rewrite_columns"))
    natives = natives_of(gallery)
    ids, vectors, input_hash = stored(natives, [IDS[n + ROWS * part] for part in range(3) for n in (1, 5, 50)])
    asked = []

    def read(positions):
        asked.append(len(positions))
        return vectors[positions], None

    batch = NativeBatch(pa.array(ids), input_hash, read)
    assert natives_module.NativeColumns(natives.context).put(batch) == 9
    assert asked == reads
    rows = table_of(gallery)
    for key in ids:
        assert_native(rows[key])
    assert sum(row["v2__origin"] == "native" for row in rows.values()) == 9


def test_a_stored_batch_outlives_its_process(gallery):
    natives = natives_of(gallery)
    natives.store(NativeBatch.of(*stored(natives, IDS[1:5])))
    successor = natives_of(gallery)
    present = {key for key, row in table_of(gallery).items() if row["v2__origin"] == "native"}
    assert present | set(successor.waiting().to_pylist()) == set(IDS[1:5]), "in the table, or waiting for a fold"
    assert len(present) + len(successor.waiting()) == 4
    successor.fold()
    assert len(successor.waiting()) == 0
    rows = table_of(gallery)
    for key in IDS[1:5]:
        assert_native(rows[key])


def plain(gallery, numbers, seed):
    """Rows as an app writes them that knows nothing of the target."""
    schema = lance.dataset(path_of(gallery)).schema
    vectors = items(seed, len(numbers))["vector"]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), SOURCE.dim)
    fields = [schema.field(name) for name in ("id", "v1", "v1__origin", "number")]
    ids = pa.array([f"item-{n:06d}" for n in numbers])
    columns = [ids, lists, pa.array(["native"] * len(numbers)), pa.array(np.full(len(numbers), -1))]
    return pa.table(columns, schema=pa.schema(fields)), vectors


@pytest.mark.full
def test_what_changed_after_its_vector_was_made_is_dropped(gallery):
    natives = natives_of(gallery)
    batch = stored(natives, IDS[1:9])
    before = table_of(gallery)
    app = lance.dataset(path_of(gallery))
    changed, vectors = plain(gallery, [1], seed=5000)
    app.merge_insert("id").when_matched_update_all().execute(changed)
    app.delete("id = 'item-000002'")
    app.update({"source": "'another picture'"}, where="id = 'item-000003'")
    app.update({"number": "777"}, where="id = 'item-000004'")
    gallery.add({**items(5000, 1), "id": [IDS[5]]}, version="v1", upsert=True)
    natives.store(NativeBatch.of(*batch))
    natives.fold()
    rows = table_of(gallery)
    assert [key for key, row in rows.items() if row["v2__origin"] == "native"] == [IDS[n] for n in (4, 6, 7, 8)]
    assert_native(rows[IDS[4]])
    assert rows[IDS[4]]["number"] == 777, "the app's change stays"
    assert IDS[2] not in rows
    np.testing.assert_array_equal(np.float32(rows[IDS[1]]["v1"]), vectors[0])
    assert rows[IDS[3]]["v2"] == before[IDS[3]]["v2"], "left to the next hop, which sees that it is stale"
    assert gallery.upgrade("v2").missing == 0


@pytest.mark.full
def test_an_app_that_writes_meanwhile_loses_nothing(gallery):
    natives, done, failures = natives_of(gallery), threading.Event(), []
    expected = {key: row["number"] for key, row in table_of(gallery).items()}

    def live():
        rng = random.Random(1)
        try:
            for turn in range(120):  # most items stay as they are, however much slower the other thread is
                if done.is_set():
                    return
                app, number = lance.dataset(path_of(gallery)), rng.choice(range(1, 300))
                key = f"item-{number:06d}"
                if turn % 4 == 0 and key in expected:
                    app.delete(f"id = '{key}'")
                    del expected[key]
                elif turn % 4 == 1 and key in expected:
                    app.update({"number": str(turn)}, where=f"id = '{key}'")
                    expected[key] = turn
                elif turn % 4 == 2:
                    app.merge_insert("id").when_matched_update_all().execute(plain(gallery, [number], turn)[0])
                    expected.update({key: -1} if key in expected else {})
                else:
                    lance.write_dataset(plain(gallery, [1000 + turn], turn)[0], path_of(gallery), mode="append")
                    expected[f"item-{1000 + turn:06d}"] = -1
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=live)
    thread.start()
    try:
        for start in range(0, 300, 20):
            natives.store(NativeBatch.of(*stored(natives, IDS[start : start + 20])))
        natives.fold()
    finally:
        done.set()
        thread.join()
    assert failures == []
    rows = table_of(gallery)
    assert {key: row["number"] for key, row in rows.items()} == expected
    input_hash = {i: int(b) for i, b in zip(*hashes_now(gallery), strict=True)}
    fresh = [
        row for row in rows.values() if row["v2__origin"] == "native" and row["v2__input_hash"] == input_hash[row["id"]]
    ]
    assert len(fresh) > 100
    for row in fresh:
        assert_native(row)


def hashes_now(gallery):
    natives = natives_of(gallery)
    rows = natives.context.catalog.store.snapshot().to_table(["id", "v1", "v1__side", "source"])
    return rows["id"].to_pylist(), hashes_of(natives, rows)


PROGRAM = """
import sys
from test_natives import IDS, natives_at, stored
natives = natives_at(sys.argv[1])
waiting = set(natives.waiting().to_pylist())
left = [i for i in IDS if i not in waiting]
print("working", flush=True)
for start in range(0, len(left), 4):
    natives.store(NativeBatch.of(*stored(natives, left[start : start + 4])))
    if start % 40 == 0:
        natives.fold()
natives.fold()
"""


def test_a_killed_process_leaves_each_native_once_or_not_at_all(gallery):
    before, rng = table_of(gallery), random.Random(3)
    for _ in range(3):
        kill_while_storing(path_of(gallery), rng)
        rows = table_of(gallery)
        assert rows.keys() == before.keys()
        for row in rows.values():
            present = [row[name] is not None for name in ("v2", "v2__origin", "v2__input_hash")]
            assert all(present)
            if row["v2__origin"] == "native":
                assert_native(row)
            else:
                assert row == before[row["id"]]
    natives = natives_of(gallery)
    waiting = set(natives.waiting().to_pylist())
    left = [key for key in before if key not in waiting]
    natives.store(NativeBatch.of(*stored(natives, left)))
    natives.fold()
    for row in table_of(gallery).values():
        assert_native(row)


@pytest.mark.full
def test_many_batches_are_staged_and_move_a_wave_at_a_time(tmp_path):
    gallery = make(str(tmp_path / f"{STAGED_ROWS}.lance"), fragments=3, rows=ROWS)
    gallery.upgrade("v2", backfill=cs.Backfill(write_mode="move_rows"))
    natives = natives_of(gallery)
    natives.context = natives.context.with_run(replace(natives.context.run, backfill=0.01))
    batch = stored(natives, IDS[1:5])
    natives.store(NativeBatch.of(*batch))
    assert len(natives.waiting()) == 0, "one batch moves at once"
    natives = natives_of(gallery)
    for start in range(5, 53, 4):
        natives.store(NativeBatch.of(*stored(natives, IDS[start : start + 4])))
    assert len(natives.waiting()) == 48
    before = gallery.status().table_version
    assert natives.fold() == len([i for i in IDS[5:53] if i in table_of(gallery)])
    assert natives.wave_rows == 24
    assert gallery.status().table_version == before + 2 + 1, "two waves, and the index of ids"
    natives.store(NativeBatch.of(*batch))
    assert natives.fold() == 0, "what is in the table already is not moved again"


def kill_while_storing(path, rng):
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, path], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    time.sleep(rng.uniform(0.05, 0.6))
    process.send_signal(signal.SIGKILL)
    process.communicate()


def natives_at(path):
    """For the process that is killed, and for those that go on."""
    catalog = Catalog(Store.open(locate(path)))
    run = catalog.registry().runs["v2"]
    if STAGED_ROWS not in path:
        return Natives(UpgradeContext.of(catalog, run))
    natives_module.MARKED = 2
    natives = Natives(UpgradeContext.of(catalog, replace(run, backfill=1.0)), batch_rows=4)
    natives._rows.wave_rows = 24
    return natives


@pytest.fixture(autouse=True)
def _marked_as_ever(monkeypatch):
    monkeypatch.setattr(natives_module, "MARKED", natives_module.MARKED)


@pytest.mark.full
def test_by_rows_the_indexes_hold_every_row_afterwards(tmp_path):
    gallery = make(str(tmp_path / "g.lance"), fragments=2, rows=400)
    store = Store.open(locate(path_of(gallery)))
    indexes.build(store, "v1", indexes.VectorIndex("IVF_FLAT", "l2", 4))
    gallery.upgrade("v2", backfill=cs.Backfill(write_mode="move_rows"))
    natives = natives_of(gallery)
    natives.store(NativeBatch.of(*stored(natives, [f"item-{number:06d}" for number in range(100, 300)])))
    assert index_status(store, "v1").unindexed_rows == 198
    natives.fold()
    assert index_status(store, "v1").unindexed_rows == 0
    query = gallery.vectors(["item-000150"], "v1")[0]
    assert gallery.search(query, 1)["id"].to_pylist() == ["item-000150"]


def adopted(tmp_path, ids, encoder=None, **options):
    """A table that an app owns, in fragments of 200 rows, with v2 registered and a transform linked."""
    rng = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=len(ids) * 24).astype(np.float32)), 24)
    table = pa.table({"key": ids, "embedding": vectors, "number": pa.array(range(len(ids)))})
    path = str(tmp_path / "app.lance")
    lance.write_dataset(table, path, max_rows_per_file=200, **options)
    source = cs.EmbeddingVersion("v1", dim=24, metric="l2")
    gallery = cs.Gallery.adopt(path, source, vector="embedding", id="key")
    gallery.register(cs.EmbeddingVersion("v2", dim=TARGET.dim, metric="cosine", encoder=encoder))
    gallery.artifacts.link(artifact(gallery.version("v1"), gallery.version("v2")))
    return gallery


@pytest.mark.full
def test_an_adopted_table_keeps_its_rows_where_they_are_unless_told_otherwise(tmp_path):
    ids = [f"item-{number}" for number in range(400)]
    encoder = cs.encoders.Precomputed(dict(zip(ids, native_of(ids), strict=True)))
    gallery = adopted(tmp_path, ids, encoder)
    addresses = lance.dataset(path_of(gallery)).to_table(columns=["key"], with_row_address=True).to_pylist()
    assert gallery.upgrade("v2", backfill=0.1).backfilled == 40
    assert lance.dataset(path_of(gallery)).to_table(columns=["key"], with_row_address=True).to_pylist() == addresses
    plan = gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, write_mode="move_rows"), dry_run=True)
    assert "by rows" in next(step.note for step in plan.steps if step.name == "backfill")
    assert gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, write_mode="move_rows")).backfilled == 40
    after = lance.dataset(path_of(gallery)).to_table(columns=["key"], with_row_address=True).to_pylist()
    assert len({row["key"] for row in addresses} & {row["key"] for row in after}) == len(after) == 400
    assert sum(row not in addresses for row in after) == 40, "only the chosen rows moved"


@pytest.mark.parametrize("mode", MODES)
def test_repeated_ids_that_an_app_wrote_are_each_given_their_own_vector(tmp_path, mode):
    gallery = adopted(tmp_path, [f"item-{number}" for number in range(300)])
    table = lance.dataset(path_of(gallery)).to_table().slice(0, 3)
    other = table.schema.field("embedding")
    again = table.set_column(1, other, pa.array(np.ones((3, 24)).tolist(), other.type))
    lance.write_dataset(again, path_of(gallery), mode="append")
    gallery.upgrade("v2", backfill=cs.Backfill(write_mode=mode))
    natives = natives_of(gallery)
    rows = find(natives.context.catalog.store, "key", ["item-0", "item-1", "item-5"], ["key", "embedding"])
    assert rows.num_rows == 5
    vectors = rows["embedding"].combine_chunks().flatten().to_numpy().reshape(5, 24)[:, :1] + np.zeros((5, TARGET.dim))
    natives.store(NativeBatch.of(rows["key"].to_pylist(), vectors.astype(np.float32), hashes_of(natives, rows)))
    assert natives.fold() == 5
    table = lance.dataset(path_of(gallery)).to_table()
    assert table.num_rows == 303
    native = [row for row in table.to_pylist() if row["v2__origin"] == "native"]
    assert sorted(row["key"] for row in native) == ["item-0", "item-0", "item-1", "item-1", "item-5"]
    assert all(row["v2"][0] == row["embedding"][0] for row in native)


def test_a_table_whose_rows_cannot_move_is_backfilled_by_columns(tmp_path):
    gallery = adopted(tmp_path, [f"item-{number}" for number in range(300)], enable_stable_row_ids=True)
    with pytest.raises(cs.errors.InvalidInput, match=r"stable ids.*write_mode=.rewrite_columns"):
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.1, write_mode="move_rows"), dry_run=True)
    with pytest.raises(cs.errors.InvalidInput, match=r".auto. or .move_rows. or .rewrite_columns."):
        gallery.upgrade("v2", backfill=cs.Backfill(write_mode="quickly"))
    gallery.upgrade("v2")
    natives = natives_of(gallery)
    rows = find(natives.context.catalog.store, "key", ["item-7"], ["key", "embedding"])
    natives.store(NativeBatch.of(["item-7"], native_of(["item-7"]), hashes_of(natives, rows)))
    assert (natives.waiting().to_pylist(), natives.fold()) == (["item-7"], 1)


SHARES = {
    "few": (0.05, 0, "rows (it writes less)"),
    "many": (0.7, 0, "columns (no row moves)"),
    "some of wide rows": (0.1, 400, "rows (it writes less)"),
    "most of wide rows": (0.5, 400, "columns (no row moves)"),
}


@pytest.mark.full
@pytest.mark.parametrize(("share", "note", "way"), SHARES.values(), ids=SHARES)
def test_what_writes_less_is_taken_and_the_plan_says_how_much(tmp_path, share, note, way):
    rows, dim, rng = 12_000, 32, np.random.default_rng(0)
    ids = [f"item-{number:06d}" for number in range(rows)]
    native = rng.normal(size=(rows, dim)).astype(np.float32)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=dim))
    gallery.add({"id": ids, "vector": rng.normal(size=(rows, dim)), "note": [rng.bytes(note).hex() for _ in ids]})
    encoder = cs.encoders.Precomputed(dict(zip(ids, native, strict=True)))
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, encoder=encoder))
    gallery.artifacts.link(artifact(gallery.version("v1"), gallery.version("v2")))
    gallery.upgrade("v2")
    (step, *_) = gallery.upgrade("v2", backfill=share, dry_run=True).steps
    assert (step.name, step.rows) == ("backfill", int(rows * share))
    assert f"stored by {way}" in step.note
    before = files(gallery)
    gallery.upgrade("v2", backfill=share)
    after = files(gallery)
    staged = step.rows * (4 * dim + 8) if way.startswith("columns") else 0
    assert sum(after[name] for name in after.keys() - before.keys()) + staged == pytest.approx(step.bytes, rel=0.2)


def files(gallery):
    """Sizes of the table's own data, and of the marks of deleted rows."""
    folders = [Path(path_of(gallery), name) for name in ("data", "_deletions")]
    return {path: path.stat().st_size for folder in folders for path in folder.rglob("*")}
