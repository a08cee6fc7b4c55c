"""Versions that are stored as bits: searched by the signs that differ, under each metric's own distance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.encoders import Precomputed
from compatstore.errors import InvalidInput
from compatstore.storage.recall import Found
from tests.taught_galleries import CHEAP

ITEMS, DIM = 600, 64
IDS = [f"item-{row:03d}" for row in range(ITEMS)]
VECTORS = np.random.default_rng(0).standard_normal((ITEMS, DIM)).astype(np.float32)
SIGNS = np.where(VECTORS > 0, 1, -1).astype(np.float32)
QUERIES = np.random.default_rng(1).standard_normal((5, DIM)).astype(np.float32)
OF_QUERIES = np.where(QUERIES > 0, 1, -1).astype(np.float32)
PRODUCTS = OF_QUERIES @ SIGNS.T
DISTANCES = {"l2": 2 * DIM - 2 * PRODUCTS, "cosine": 1 - PRODUCTS / DIM, "dot": 1 - PRODUCTS}


def gallery_of(tmp_path, **version):
    path = str(tmp_path / "g.lance")
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=DIM, **{"dtype": "bits", **version}))
    gallery.add({"id": IDS, "vector": VECTORS})
    return gallery


@pytest.mark.parametrize("index", ["", "IVF_FLAT"])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_distances_are_those_of_the_metric_between_signs(tmp_path, metric, index):
    gallery = gallery_of(tmp_path, metric=metric)
    if index:
        built = gallery.maintenance.index().create(kind=index, num_partitions=4)
        assert (built.kind, built.metric) == (index, "hamming")
    nearest = np.sort(DISTANCES[metric], axis=1)[:, :8]
    everything = cs.SearchSettings(nprobes=4, refine=5) if index else None
    for number, query in enumerate(QUERIES):
        found = gallery.search(query, k=8, settings=everything)
        np.testing.assert_allclose(found["_distance"], nearest[number], atol=1e-5)
        rows = [IDS.index(id) for id in found["id"].to_pylist()]
        np.testing.assert_allclose(DISTANCES[metric][number, rows], found["_distance"], atol=1e-5)
    together = gallery.search(QUERIES, k=8, settings=everything)
    np.testing.assert_allclose(together["_distance"].to_numpy().reshape(5, 8), nearest, atol=1e-5)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_a_cache_finds_the_same(tmp_path, metric):
    gallery = gallery_of(tmp_path, metric=metric)
    with gallery.cache() as cache:
        found = cache.search(QUERIES[0], k=8, columns=["id"])
    np.testing.assert_allclose(found["_distance"], np.sort(DISTANCES[metric][0])[:8], atol=1e-5)


def test_what_is_kept_is_a_32nd_of_the_bytes_and_can_be_written_back(tmp_path):
    gallery = gallery_of(tmp_path)
    rows = gallery.get(IDS[:3], ["id", "v1"])
    assert rows.schema.field("v1").type == pa.list_(pa.uint8(), DIM // 8)
    np.testing.assert_array_equal(gallery.vectors(IDS), SIGNS)
    gallery.delete(IDS[:3])
    gallery.add(rows)
    gallery.add({"id": ["packed"], "vector": np.packbits(VECTORS[:1] > 0, axis=1)})
    np.testing.assert_array_equal(gallery.vectors([*IDS[:3], "packed"]), SIGNS[[0, 1, 2, 0]])
    assert gallery.maintenance.verify().clean


@pytest.mark.parametrize(
    ("vectors", "said"),
    [
        (np.full((1, DIM), np.nan), "NaN or inf"),
        (np.full((1, DIM), np.inf), "NaN or inf"),
        (np.ones((1, DIM // 8)), f"found {DIM // 8} values"),
        (np.ones((1, DIM // 8 + 1), np.uint8), f"found {DIM // 8 + 1} values"),
    ],
)
def test_what_has_no_signs_is_refused(tmp_path, vectors, said):
    gallery = gallery_of(tmp_path)
    with pytest.raises(InvalidInput, match=said):
        gallery.add({"id": ["new"], "vector": vectors})
    with pytest.raises(InvalidInput, match=said):
        gallery.search(vectors[0])


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_SQ", "IVF_HNSW_FLAT", "IVF_HNSW_SQ"])
def test_an_index_that_lance_has_not_for_bytes_is_refused(tmp_path, kind):
    gallery = gallery_of(tmp_path)
    with pytest.raises(InvalidInput, match="expected IVF_FLAT, for bits"):
        gallery.maintenance.index().create(kind=kind)
    assert not gallery.maintenance.index().status().kind


@pytest.mark.full
@pytest.mark.parametrize("source", ["IVF_PQ", "IVF_HNSW_SQ"])
def test_an_upgrade_to_bits_gets_an_index_that_there_is(tmp_path, source):
    gallery = gallery_of(tmp_path, dtype="float32")
    gallery.maintenance.index().create(kind=source, num_partitions=2)
    gallery.register("codes", dtype="bits")
    (built,) = [step for step in gallery.upgrade("codes", dry_run=True).steps if step.name == "index"]
    assert "IVF_FLAT" in built.note
    gallery.upgrade("codes")
    status = gallery.maintenance.index("codes").status()
    assert (status.kind, status.indexed_rows) == ("IVF_FLAT", ITEMS)
    assert status.recall > 0.9
    gallery.add({"id": ["late"], "vector": VECTORS[:1]})
    assert gallery.maintenance.index("codes").refresh().added == 1
    gallery.cutover("codes")
    assert gallery.maintenance.verify().clean


@pytest.mark.full
def test_a_version_of_floats_is_searched_beside_one_of_bits(tmp_path):
    encoders = [Precomputed(dict(zip(IDS, rows, strict=True))) for rows in (VECTORS, VECTORS[:, ::-1].copy())]
    gallery = gallery_of(tmp_path, encoder=encoders[0])
    gallery.register(cs.EmbeddingVersion("v2", dim=DIM, encoder=encoders[1]))
    gallery.upgrade("v2", backfill=0.5, learn=cs.Learn(first=100, candidates=CHEAP))
    fusion = gallery.evaluate("v2", weight=0.5, sample=300)
    assert fusion.weight == 0.5
    found = gallery.search({"v1": VECTORS[7], "v2": VECTORS[7, ::-1]}, k=1)
    assert found["id"].to_pylist() == [IDS[7]]


@pytest.mark.parametrize("dim", [4, 12])
def test_bits_come_in_eights(dim):
    with pytest.raises(InvalidInput, match="a multiple of 8"):
        cs.EmbeddingVersion("v1", dim=dim, dtype="bits")


@pytest.mark.full
def test_beside_an_app_s_column_of_as_many_bytes_bits_are_refused(tmp_path):
    import lancedb

    rows = [{"key": id, "vector": vector[:8]} for id, vector in zip(IDS, VECTORS, strict=True)]
    table = lancedb.connect(str(tmp_path / "db")).create_table("t", rows)
    gallery = cs.Gallery.adopt(table, cs.EmbeddingVersion("v1", dim=8), vector="vector", id="key")
    gallery.register(cs.EmbeddingVersion("v2", dim=64, dtype="bits", encoder=Precomputed({"item-000": VECTORS[0]})))
    with pytest.raises(InvalidInput, match="LanceDB distinguishes vectors by it"):
        gallery.upgrade("v2", backfill=1.0)
    assert gallery.maintenance.verify().clean


def test_of_neighbours_that_are_as_near_any_counts():
    table = pa.table({"_rowid": [5, 1, 2, 3], "_distance": [0.0, 2.0, 4.0, 4.0]})
    truth, other = Found.of(5, table), Found((1, 9, 7), (2.0, 4.0, 6.0))
    assert truth.rows == (1, 2, 3)
    assert (other.hits(truth, ties=True), other.hits(truth, ties=False)) == (2, 1)
