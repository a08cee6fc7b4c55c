"""A search finds what comparing with every vector finds."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Artifact, Space

ROWS, DIM = 200, 12
IDS = [f"item-{number:03d}" for number in range(ROWS)]


def random(count, dim, seed):
    return np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32)


MATRIX, QUERIES = random(ROWS, DIM, 1), random(5, DIM, 2)


def unit(matrix):
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


DISTANCES = {
    "l2": lambda q, x: ((q[:, None] - x[None]) ** 2).sum(axis=2),
    "cosine": lambda q, x: 1 - unit(q) @ unit(x).T,
    "dot": lambda q, x: 1 - q @ x.T,
}


def make(folder, **settings):
    gallery = cs.Gallery.create(str(folder / "gallery.lance"), cs.EmbeddingVersion("v1", dim=DIM, **settings))
    gallery.add({"id": IDS, "vector": MATRIX, "number": range(ROWS)})
    return gallery


def assert_nearest(found, distances, k, ids=IDS):
    order = np.argsort(distances, kind="stable")[:k]
    assert found.column("id").to_pylist() == [ids[row] for row in order]
    assert np.allclose(found.column("_distance").to_numpy(), distances[order], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", DISTANCES)
def test_results_are_those_of_comparing_with_every_vector(tmp_path, metric):
    gallery = make(tmp_path, metric=metric)
    distances = DISTANCES[metric](QUERIES, MATRIX)
    for query, expected in zip(QUERIES, distances, strict=True):
        found = gallery.search(query, 7)
        assert_nearest(found, expected, 7)
        assert set(found.column("_version").to_pylist()) == {"v1"}
        assert set(found.column("_origin").to_pylist()) == {"native"}
    together = gallery.search(QUERIES, 7)
    for row, expected in enumerate(distances):
        one = together.filter(np.array(together.column("_query").to_numpy() == row))
        assert_nearest(one, expected, 7)
    assert gallery.search(QUERIES.tolist(), 7).equals(together)
    assert "_query" not in gallery.search(QUERIES[:1], 7).column_names


def test_float16_vectors_come_back_as_float32_and_search_the_same(tmp_path):
    gallery = make(tmp_path, metric="l2", dtype="float16")
    kept = MATRIX.astype(np.float16).astype(np.float32)
    read = gallery.vectors(IDS)
    assert read.dtype == np.float32
    assert np.array_equal(read, kept)
    found = gallery.search(QUERIES[0], 20)
    expected = DISTANCES["l2"](QUERIES[:1], kept)[0]
    # Near equals may change places, as distances are computed in half precision.
    assert np.allclose(found.column("_distance").to_numpy(), np.sort(expected)[:20], rtol=1e-2)


def test_a_condition_comes_before_the_neighbours(tmp_path):
    gallery = make(tmp_path, metric="l2")
    distances = DISTANCES["l2"](QUERIES[:1], MATRIX)[0]
    even = np.arange(ROWS) % 2 == 0
    found = gallery.search(QUERIES[0], 10, where="number % 2 = 0")
    assert_nearest(found, np.where(even, distances, np.inf), 10)
    assert gallery.search(QUERIES[0], 10, where="number < 3").num_rows == 3
    assert gallery.search(QUERIES[0], 10, where="number < 0").num_rows == 0
    either = gallery.search(QUERIES[0], 10, where="number = 1 OR number = 2")
    assert sorted(either.column("number").to_pylist()) == [1, 2]


def test_columns_are_those_asked_for(tmp_path):
    gallery = make(tmp_path)
    assert gallery.search(QUERIES[0]).column_names == ["id", "source", "number", "_distance", "_version", "_origin"]
    found = gallery.search(QUERIES[0], 2, columns=["number", "v1"])
    assert found.column_names == ["number", "v1", "_distance", "_version", "_origin"]


def test_more_than_there_is_gives_all_there_is(tmp_path):
    gallery = make(tmp_path)
    assert gallery.search(QUERIES[0], 10 * ROWS).num_rows == ROWS


def test_deleted_and_replaced_items_are_never_found(tmp_path):
    gallery = make(tmp_path, metric="l2")
    nearest = gallery.search(QUERIES[0], 3).column("id").to_pylist()
    gallery.delete(nearest[:1])
    gallery.add({"id": nearest[1:2], "vector": QUERIES[:1] + 100}, upsert=True)
    assert gallery.search(QUERIES[0], 1).column("id").to_pylist() == nearest[2:]
    assert nearest[0] not in gallery.search(QUERIES[0], ROWS).column("id").to_pylist()


@pytest.mark.full
def test_an_index_finds_the_same_when_all_of_it_is_searched(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), cs.EmbeddingVersion("v1", dim=DIM, metric="l2"))
    matrix = random(600, DIM, 3)
    ids = [str(number) for number in range(600)]
    gallery.add({"id": ids, "vector": matrix})
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=1)
    gallery.add({"id": ["new"], "vector": QUERIES[:1]})
    assert gallery.search(QUERIES[0], 1).column("id").to_pylist() == ["new"], "rows after the index are found too"
    gallery.delete(["new"])
    assert_nearest(gallery.search(QUERIES[0], 10), DISTANCES["l2"](QUERIES[:1], matrix)[0], 10, ids)


def test_a_query_adapter_searches_the_source_at_once(tmp_path, linear):
    gallery = make(tmp_path, metric="l2")
    target = cs.EmbeddingVersion("v2", dim=20, metric="l2")
    adapter = linear(gallery.version("v1"), target, "QueryAdapter")
    gallery.register(target)
    gallery.artifacts.link(adapter)
    query = random(1, 20, 4)
    found = gallery.search(query[0], 8, version="v2")
    assert_nearest(found, DISTANCES["l2"](adapter.apply(query).vectors, MATRIX)[0], 8)
    assert set(found.column("_version").to_pylist()) == {"v1"}
    assert f"through {adapter.short_id}" in str(gallery.explain(version="v2"))


@pytest.mark.full
def test_a_compatible_model_searches_the_source_as_it_is_and_new_rows_beside_it(tmp_path):
    gallery = make(tmp_path, metric="l2")
    native = random(ROWS, DIM, 5)
    encoder = cs.encoders.Precomputed(dict(zip(IDS, native, strict=True)))
    target = cs.EmbeddingVersion("v2", dim=DIM, metric="l2", encoder=encoder)
    gallery.register(target)
    gallery.artifacts.link(Artifact.create("Identity", source=Space.of(gallery.version("v1")), target=Space.of(target)))
    distances = DISTANCES["l2"](QUERIES[:1], MATRIX)[0]
    assert_nearest(gallery.search(QUERIES[0], 9, version="v2"), distances, 9)

    gallery.upgrade("v2", backfill=1.0)
    gallery.delete(IDS[:20])
    assert_nearest(
        gallery.search(QUERIES[0], 9, version="v2"),
        DISTANCES["l2"](QUERIES[:1], native[20:])[0],
        9,
        IDS[20:],
    )


def test_the_plan_says_where_it_looks(upgradable):
    one = upgradable.explain(k=3, where="number > 2")
    assert len(one.parts) == 1
    assert str(one).splitlines() == [
        "query in v1, 3 nearest, 1 part(s), merge: none",
        "  l2 on column v1 with the query as it is; number > 2",
    ]


@pytest.mark.full
def test_two_parts_never_find_an_item_twice(tmp_path, linear, monkeypatch):
    """Half an upgrade: rows with a target vector are found by it, the rest by their source vector."""
    monkeypatch.setattr("compatstore.upgrade.engines.engine.WAVE_ROWS", 1)
    monkeypatch.setattr("compatstore.storage.compaction.FEWEST", 99)  # four fragments stay four
    gallery = make(tmp_path, metric="l2")
    for part in range(3):
        gallery.add({"id": [f"more-{part}-{i}" for i in range(20)], "vector": random(20, DIM, 6 + part)})
    source, target = gallery.version("v1"), cs.EmbeddingVersion("v2", dim=20, metric="l2")
    gallery.register(target)
    gallery.artifacts.link(linear(source, target, "QueryAdapter"))
    gallery.artifacts.link(linear(source, target))
    asked = iter([False, False, True])
    with pytest.raises(cs.errors.Interrupted):
        gallery.upgrade("v2", should_stop=lambda: next(asked))
    found = gallery.search(random(1, 20, 4)[0], 500, version="v2")
    versions = found.column("_version").to_pylist()
    assert versions.count("v2") == gallery.status().versions[1].transformed == 220
    assert versions.count("v1") == gallery.status().versions[1].bridged == 40
    assert len(set(found.column("id").to_pylist())) == found.num_rows == 260
    assert "merge: reciprocal rank" in str(gallery.explain(version="v2"))
