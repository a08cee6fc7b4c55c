"""The cache beside another process that writes: every result is true of the table version that it states."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts.shrinkage import FIGURE, Shrinkage
from compatstore.in_memory import graph as graphs
from compatstore.storage.vector_form import to_floats, to_matrix
from compatstore.trainers import Pairs, Ridge

pytestmark = pytest.mark.full

DIM, ITEMS, WRITES = 6, 2500, 45

WRITER = f"""
import sys
import numpy as np
import compatstore as cs
gallery, rng, added = cs.Gallery.open(sys.argv[1]), np.random.default_rng(1), {ITEMS}
print("ready", flush=True)
sys.stdin.readline()
for number in range({WRITES}):
    some = [f"i{{n}}" for n in rng.choice(added, 20, replace=False)]
    vectors = rng.normal(size=(20, {DIM}))
    if number % 3 == 0:
        gallery.delete(some)
    elif number % 3 == 1:
        gallery.add({{"id": some, "vector": vectors}}, upsert=True)
    else:
        gallery.add({{"id": [f"i{{added + n}}" for n in range(20)], "vector": vectors}})
        added += 20
"""


def test_no_result_has_an_item_that_was_deleted_or_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "FEW", 100)  # so that the graph is walked
    path, rng = str(tmp_path / "g.lance"), np.random.default_rng(0)
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=DIM, metric="l2"))
    gallery.add({"id": [f"i{n}" for n in range(ITEMS)], "vector": rng.normal(size=(ITEMS, DIM))})
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    results, latest, done = [], [], threading.Event()
    with gallery.cache() as cache, writer:

        def search(seed):
            asked = np.random.default_rng(seed)
            while not done.is_set():
                queries = asked.normal(size=(2, DIM)).astype(np.float32)
                before = gallery.status().table_version if seed == 2 else 0
                if seed == 3:
                    table = cache.search(queries, 8, columns=["id"], exact=True)
                    version = int(table.schema.metadata[b"compatstore.table_version"])
                    ids, distances = table["id"].to_pylist(), table["_distance"].to_numpy()
                else:
                    found = cache.nearest(queries, 8)
                    ids, distances, version = found.ids.ravel().tolist(), found.distances.ravel(), found.table_version
                results.append((version, queries, ids, distances, seed == 3))
                latest.append(version - before)
                done.wait(0.01)

        def sync():
            while not done.is_set():
                cache.sync()
                done.wait(0.05)

        threads = [threading.Thread(target=search, args=(seed,)) for seed in (2, 3)] + [threading.Thread(target=sync)]
        writer.stdout.readline()
        for thread in threads:
            thread.start()
        writer.stdin.write("go\n")
        writer.stdin.flush()
        assert writer.wait() == 0
        done.set()
        for thread in threads:
            thread.join()
        results.append((cache.sync(), *end_of(cache, rng)))
    assert min(latest) >= 0  # never an earlier version than the latest as the search began
    versions = {version for version, *_ in results}
    assert len(versions) > 10
    tables = {version: items_of(gallery, version) for version in versions}
    for version, queries, ids, distances, exact in results:
        items = tables[version]
        assert set(ids) <= items.keys()
        stored = np.array([items[item] for item in ids])
        asked = np.repeat(queries, 8, axis=0)
        assert np.allclose(((stored - asked) ** 2).sum(axis=1), distances, rtol=1e-4, atol=1e-5)
        if exact:
            everything = np.array(list(items.values()))
            truth = [np.sort(((everything - query) ** 2).sum(axis=1))[:8] for query in queries]
            assert np.allclose(np.concatenate(truth), distances, rtol=1e-4, atol=1e-5)


BACKFILLER = """
import sys
import numpy as np
import compatstore as cs
native = np.load(sys.argv[2])
encoder = cs.encoders.Precomputed({f"i{n}": vector for n, vector in enumerate(native)})
gallery = cs.Gallery.open(sys.argv[1], encoders={"v2": encoder})
print("ready", flush=True)
sys.stdin.readline()
for number in range(12):
    gallery.upgrade("v2", backfill=cs.Backfill(share=(number + 1) / 12, order="sigma"))
    gallery.delete([f"i{number}"])
    gallery.cutover("v2")
