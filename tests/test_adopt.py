"""A LanceDB table is adopted in place: its app goes on as before, and what it writes ends up in the target version."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from lazily import Lazy

index = Lazy("lancedb.index")
lancedb = Lazy("lancedb")

ROWS, DIM = 20_000, 16
TEXT = pa.string()
V1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
TARGETS = {
    "another dimension": cs.EmbeddingVersion("v2", dim=24, metric="l2"),
    "the same dimension": cs.EmbeddingVersion("v2", dim=DIM, metric="l2", model="another model"),
}


def lists(matrix):
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def rows(numbers, seed=0, key=TEXT):
    """What the app writes: a key, a vector and a URI for each number."""
    matrix = np.random.default_rng([seed, *numbers[:1]]).normal(size=(len(numbers), DIM)).astype(np.float32)
    keys = pa.array([number if pa.types.is_integer(key) else f"photo-{number}" for number in numbers], key)
    uris = [f"s3://photos/{number}.jpg" for number in numbers]
    return pa.table({"key": keys, "embedding": lists(matrix), "uri": uris, "views": pa.array(numbers, pa.int64())})


class App:
    """The app that owns the table: plain LanceDB, one handle for good, and a memory of what must be there."""

    def __init__(self, database):
        self.table = lancedb.connect(database).open_table("photos")
        self.vectors = {row["key"]: row["embedding"] for row in self._read()}
        self.next = ROWS
        self.round = 0

    def _read(self):
        return self.table.to_arrow().select(["key", "embedding"]).to_pylist()

    def _remember(self, written):
        self.vectors |= dict(zip(written["key"].to_pylist(), written["embedding"].to_pylist(), strict=True))

    def work(self):
        """All that an app does, once, on other rows each time."""
        self.round += 1
        first = 1000 * self.round
        self.add(40)
        self.merge(rows([*range(first, first + 20), *range(self.next, self.next + 5)], self.round))
        self.next += 5
        self.merge(rows(range(first + 30, first + 40), self.round).select(["key", "embedding"]))
        self.count_views(first + 50)
        self.change(first + 60)
        self.remove(first + 70)
        self.search(first + 20)

    def add(self, count):
        new = rows(range(self.next, self.next + count), self.round)
        self.table.add(new)
        self._remember(new)
        self.next += count

    def merge(self, changed):
        """A full merge inserts too; a partial one, of fewer columns, updates."""
        merge = self.table.merge_insert("key").when_matched_update_all()
        if "uri" in changed.schema.names:
            merge = merge.when_not_matched_insert_all()
        merge.execute(changed)
        self._remember(changed)

    def count_views(self, number):
        self.table.update(where=f"key = 'photo-{number}'", values_sql={"views": "views + 1"})

    def change(self, number):
        vector = [float(self.round)] * DIM
        self.table.update(where=f"key = 'photo-{number}'", values={"embedding": vector})
        self.vectors[f"photo-{number}"] = vector

    def remove(self, number):
        self.table.delete(f"key = 'photo-{number}'")
        del self.vectors[f"photo-{number}"]

    def optimize(self):
        """LanceDB compacts what a handle last saw, and refuses when anybody wrote since: so look first."""
        self.table.checkout_latest()
        self.table.optimize()

    def search(self, number):
        """The nearest item of an item is itself, whether or not the app names its column."""
        vector = self.vectors[f"photo-{number}"]
        for query in (self.table.search(vector), self.table.search(vector, vector_column_name="embedding")):
            found = query.nprobes(8).refine_factor(20).limit(1).select(["key", "_distance"]).to_list()
            assert found[0]["key"] == f"photo-{number}"
            assert found[0]["_distance"] == 0.0

    def assert_nothing_is_lost(self):
        assert {row["key"]: row["embedding"] for row in self._read()} == self.vectors


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A table of an app with its own index, as it was before anybody heard of compatstore."""
    folder = tmp_path_factory.mktemp("app")
    table = lancedb.connect(folder).create_table("photos", rows(range(ROWS)))
    table.create_index(
        "embedding", config=index.IvfPq(num_partitions=8, num_sub_vectors=4, max_iterations=4, sample_rate=32)
    )
    return folder


@pytest.fixture
def database(template, tmp_path):
    shutil.copytree(template, tmp_path / "database")
    return tmp_path / "database"


