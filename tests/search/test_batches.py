"""Several queries of one call are one Lance call, and find what each of them finds alone."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.storage import nearest
from compatstore.storage.indexes import VectorIndex, build
from tiers import few

ROWS, DIM = 700, 8


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)


def gallery_of(path, vectors, *, named="number", metric="l2", dtype="float32"):
    gallery = cs.Gallery.create(str(path / "g.lance"), cs.EmbeddingVersion("v1", dim=DIM, metric=metric, dtype=dtype))
    for start in range(0, ROWS, 300):
        rows = vectors[start : start + 300]
        ids = [f"i{start + number}" for number in range(len(rows))]
        gallery.add({"id": ids, "vector": rows, named: np.arange(start, start + len(rows))})
    return gallery


def alone(gallery, queries, **options):
    return [gallery.search(query, **options) for query in queries]


def of_query(found, number):
    return found.filter(np.equal(found["_query"].to_numpy(), number)).drop_columns(["_query"])


def assert_same(gallery, queries, **options):
    found = gallery.search(queries, **options)
    assert np.array_equal(found["_query"].to_numpy(), np.sort(found["_query"].to_numpy()))
    for number, one in enumerate(alone(gallery, queries, **options)):
        assert of_query(found, number).to_pydict() == one.to_pydict()


@pytest.mark.parametrize("metric", few(1, ["l2", "cosine", "dot"]))
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("where", [None, "number >= 20 AND number < 300", "number = 3", "number < 0"])
def test_queries_find_together_what_each_finds_alone(tmp_path, vectors, metric, dtype, where):
    gallery = gallery_of(tmp_path, vectors, metric=metric, dtype=dtype)
    gallery.delete(["i1", "i650"])
    assert_same(gallery, vectors[:7] + np.float32(0.1), k=5, where=where)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ"])
def test_so_they_do_in_an_index_and_beside_it(tmp_path, vectors, kind):
    gallery = gallery_of(tmp_path, vectors)
    parts_of = 4 if kind == "IVF_PQ" else None
    build(gallery._catalog.store, "v1", VectorIndex(kind, "l2", 4, parts_of))
    gallery.add({"id": ["late"], "vector": vectors[:1] + np.float32(0.1), "number": [ROWS]})
    assert_same(gallery, vectors[:7] + np.float32(0.1), k=5)


def test_a_column_with_the_name_that_lance_gives_to_queries_is_the_users(tmp_path, vectors):
    gallery = gallery_of(tmp_path, vectors, named=nearest.QUERY)
    assert_same(gallery, vectors[:7] + np.float32(0.1), k=5, where=f"{nearest.QUERY} > 10")


def test_more_queries_than_a_call_takes(tmp_path, vectors):
    gallery = gallery_of(tmp_path, vectors)
    queries = np.random.default_rng(1).normal(size=(2 * nearest.AT_ONCE + 3, DIM)).astype(np.float32)
    found = gallery.search(queries, k=1, columns=["id"])
    closest = ((queries[:, None] - vectors[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert found["id"].to_pylist() == [f"i{row}" for row in closest]
    assert found["_query"].to_pylist() == list(range(len(queries)))


def test_a_matrix_of_one_query_has_no_number(tmp_path, vectors):
    found = gallery_of(tmp_path, vectors).search(vectors[:1], k=2)
    assert "_query" not in found.schema.names
    assert found.num_rows == 2
