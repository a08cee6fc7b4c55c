"""The cache finds what `Gallery.search` finds, in every state of an upgrade and after every kind of write."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Artifact, Space
from compatstore.in_memory import graph as graphs
from compatstore.search import cache as caches
from galleries import SOURCE
from properties import examples
from states import IDS, ROWS, natives, open_with_encoder

METRICS = ("l2", "cosine", "dot")


def assert_same(cache, gallery, query, k=10, version=None, *, tied=False, **options):
    """Both give the same table: columns, types, rows and their order, but for distances that differ by rounding.

    Where one rounds, items at one distance may change places (`tied`), and at the last distance others may stand.
    """
    expected = gallery.search(query, k, version, **options)
    for exact in (True, False):
        found = cache.search(query, k, exact=exact, **options)
        assert found.schema.equals(expected.schema)
        assert found.num_rows == expected.num_rows
        near, truth = (table["_distance"].to_numpy() for table in (found, expected))
        assert np.allclose(near, truth, rtol=1e-5, atol=1e-5)
        assert int(found.schema.metadata[b"compatstore.table_version"]) == cache.table_version
        mine, theirs = (rows_of(table) for table in (found, expected))
        if exact and not tied:
            assert mine == theirs
        for number in {query for query, _ in theirs}:
            last = max(d for d, (q, _) in zip(truth, theirs, strict=True) if q == number) - 1e-4
            sets = [
                {row for d, (q, row) in zip(truth, rows, strict=True) if q == number and d < last}
                for rows in (mine, theirs)
            ]
            assert sets[0] == sets[1]


def rows_of(table):
    """(number of the query, all other columns but the distance) of each row."""
    numbers = table["_query"].to_pylist() if "_query" in table.column_names else [0] * table.num_rows
    rest = table.select([name for name in table.column_names if name not in ("_distance", "_query")])
    return [(number, str(row)) for number, row in zip(numbers, rest.to_pylist(), strict=True)]


def bridged(path, kind, metric, normalised):
    """A gallery of 60 items, two fifths of them native in v2, whose queries search the others in v1; and queries."""
    rng, ids = np.random.default_rng(0), [f"item-{number:02d}" for number in range(60)]
    dim = 6 if kind == "Identity" else 9
    stored, native = (rng.normal(size=(60, d)).astype(np.float32) for d in (6, dim))
    if normalised:
        stored, native = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (stored, native))
    encoder = cs.encoders.Precomputed(dict(zip(ids, native, strict=True)))
    v1 = cs.EmbeddingVersion("v1", dim=6, metric=metric, normalised=normalised)
    v2 = cs.EmbeddingVersion("v2", dim=dim, metric=metric, normalised=normalised, encoder=encoder)
    gallery = cs.Gallery.create(str(path / "g.lance"), v1)
    gallery.add({"id": ids, "vector": stored, "number": range(60)})
    gallery.register(v2)
    gallery.artifacts.link(Artifact.create(kind, source=Space.of(v1), target=Space.of(v2)))
    gallery.upgrade("v2", backfill=0.4)
    return gallery, native[:3] + np.float32(0.01)


@pytest.mark.parametrize("state", ["upgradable", "backfilling", "ready", "cutover"])
def test_in_each_state_of_an_upgrade(at, state):
    gallery = open_with_encoder(at(state))
    rng = np.random.default_rng(0)
    with gallery.cache("v1") as cache:
        queries = rng.normal(size=(3, SOURCE.dim)).astype(np.float32)
        assert_same(cache, gallery, queries, version="v1")
        assert_same(cache, gallery, queries[0], 7, "v1", where="number % 3 = 0", columns=["number"])
    if state != "upgradable":
        with gallery.cache("v2") as cache:
            assert_same(cache, gallery, natives()[:3] + np.float32(0.01), version="v2")


def test_a_retired_version_is_refused(at):
    path = at("cutover")
    gallery = open_with_encoder(path)
    cache = gallery.cache("v1")
    cs.Gallery.open(path).retire("v1")
    with pytest.raises(cs.errors.NotFound, match="version"):
        cache.nearest(np.zeros(SOURCE.dim))
    with pytest.raises(cs.errors.NotFound, match="version"):
        gallery.cache("v1")


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "metric", "normalised"), [("Identity", "l2", True), ("Prefix", "cosine", True), ("Prefix", "l2", False)]
)
def test_the_parts_of_a_plan_are_ranked_as_one_and_follow_a_backfill(tmp_path, kind, metric, normalised):
    gallery, queries = bridged(tmp_path, kind, metric, normalised)
    with gallery.cache("v2") as cache:
        assert_same(cache, gallery, queries, 20, "v2")
        assert_same(cache, gallery, queries[0], 60, "v2", where="number < 30", columns=["id"])
        before = cache.waiting
        gallery.upgrade("v2", backfill=0.8)
        assert_same(cache, gallery, queries, 20, "v2")
        assert cache.waiting > before
        gallery.upgrade("v2", backfill=1.0)
        gallery.cutover("v2")
        gallery.retire("v1")
        assert_same(cache, gallery, queries, 20, "v2")
        cache.sync()
        assert_same(cache, gallery, queries, 20, "v2")
        assert cache.waiting == 0


def test_queries_through_an_adapter(tmp_path, linear, vectors):
    v1, v2 = cs.EmbeddingVersion("v1", dim=4, metric="l2"), cs.EmbeddingVersion("v2", dim=6, metric="l2")
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), v1)
    gallery.add({"id": [f"i{n}" for n in range(50)], "vector": vectors(50)})
    gallery.register(v2)
    gallery.artifacts.link(linear(v1, v2, "QueryAdapter"))
    with gallery.cache("v2") as cache:
        assert_same(cache, gallery, vectors(2, 6, seed=3), 9, "v2")


WRITES = st.lists(
    st.tuples(
        st.sampled_from(["add", "upsert", "delete", "optimize", "sync", "drop"]), st.integers(0, 59), st.integers(1, 25)
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.full
@examples(5)
@given(
    writes=WRITES,
    metric=st.sampled_from(METRICS),
    dtype=st.sampled_from(["float32", "float16"]),
    id_type=st.sampled_from(["string", "int64"]),
    k=st.sampled_from([1, 5, 100]),
    seed=st.integers(0, 1000),
)
def test_after_any_writes(tmp_path_factory, writes, metric, dtype, id_type, k, seed):
    path = str(tmp_path_factory.mktemp("written") / "g.lance")
    version = cs.EmbeddingVersion("v1", dim=5, metric=metric, dtype=dtype)
    gallery, rng = cs.Gallery.create(path, version, id_type=id_type), np.random.default_rng(seed)

    def named(first, count):
        return [n if id_type == "int64" else f"item {n}, whose name is long" for n in range(first, first + count)]

    def whole(count):
        return rng.integers(-3, 4, (count, 5)) + 0.5  # many lie at one distance, and float16 holds them

    gallery.add({"id": named(0, 60), "vector": whole(60), "n": range(60)})
    added = 60
    with gallery.cache() as cache:
        for write, first, count in writes:
            if write == "add":
                gallery.add({"id": named(added, count), "vector": whole(count), "n": range(added, added + count)})
                added += count
            elif write == "upsert":
                gallery.add({"id": named(first, count), "vector": whole(count), "n": [7] * count}, upsert=True)
                added = max(added, first + count)
            elif write == "delete":
                gallery.delete(named(first, count))
            elif write == "drop":
                gallery.delete(named(0, added))
            elif write == "optimize":
                gallery.maintenance.optimize()
            else:
                cache.sync()
            tied = metric == "cosine"  # whole numbers and halves: only its square root is rounded
            assert_same(cache, gallery, whole(2), k, tied=tied)
            assert_same(cache, gallery, whole(1)[0], k, tied=tied, where="n < 20", columns=["id", "n"])
            found = cache.nearest(whole(3), k)
            assert found.table_version == cache.table_version
            assert found.ids.shape == found.distances.shape == (3, min(k, len(gallery)))
        assert len(cache) == len(gallery)
        assert gallery.maintenance.cache_size().rows == len(gallery)


@pytest.mark.full
def test_a_graph_that_is_walked_follows_deletions_and_changes(tmp_path, vectors, monkeypatch):
    monkeypatch.setattr(graphs, "FEW", 0)
    monkeypatch.setattr(graphs, "BREADTHS", (64,))
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=8, metric="l2"))
    ids, stored = np.array([f"i{n}" for n in range(3000)]), vectors(3000, 8)
    gallery.add({"id": ids, "vector": stored})
    with gallery.cache() as cache:
        assert cache.recall > 0.95
        gallery.delete(ids[::2].tolist())
        gallery.add({"id": ids[1::6], "vector": -stored[1::6]}, upsert=True)
        found = cache.nearest(stored[:50], 10)
        assert not set(ids[::2]) & set(found.ids.ravel())
        truth = gallery.search(stored[:50], 10, columns=["id"])
        assert (found.ids.ravel() == np.array(truth["id"].to_pylist())).mean() > 0.95
        assert np.median(np.abs(found.distances.ravel() - truth["_distance"].to_numpy())) < 1e-5
        assert cache.waiting == 500
        held = cache.bytes
        cache.sync()  # more than half of the graph does not count any more: it is built again
        assert cache.waiting == 0
        assert cache.bytes < held
        assert len(cache._state.held[0].graph) == len(gallery)
        assert_recall = cache.nearest(stored[:50], 10).ids == np.array(truth["id"].to_pylist()).reshape(50, 10)
        assert assert_recall.mean() > 0.95


@pytest.mark.full
def test_what_only_moved_keeps_its_place_in_the_graph(at):
    gallery = open_with_encoder(at("upgradable"))
    with gallery.cache("v1") as cache:
        gallery.upgrade("v2", backfill=0.5)  # moves rows, or rewrites the target's columns; v1 stays as it is
        gallery.maintenance.optimize()
        assert_same(cache, gallery, np.ones((2, SOURCE.dim)), version="v1")
        assert cache.waiting == 0
        assert len(cache._state.held[0].graph) == len(gallery)


@pytest.mark.full
def test_an_adopted_table_with_null_vectors_odd_names_and_a_stranger_that_writes(tmp_path, vectors):
    import lancedb

    rows = [
        {"the key": n, "my vector": None if n % 7 == 0 else vector.tolist(), "it's": f"{n}"}
        for n, vector in enumerate(vectors(60, 4))
    ]
    schema = pa.schema([("the key", pa.int32()), ("my vector", pa.list_(pa.float32(), 4)), ("it's", pa.large_string())])
    table = lancedb.connect(str(tmp_path / "app")).create_table("notes", rows, schema=schema)
    version = cs.EmbeddingVersion("v1", dim=4, metric="l2")
    gallery = cs.Gallery.adopt(table, version, vector="my vector", id="the key")
    query = vectors(1, 4, seed=5)[0]
    with gallery.cache() as cache:
        assert len(cache) == 51
        assert_same(cache, gallery, query, 100)
        table.add([{"the key": 99, "my vector": query.tolist(), "it's": "new"}])
        assert cache.nearest(query, 1).ids.tolist() == [[99]]
        table.delete("`the key` = 99")
        changed = [{"the key": 1, "my vector": query.tolist(), "it's": "changed"}]
        table.merge_insert("the key").when_matched_update_all().execute(changed)
        assert_same(cache, gallery, query, 3, where="`it's` = 'changed'")
        assert_same(cache, gallery, np.stack([query, -query]), 5)
        table.optimize()
        assert_same(cache, gallery, query, 5)


def test_an_empty_gallery_fills(tmp_path, vectors):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=4, metric="cosine"))
    with gallery.cache() as cache:
        assert cache.nearest(np.ones(4), 3).ids.shape == (1, 0)
        assert_same(cache, gallery, np.ones((2, 4)), columns=["id"])
        gallery.add({"id": ["a", "b"], "vector": vectors(2)})
        assert_same(cache, gallery, np.ones(4), columns=["id", "_distance"])
        cache.sync()
        assert_same(cache, gallery, np.ones((2, 4)), 1)


def test_memory_is_said_before_it_is_taken_and_bounded(tmp_path, vectors):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=16, metric="l2"))
    gallery.add({"id": [f"an id of some length {n}" for n in range(1000)], "vector": vectors(1000, 16)})
    said = gallery.maintenance.cache_size()
    assert said.total == said.vectors + said.graph + said.ids + said.beside
    assert (said.rows, said.vectors) == (1000, 64_000)
    assert "1000 items in 0.3 MiB" in str(said)
    with pytest.raises(cs.errors.InvalidInput, match="at most max_bytes"):
        gallery.cache(max_bytes=said.total - 1)
    with gallery.cache(max_bytes=said.total + 10_000) as cache:
        assert cache.bytes == said.total
        gallery.add({"id": [f"new {n}" for n in range(60)], "vector": vectors(60, 16, seed=1)})
        cache.sync()  # FAISS would double the graph's memory: the items stay beside it
        assert cache.waiting == 60
        assert cache.nearest(vectors(1, 16, seed=1)[0], 1).ids.tolist() == [["new 0"]]
        gallery.add({"id": [f"more {n}" for n in range(300)], "vector": vectors(300, 16, seed=2)})
        with pytest.raises(cs.errors.InvalidInput, match="at most max_bytes"):
            cache.nearest(np.zeros(16))
    with pytest.raises(cs.errors.InvalidInput, match="an open cache"):
        cache.nearest(np.zeros(16))


def test_what_gallery_search_refuses_is_refused(gallery, vectors):
    cache = gallery.cache()
    refused = [
        ({"k": 0}, "k >= 1"),
        ({"where": "n ="}, "a condition in SQL"),
        ({"where": "number < 5) OR (true"}, "one expression"),
        ({"columns": ["nothing"]}, "some of"),
        ({"fingerprint": "0" * 32}, "fingerprint"),
    ]
    for options, message in refused:
        with pytest.raises((cs.errors.InvalidInput, cs.errors.Incompatible), match=message):
            cache.search(vectors(1)[0], **options)
    with pytest.raises(cs.errors.InvalidInput, match="values"):
        cache.nearest([1.0])
    with pytest.raises(cs.errors.InvalidInput, match="NaN"):
        cache.nearest([np.nan] * 4)
    with pytest.raises(cs.errors.NotFound, match="version"):
        gallery.cache("v9")


@pytest.mark.parametrize("size", [1e38, 3e38, 1e-30, 1e-44])
def test_queries_whose_squares_overflow_or_vanish_warn_of_nothing(gallery, size, recwarn):
    cache, queries = gallery.cache(), np.full((2, 4), size, np.float32)
    assert [cache.nearest(query, 1).ids.shape for query in (queries[0], queries)] == [(1, 1), (2, 1)]
    assert not recwarn.list


def test_a_cache_says_what_it_is(gallery, vectors):
    cache = gallery.cache()
    assert f"{len(cache)} items, table version {cache.table_version}" in repr(cache)
    cache.close()
    assert "closed" in repr(cache)


def test_threads_search_while_rows_are_put_into_the_graph(tmp_path, vectors, monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr(graphs, "FEW", 0)
    monkeypatch.setattr(graphs, "BREADTHS", (64,))
    monkeypatch.setattr(caches, "AT_ONCE", 20)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=8, metric="l2"))
    stored = vectors(1500, 8)
    gallery.add({"id": [f"i{n}" for n in range(500)], "vector": stored[:500]})
    with gallery.cache() as cache, ThreadPoolExecutor(3) as threads:
        gallery.add({"id": [f"i{n}" for n in range(500, 1500)], "vector": stored[500:]})
        synced = threads.submit(cache.sync)
        found = [threads.submit(cache.nearest, stored[n], 1) for n in range(0, 1500, 7)]
        right = [one.result().ids.tolist() == [[f"i{n}"]] for n, one in zip(range(0, 1500, 7), found, strict=True)]
        assert np.mean(right) > 0.98
        assert synced.result() == cache.table_version
        assert cache.waiting == 0


def test_ids_of_every_item_are_found_by_their_own_vectors(at):
    gallery = open_with_encoder(at("ready"))
    with gallery.cache("v2") as cache:
        there = gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()
        found = cache.nearest(gallery.vectors(there, "v2"), 1)
    assert found.ids[:, 0].tolist() == there
    assert len(there) < len(IDS) == 2 * ROWS