@pytest.fixture
def unindexed(database):
    table = lancedb.connect(database).open_table("photos")
    table.drop_index(table.list_indices()[0].name)
    return database


@pytest.fixture
def small(tmp_path):
    """A table of 300 rows without an index."""
    lancedb.connect(tmp_path / "database").create_table("photos", rows(range(300)))
    return tmp_path / "database"


def adopt(database, target, artifact):
    gallery = cs.Gallery.adopt(f"{database}#photos", V1, vector="embedding", id="key", source="uri")
    gallery.register(target)
    gallery.artifacts.link(artifact)
    return gallery


def assert_target_follows(gallery, artifact):
    """Every item's target vector is the transform of its source vector as it is now."""
    found = gallery._catalog.store.snapshot().to_table(["key", "embedding", "v2", "v2__origin"])
    source = np.array(found["embedding"].to_pylist(), np.float32)
    target = gallery.vectors(found["key"].to_pylist(), "v2")
    assert np.allclose(target, artifact.apply(source).vectors, rtol=1e-5, atol=1e-5)
    assert set(found["v2__origin"].to_pylist()) == {artifact.short_id}


def test_adopting_rewrites_nothing(database, files):
    data = database / "photos.lance" / "data"
    indexes = database / "photos.lance" / "_indices"
    before, stats = files(data), {path.name: path.stat() for path in data.iterdir()}
    built = files(indexes)
    gallery = cs.Gallery.adopt(f"{database}#photos", V1, vector="embedding", id="key", source="uri")
    assert files(data) == before
    assert {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in data.iterdir()} == {
        name: (stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items()
    }
    assert built.items() <= files(indexes).items()
    assert len(gallery) == ROWS
    assert gallery.status().versions[0].native == ROWS


def live_through(gallery, app, artifact):
    """A whole upgrade, at every step of which the app does all that it does."""
    steps = []

    def meanwhile(progress):
        steps.append(progress.done)
        if len(steps) in (2, 5):
            app.work()

    app.work()
    report = gallery.upgrade("v2", progress=meanwhile)
    assert len(steps) > 5
    assert (report.state, report.missing) == ("ready", 0)
    assert_target_follows(gallery, artifact)

    app.work()
    assert gallery.status().versions[1].missing > 0
    assert gallery.cutover("v2").missing == 0
    assert_target_follows(gallery, artifact)

    app.work()
    caught_up = gallery.upgrade("v2")
    assert (caught_up.state, caught_up.missing) == ("cutover", 0)
    assert_target_follows(gallery, artifact)
    app.assert_nothing_is_lost()


@pytest.mark.full
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_the_app_goes_on_through_a_whole_upgrade(unindexed, linear, target):
    artifact, app = linear(V1, target), App(unindexed)
    gallery = adopt(unindexed, target, artifact)
    live_through(gallery, app, artifact)
    before = gallery.status().table_version
    assert gallery.upgrade("v2").transformed == 0
    assert gallery.status().table_version == before, "nothing to do writes nothing"
    app.optimize()
    app.work()
    gallery.upgrade("v2")
    assert_target_follows(gallery, artifact)
    app.assert_nothing_is_lost()
    app.search(15_000)


@pytest.mark.full
def test_the_apps_own_index_goes_on_too(database, files, linear):
    target = TARGETS["the same dimension"]
    artifact, app = linear(V1, target), App(database)
    index = app.table.list_indices()[0].name
    before = files(database / "photos.lance" / "data")
    gallery = adopt(database, target, artifact)
    live_through(gallery, app, artifact)
    assert app.table.index_stats(index).num_indexed_rows > ROWS - 500, "all but what the app changed"
    assert before.items() <= files(database / "photos.lance" / "data").items(), "an upgrade only adds files"
    assert ["v2"] in [listed.columns for listed in app.table.list_indices()], "the target has an index as well"
    app.search(15_000)
    query = gallery.vectors(["photo-15000"], "v2")[0]
    assert "photo-15000" in gallery.search(query, 10).column("key").to_pylist()


@pytest.mark.full
def test_an_app_that_never_stops_writing_loses_nothing(unindexed, linear):
    app, done, failures = App(unindexed), threading.Event(), []

    def live():
        while not done.is_set() and app.round < 10:
            try:
                app.work()
            except Exception as error:
                failures.append(error)
                return

    artifact = linear(V1, TARGETS["the same dimension"])
    gallery = adopt(unindexed, TARGETS["the same dimension"], artifact)
    thread = threading.Thread(target=live)
    thread.start()
    try:
        report = gallery.upgrade("v2")
        while not app.round and thread.is_alive():
            time.sleep(0.01)
    finally:
        done.set()
        thread.join()
    assert failures == []
    assert report.state == "ready"
    gallery.cutover("v2")
    assert_target_follows(gallery, artifact)
    app.assert_nothing_is_lost()


@pytest.mark.full
def test_an_optimised_table_is_hopped_on(small, linear):
    """Compaction in the middle of a hop renumbers the fragments that the hop was about to read."""
    table = lancedb.connect(small).open_table("photos")
    for number in range(300, 320):
        table.add(rows([number]))
    artifact = linear(V1, TARGETS["another dimension"])
    gallery = adopt(small, TARGETS["another dimension"], artifact)
    steps = []

    def meanwhile(progress):
        steps.append(progress.done)
        if len(steps) == 3:
            table.checkout_latest()
            table.optimize()

    assert gallery.upgrade("v2", progress=meanwhile).missing == 0
    assert len(gallery) == 320
    assert_target_follows(gallery, artifact)


@pytest.mark.full
def test_a_stopped_hop_goes_on_with_what_the_app_wrote_meanwhile(small, linear, monkeypatch):
    monkeypatch.setattr("compatstore.upgrade.engines.engine.WAVE_ROWS", 1)
    table = lancedb.connect(small).open_table("photos")
    for number in range(300, 305):
        table.add(rows([number]))
    artifact = linear(V1, TARGETS["the same dimension"])
    gallery = adopt(small, TARGETS["the same dimension"], artifact)
    asked = iter([False, False, True])
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", should_stop=lambda: next(asked))
    table.merge_insert("key").when_matched_update_all().execute(rows([0, 1, 302], seed=9))
    table.delete("key = 'photo-2'")
    table.add(rows([900]))
    gallery = cs.Gallery.open(f"{small}#photos")
    assert gallery.status().upgrades[0].state == "hop"
    assert gallery.upgrade("v2").missing == 0
    assert_target_follows(gallery, artifact)


KILLED = """
import os, signal, sys
import compatstore as cs
from compatstore.upgrade.engines import engine

engine.WAVE_ROWS, waves = 1, []

def kill(progress):
    waves.append(progress)
    if len(waves) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

cs.Gallery.open(sys.argv[1], lease_term=0.5).upgrade("v2", progress=kill)
"""


@pytest.mark.full
def test_a_killed_hop_goes_on_with_what_the_app_wrote_meanwhile(small, linear):
    table = lancedb.connect(small).open_table("photos")
    for number in range(300, 305):
        table.add(rows([number]))
    artifact = linear(V1, TARGETS["another dimension"])
    adopt(small, TARGETS["another dimension"], artifact)
    place = f"{small}#photos"
    command = [sys.executable, "-W", "ignore", "-c", KILLED, place]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    table.checkout_latest()
    assert 0 < table.count_rows("v2__origin IS NOT NULL") < 305, "it died between two waves"
    table.merge_insert("key").when_matched_update_all().execute(rows([0, 1, 302], seed=9))
    table.delete("key = 'photo-2'")
    table.add(rows([900]))
    written = table.to_arrow().select(["key", "embedding", "uri", "views"]).sort_by("key")
    gallery = cs.Gallery.open(place)
    assert gallery.status().upgrades[0].state == "hop"
    assert gallery.upgrade("v2").missing == 0
    assert_target_follows(gallery, artifact)
    assert gallery.maintenance.verify().clean
    table.checkout_latest()
    assert table.to_arrow().select(written.column_names).sort_by("key") == written


@pytest.mark.full
def test_only_changed_vectors_are_made_anew(small, linear):
    table = lancedb.connect(small).open_table("photos")
    gallery = adopt(small, TARGETS["another dimension"], linear(V1, TARGETS["another dimension"]))
    gallery.upgrade("v2")
    table.update(where="views < 100", values_sql={"views": "views + 1000"})
    assert gallery.upgrade("v2").transformed == 0
    table.merge_insert("key").when_matched_update_all().execute(rows([7, 8], seed=9))
    assert gallery.upgrade("v2").transformed == 2
    assert gallery.status().upgrades[0].state == "ready"
    table.update(where="key = 'photo-9'", values={"uri": "s3://photos/other.jpg"})
    assert gallery.upgrade("v2").transformed == 1, "another picture: its vector counts as stale"


@pytest.mark.full
def test_a_row_whose_vector_cannot_be_transformed_is_counted_and_holds_the_cutover(small, linear):
    table = lancedb.connect(small).open_table("photos")
    gallery = adopt(small, TARGETS["another dimension"], linear(V1, TARGETS["another dimension"]))
    table.add([{"key": "empty", "embedding": None, "uri": None, "views": 0}])
    assert gallery.upgrade("v2").missing == 1
    with pytest.raises(cs.errors.UpgradeError, match="1 items"):
        gallery.cutover("v2")
    assert gallery.active == "v1"
    table.delete("key = 'empty'")
    assert gallery.cutover("v2").missing == 0


@pytest.mark.full
@pytest.mark.parametrize("key", [pa.string(), pa.large_string(), pa.int64(), pa.int32()], ids=str)
def test_ids_of_any_type_live_through_an_upgrade(tmp_path, linear, key):
    database = tmp_path / "database"
    table = lancedb.connect(database).create_table("photos", rows(range(20), key=key))
    ids = table.to_arrow()["key"].to_pylist()
    new = rows([20, 21], key=key)
    native = np.random.default_rng(3).normal(size=(22, 24)).astype(np.float32)
    encoder = cs.encoders.Precomputed(dict(zip(ids + new["key"].to_pylist(), native, strict=True)))
    target = cs.EmbeddingVersion("v2", dim=24, metric="l2", encoder=encoder)
    gallery = adopt(database, target, linear(V1, target))
    assert gallery.upgrade("v2", backfill=0.5).backfilled == 10
    table.add(new)
    gallery.add({"id": [ids[0]], "vector": np.ones((1, DIM))}, upsert=True)
    assert gallery.cutover("v2").missing == 0
    assert gallery.get([ids[3], ids[1]]).column("key").to_pylist() == [ids[3], ids[1]]
    assert gallery.vectors([ids[0]], "v1").tolist() == [[1.0] * DIM]
    assert gallery.delete(ids[:2]) == 2
    with pytest.raises(cs.errors.InvalidInput, match="already in the gallery"):
        gallery.add({"id": [ids[5]], "vector": np.ones((1, 24))})
    assert len(gallery) == 20
    assert table.schema.field("key").type == key


def test_a_table_has_three_names(small):
    table = lancedb.connect(small).open_table("photos")
    cs.Gallery.adopt(table, V1, vector="embedding", id="key")
    for name in (table, f"{small}#photos", small / "photos.lance", str(small / "photos.lance")):
        assert len(cs.Gallery.open(name)) == 300


@pytest.mark.full
@pytest.mark.parametrize("dropped", [False, True])
def test_the_apps_column_goes_only_on_its_word(small, linear, dropped):
    table = lancedb.connect(small).open_table("photos")
    gallery = adopt(small, TARGETS["the same dimension"], linear(V1, TARGETS["the same dimension"]))
    gallery.upgrade("v2")
    gallery.cutover("v2")
    query = gallery.vectors(["photo-5"], "v2")[0]
    gallery.retire("v1", drop_adopted=dropped)
    table.checkout_latest()
    names = table.schema.names
    assert names[:4] == (["key", "uri", "views", "v2"] if dropped else ["key", "embedding", "uri", "views"])
    assert gallery.search(query, 1).column("key").to_pylist() == ["photo-5"]
    if not dropped:
        vector = rows(range(300))["embedding"][5].as_py()
        assert table.search(vector).limit(1).to_list()[0]["key"] == "photo-5"
    gallery.add({"id": ["new"], "vector": query[None] + 10, "uri": ["s3://photos/new.jpg"]})
    assert gallery.status().missing == 0


def test_retiring_the_target_leaves_the_table_as_the_app_made_it(small, linear):
    table = lancedb.connect(small).open_table("photos")
    before = table.schema
    gallery = adopt(small, TARGETS["the same dimension"], linear(V1, TARGETS["the same dimension"]))
    gallery.upgrade("v2")
    gallery.retire("v2")
    table.checkout_latest()
    assert table.schema == before
    assert gallery.active == "v1"
