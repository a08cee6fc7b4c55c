"""Search settings of an index are measured when it is built, and searches with them find what exact search finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput
from compatstore.search.fusion import depth_of
from compatstore.storage import recall as recalls
from compatstore.storage.recall import GOAL, REFINES, choose_settings, measure_index
from compatstore.trainers import Pairs, Procrustes
from lazily import Lazy
from tiers import few

index = Lazy("lancedb.index")
lancedb = Lazy("lancedb")

ROWS, DIM = 3000, 32


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, DIM))
    return (centres[rng.integers(0, 40, ROWS)] + 0.7 * rng.normal(size=(ROWS, DIM))).astype(np.float32)


def gallery_of(path, vectors, metric="l2"):
    gallery = cs.Gallery.create(str(path / "g.lance"), cs.EmbeddingVersion("v1", dim=DIM, metric=metric))
    gallery.add({"id": [f"i{row}" for row in range(len(vectors))], "vector": vectors})
    return gallery


def record(gallery, name="v1"):
    return gallery._catalog.recorded().record(name)


def recall(gallery, queries, exact, **options):
    found = gallery.search(queries, k=10, columns=["id"], **options)["id"].to_numpy(zero_copy_only=False)
    return np.mean([len(set(mine) & set(truth)) / 10 for mine, truth in zip(found.reshape(-1, 10), exact, strict=True)])


@pytest.mark.parametrize(
    ("kind", "metric"),
    few(
        1,
        [
            ("IVF_PQ", "l2"),
            ("IVF_PQ", "cosine"),
            ("IVF_FLAT", "cosine"),
            ("IVF_SQ", "l2"),
            ("IVF_HNSW_FLAT", "l2"),
            ("IVF_HNSW_PQ", "cosine"),
            ("IVF_HNSW_SQ", "l2"),
        ],
    ),
)
def test_queries_from_outside_find_95_percent_of_their_neighbours(tmp_path, vectors, kind, metric):
    gallery = gallery_of(tmp_path, vectors, metric)
    queries = vectors[::30] + np.float32(0.1)
    exact = gallery.search(queries, k=10, columns=["id"])["id"].to_numpy(zero_copy_only=False).reshape(-1, 10)
    gallery.maintenance.index().create(kind=kind, num_partitions=16)
    assert record(gallery).recall >= GOAL
    assert recall(gallery, queries, exact) >= 0.95
    assert gallery.status().versions[0].recall == record(gallery).recall


@pytest.mark.full
def test_lances_own_settings_do_not(tmp_path, vectors):
    """What the measurement is for."""
    gallery = gallery_of(tmp_path, vectors)
    queries = vectors[::30] + np.float32(0.1)
    exact = gallery.search(queries, k=10, columns=["id"])["id"].to_numpy(zero_copy_only=False).reshape(-1, 10)
    gallery.maintenance.index().create(kind="IVF_PQ", num_partitions=16)
    assert recall(gallery, queries, exact, settings=cs.SearchSettings()) < 0.8
    assert record(gallery).search.refine is not None


@pytest.mark.full
def test_a_call_overrides_them_and_explain_shows_them(tmp_path, vectors):
    gallery = gallery_of(tmp_path, vectors)
    gallery.maintenance.index().create(kind="IVF_FLAT", num_partitions=16)
    assert f"index: nprobes {record(gallery).search.nprobes}" in str(gallery.explain())
    assert "index: nprobes 3, refine 2" in str(gallery.explain(settings=cs.SearchSettings(nprobes=3, refine=2)))
    one, all_cells = (cs.SearchSettings(nprobes=cells) for cells in (1, 16))
    assert gallery.search(vectors[:1], k=900, settings=one).num_rows < 900
    assert gallery.search(vectors[:1], k=900, settings=all_cells).num_rows == 900


@pytest.mark.parametrize("settings", [{"nprobes": 0}, {"refine": -1}, {"nprobes": 2.5}, {"refine": "all"}])
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(InvalidInput):
        cs.SearchSettings(**settings)


@pytest.mark.full
def test_the_cheapest_of_all_settings_is_found_by_searching_few_cells(tmp_path, vectors, monkeypatch):
    gallery, searched = gallery_of(tmp_path, vectors), list[int]()
    gallery.maintenance.index().create(kind="IVF_PQ", num_partitions=64)
    cells = gallery.maintenance.index().status().cells
    snapshot, columns = gallery._catalog.store.snapshot(), record(gallery).columns
    find = recalls.find_nearest

    def counting(table, nearest, *more, **options):
        searched.append(nearest.get("nprobes", 0))
        return find(table, nearest, *more, **options)

    monkeypatch.setattr(recalls, "find_nearest", counting)
    found = choose_settings(snapshot, columns, "l2", cells)
    assert max(searched) < cells
    sample = recalls._Sample.of(snapshot, columns, "l2")
    grid = [cs.SearchSettings(nprobes=probes, refine=refine) for refine in REFINES for probes in (4, 8, cells)]
    assert found == next(tried for tried in map(sample.measure, grid) if tried.recall >= GOAL)


@pytest.mark.full
def test_a_goal_that_is_out_of_reach_gets_the_best(tmp_path, vectors):
    gallery = gallery_of(tmp_path, vectors)
    gallery.maintenance.index().create(kind="IVF_PQ", num_partitions=16)
    found = choose_settings(gallery._catalog.store.snapshot(), record(gallery).columns, "l2", 16, goal=1.1)
    assert found.recall >= record(gallery).recall


def test_without_an_index_nothing_is_kept(tmp_path, vectors):
    gallery = gallery_of(tmp_path, vectors[:300])
    assert measure_index(gallery._catalog.store, "v1") is None
    assert record(gallery).search is None is record(gallery).recall


@pytest.mark.full
def test_the_same_index_gives_the_same_settings(tmp_path, vectors):
    gallery = gallery_of(tmp_path, vectors)
    gallery.maintenance.index().create(kind="IVF_PQ", num_partitions=16)
    before = record(gallery)
    measure_index(gallery._catalog.store, "v1")
    assert record(gallery).recall_at > before.recall_at
    assert replace(record(gallery), recall_at=before.recall_at) == before


@pytest.mark.full
def test_the_index_of_an_upgrade_is_measured(tmp_path, vectors):
    gallery = gallery_of(tmp_path, vectors)
    gallery.maintenance.index().create(kind="IVF_PQ", num_partitions=16)
    ids = [f"i{row}" for row in range(ROWS)]
    encoder = cs.encoders.Precomputed(dict(zip(ids, vectors[:, ::-1].copy(), strict=True)))
    gallery.register(cs.EmbeddingVersion("v2", dim=DIM, metric="l2", encoder=encoder))
    gallery.upgrade("v2", backfill=1.0)
    assert record(gallery, "v2").recall >= GOAL
    assert record(gallery, "v2").search is not None


@pytest.mark.full
def test_an_adopted_table_is_searched_as_well_as_its_index_allows(tmp_path, vectors):
    rows = [{"key": f"i{row}", "embedding": vector} for row, vector in enumerate(vectors)]
    table = lancedb.connect(tmp_path).create_table("app", rows)
    table.create_index("embedding", config=index.IvfPq(distance_type="l2", num_partitions=16, num_sub_vectors=4))
    version = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
    gallery = cs.Gallery.adopt(str(tmp_path / "app.lance"), version, vector="embedding", id="key")
    assert record(gallery).recall >= GOAL


@pytest.mark.full
def test_candidates_of_a_fused_search_compare_as_many_rows_as_a_search_does(tmp_path, vectors):
    """And both versions as one still find what an exact search of both finds."""
    turned = vectors @ np.linalg.qr(np.random.default_rng(1).normal(size=(DIM, DIM)))[0].astype(np.float32)
    gallery = gallery_of(tmp_path, vectors)
    ids = [f"i{row}" for row in range(ROWS)]
    encoder = cs.encoders.Precomputed(dict(zip(ids, turned, strict=True)))
    gallery.register(cs.EmbeddingVersion("v2", dim=DIM, metric="l2", encoder=encoder))
    versions = {"source_version": gallery.version("v1"), "target_version": gallery.version("v2")}
    gallery.artifacts.link(Procrustes().fit(Pairs(vectors[::2], turned[::2], **versions)))
    gallery.upgrade("v2")
    gallery.evaluate("v2", weight=0.5, sample=100)
    noise = np.random.default_rng(2).normal(size=(2, 100, DIM)).astype(np.float32)
    both = {"v1": vectors[::30] + 0.3 * noise[0], "v2": turned[::30] + 0.3 * noise[1]}
    exact = gallery.search(both, k=10, columns=["id"])["id"].to_numpy(zero_copy_only=False).reshape(-1, 10)
    for name in both:
        gallery.maintenance.index(name).create(kind="IVF_PQ", num_partitions=16)
    measured, plan = record(gallery, "v2").search.refine, gallery.explain()
    depth = depth_of(plan, ROWS, exact=False)
    assert 20 <= depth < 10 * measured
    assert plan.parts[1].settings.fetching(depth).refine * depth <= 10 * measured + depth
    assert recall(gallery, both, exact) >= 0.95