"""


def test_shrunk_distances_are_those_of_the_table_version_while_another_process_backfills(tmp_path):
    rng, rows = np.random.default_rng(0), 900
    native = rng.normal(size=(rows, DIM))
    native /= np.linalg.norm(native, axis=1, keepdims=True)
    source = native + 0.7 * rng.normal(size=(rows, DIM))
    source /= np.linalg.norm(source, axis=1, keepdims=True)
    np.save(tmp_path / "native.npy", native.astype(np.float32))
    encoder = cs.encoders.Precomputed({f"i{n}": vector for n, vector in enumerate(native.astype(np.float32))})
    v1 = cs.EmbeddingVersion("v1", dim=DIM, metric="cosine", normalised=True)
    v2 = cs.EmbeddingVersion("v2", dim=DIM, metric="cosine", normalised=True, encoder=encoder)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), v1)
    gallery.add({"id": [f"i{n}" for n in range(rows)], "vector": source})
    gallery.register(v2)
    made = Ridge(penalties=(0.01,)).fit(Pairs(source, native, source_version=v1, target_version=v2))
    curve = Shrinkage((-1.0, 0.0, 1.0, 2.0), (1.2, 1.0, 0.7, 0.5), 1.0)
    gallery.artifacts.link(made.amended(figures={"h": {FIGURE: curve.figure()}}))
    gallery.upgrade("v2")
    command = [sys.executable, "-c", BACKFILLER, str(tmp_path / "g.lance"), str(tmp_path / "native.npy")]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    results = []
    with gallery.cache("v2") as cache, writer:
        writer.stdout.readline()
        writer.stdin.write("go\n")
        writer.stdin.flush()
        while writer.poll() is None:
            query = native[rng.integers(0, rows)].astype(np.float32)
            found = cache.search(query, 8, columns=["id"], exact=True)
            version = int(found.schema.metadata[b"compatstore.table_version"])
            results.append((version, query, found["id"].to_pylist(), found["_distance"].to_numpy()))
        assert writer.wait() == 0
    assert len({version for version, *_ in results}) > 10
    tables = {}
    for version, query, ids, distances in results:
        if version not in tables:
            tables[version] = shrinkage_in(gallery, version, curve)
        items, vectors, factors = tables[version]
        wanted = _ranked(1 - vectors @ query, 1 - factors * (vectors @ query), 100)
        np.testing.assert_allclose(distances, np.sort(wanted)[:8], atol=1e-5)
        places = [items.index(item) for item in ids]
        np.testing.assert_allclose(wanted[places], distances, atol=1e-5)


def _ranked(plain, expected, first):
    """Shrunk distances of the first candidates alone."""
    wanted = np.full(len(plain), np.inf)
    nearest = np.argsort(plain, kind="stable")[:first]
    wanted[nearest] = expected[nearest]
    return wanted


def shrinkage_in(gallery, version, curve):
    """Ids, vectors and factors of a table version."""
    snapshot = gallery._catalog.store.snapshot().checkout_version(version)
    table = snapshot.to_table(columns=["id", "v2", "v2__uncertainty", "v2__origin"])
    sigma2, origins = to_floats(table["v2__uncertainty"]), np.array(table["v2__origin"].to_pylist(), object)
    factors = np.where(origins == "native", 1.0, curve.at(sigma2))
    return table["id"].to_pylist(), to_matrix(table["v2"], DIM)[0].astype(np.float64), factors


def end_of(cache, rng):
    queries = rng.normal(size=(2, DIM)).astype(np.float32)
    table = cache.search(queries, 8, columns=["id"], exact=True)
    return queries, table["id"].to_pylist(), table["_distance"].to_numpy(), True


def items_of(gallery, version):
    """Vectors of a table version by their ids."""
    table = gallery._catalog.store.snapshot().checkout_version(version).to_table(columns=["id", "v1"])
    return dict(zip(table["id"].to_pylist(), to_matrix(table["v1"], DIM)[0], strict=True))
