"""Both versions as one, by shrunk distances: searched, measured and chosen alike."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import lance
import numpy as np
import pyarrow as pa
import pytest
from doubted_galleries import ROWS, SHORT, SHRINKAGE, World, transform

import compatstore as cs
from compatstore.errors import CorruptArtifact
from compatstore.evaluation.fusion import Fusion, Standardisation
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.evaluation.whole import WholeSearch
from compatstore.search import fusion as fusion_module
from compatstore.search.fusion import search_fused
from compatstore.search.plan import plan_both
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.queries import read_gallery
from lazily import Lazy

pytestmark = pytest.mark.full

metrics = Lazy("sklearn.metrics")

APART = {
    "source": Standardisation(mean=-0.1, deviation=0.3),
    "native": Standardisation(mean=-0.2, deviation=0.4),
    "transformed": Standardisation(mean=0.1, deviation=0.2),
    "correlation": 0.5,
    "native_share": 0.4,
    "candidates": 1,
}


def fused(world, fusion, row, condition=None):
    """The fused distance of every item, from the definition alone: infinite where it is not to be found."""
    table = world.gallery.get(list(range(ROWS)), ["v2__origin", "v1"])
    native = np.array([origin == "native" for origin in table["v2__origin"].to_pylist()])
    queries = {"v1": world.source[row], "v2": world.queries[row]}
    lances = {"v2": world.distances(queries["v2"])}
    near = queries["v1"].astype(np.float64) @ np.stack(table["v1"].to_numpy()).T.astype(np.float64)
    lances["v1"] = 1 + queries["v1"].astype(np.float64) @ queries["v1"] - 2 * near if world.metric == "l2" else 1 - near
    squares = {name: query.astype(np.float64) @ query for name, query in queries.items()}
    z = {
        name: lances[name] - (squares[name] if world.metric == "l2" else 1.0)  # what a query adds counts nowhere
        for name in lances
    }
    share = np.array([fusion.native_share, 1 - fusion.native_share])
    means, deviations = (
        np.array([getattr(kind, name) for kind in (fusion.native, fusion.transformed)])
        for name in ("mean", "deviation")
    )
    mean, square = share @ means, share @ (deviations**2 + means**2)
    right = (z["v2"] - mean) / np.sqrt(square - mean**2)
    if fusion.per_origin:
        right = (z["v2"] - np.where(native, *means)) / np.where(native, *deviations)
    left = (z["v1"] - fusion.source.mean) / fusion.source.deviation
    distances = (1 - fusion.weight) * left + fusion.weight * right
    return distances if condition is None else np.where(np.arange(ROWS) % 2 == 0, distances, np.inf)


def search_as_one(world, fusion, rows, k, where=None):
    catalog = world.gallery._catalog
    snapshot = catalog.store.snapshot()
    plan = plan_both(catalog.recorded(snapshot), "v1", "v2", fusion, k, where)
    assert plan.merge == "fused"
    queries = {"v1": world.source[rows], "v2": world.queries[rows]}
    return search_fused(catalog, snapshot, plan, queries, ["id"])


@pytest.mark.parametrize(
    ("metric", "per_origin", "weight"),
    [("cosine", False, 0.2), ("cosine", True, 0.8), ("l2", True, 0.2), ("l2", False, 0.8), ("dot", False, 0.2)],
)
@pytest.mark.parametrize("many", [1, 9])
def test_both_versions_as_one_are_ranked_by_shrunk_distances(tmp_path, monkeypatch, metric, per_origin, weight, many):
    """However few rows of each list are read at first, and by a scan: exactly as comparing with every vector does."""
    monkeypatch.setattr(fusion_module, "first_depth", lambda items, k: 2)
    monkeypatch.setattr(fusion_module, "MANY", many)
    world = World(tmp_path, metric)
    fusion = Fusion(weight=weight, per_origin=per_origin, shrinkage=True, **APART)
    for share in (0.0, 0.4, 1.0):
        world.gallery.upgrade("v2", backfill=cs.Backfill(share=share, order="sigma") if share else None)
        for condition in (None, "even"):
            found = search_as_one(world, fusion, slice(0, 4), 7, condition)
            for row in range(4):
                expected = fused(world, fusion, row, condition)
                mine = found.filter(pa.compute.equal(found["_query"], row))
                assert mine["id"].to_pylist() == np.argsort(expected, kind="stable")[:7].tolist()
                np.testing.assert_allclose(mine["_distance"].to_numpy(), np.sort(expected)[:7], atol=2e-5)
        doubted = search_as_one(world, fusion, slice(0, 4), ROWS)
        plain = search_as_one(world, replace(fusion, shrinkage=False), slice(0, 4), ROWS)
        assert (doubted["id"] == plain["id"]) == (share == 1)


def test_items_without_a_vector_in_the_target_are_found_as_before(tmp_path):
    world = World(tmp_path)
    world.gallery.upgrade("v2", backfill=0.4)
    late = pa.table({"id": [ROWS], "v1": pa.FixedSizeListArray.from_arrays(world.source[3], SHORT), "even": [False]})
    lance.write_dataset(late, world.gallery.status().gallery, mode="append")
    fusion = Fusion(weight=0.5, shrinkage=True, **APART)
    found = search_as_one(world, fusion, slice(3, 4), ROWS + 1)
    assert sorted(found["id"].to_pylist()) == list(range(ROWS + 1))
    near, far = APART["source"], APART["correlation"]
    alone = 0.5 * (-1.0 - near.mean) / near.deviation * (1 + far)
    mine = found.filter(pa.compute.equal(found["id"], ROWS))
    assert (mine["_version"].to_pylist(), mine["_distance"].to_pylist()) == (["v1"], [pytest.approx(alone, abs=1e-5)])


def test_fuse_measures_shrunk_distances_where_the_transform_says_them(tmp_path):
    world = World(tmp_path)
    for share in (None, 0.4):
        world.gallery.upgrade("v2", backfill=share)
        chosen = world.gallery.evaluate("v2", sample=ROWS, weight=0.5)
        assert chosen.shrinkage
        both = {"v1": world.source[:4], "v2": world.queries}
        found = world.gallery.search(both, k=5, columns=["id"])
        assert found.equals(search_as_one(world, chosen, slice(0, 4), 5))
        for row in range(4):
            mine = found.filter(pa.compute.equal(found["_query"], row))["id"].to_pylist()
            assert mine == np.argsort(fused(world, chosen, row), kind="stable")[:5].tolist()
        assert "standardised shrunk distances" in str(world.gallery.explain(both, k=5))
    # The constants are of what is compared, over all queries and items but a query's own.
    made, others = world.artifact.apply(world.source), ~np.eye(ROWS, dtype=bool)
    kept = np.interp(np.log(made.uncertainty), SHRINKAGE.log_sigma2, SHRINKAGE.factors)
    doubted = -(world.native.astype(np.float64) @ made.vectors.T) * kept
    assert chosen.transformed.mean == pytest.approx(doubted[others].mean(), abs=1e-6)
    assert chosen.native.mean == pytest.approx(-(world.native @ world.native.T)[others].mean(), abs=1e-6)


def test_a_weight_of_one_version_is_its_search_as_it_is(tmp_path):
    world = World(tmp_path)
    both, asked = {"v1": world.source[:4], "v2": world.queries}, {"k": 5, "columns": ["id"]}
    for weight, (version, query) in zip((0.0, 1.0), both.items(), strict=True):
        assert world.gallery.evaluate("v2", sample=ROWS, weight=weight).shrinkage
        found = world.gallery.search(both, serving="fused", **asked)
        assert found.equals(world.gallery.search(query, version=version, **asked))


def test_a_transform_that_says_nothing_is_fused_by_its_distances(tmp_path):
    world = World(tmp_path, artifact=transform(shrinkage=None))
    chosen = world.gallery.evaluate("v2", sample=ROWS, weight=0.5)
    assert not chosen.shrinkage
    doubted = search_as_one(world, replace(chosen, shrinkage=True), slice(0, 4), ROWS)
    assert doubted.equals(search_as_one(world, chosen, slice(0, 4), ROWS))  # all factors are 1


def test_a_whole_gallery_is_measured_as_it_is_searched(tmp_path):
    """The report's figure of what is served is that of the searches, over all items."""
    world = World(tmp_path)
    world.gallery.upgrade("v2", backfill=0.4)
    chosen = world.gallery.evaluate("v2", sample=ROWS, weight=0.5)
    world.queries = world.native
    distances = np.array([fused(world, chosen, row) for row in range(ROWS)])
    others = ~np.eye(ROWS, dtype=bool)
    context = UpgradeContext.of(world.gallery._catalog, world.gallery._catalog.registry().runs["v2"])
    classes = np.arange(ROWS) % 3
    stored = lance.dataset(world.gallery.status().gallery).to_table(columns=["id"])["id"].to_numpy()
    search = WholeSearch(
        source=world.source,
        target=world.native,
        metrics=("cosine", "cosine"),
        relevance=relevance_from_labels(classes, classes[stored], np.argsort(stored), np.arange(ROWS)),
        fusion=chosen,
    )
    batches = partial(read_gallery, context, search.batch_rows, served=True, shrinkage=True)
    found = search.run(batches, (1, 5)).values["s/s & t"]
    right = classes[:, None] == classes[None]
    asked = [(right[row][others[row]], -distances[row][others[row]]) for row in range(ROWS)]
    np.testing.assert_allclose(found[-1], [metrics.average_precision_score(*one) for one in asked], atol=1e-9)
    assert found[0].tolist() == [float(correct[np.argmax(scores)]) for correct, scores in asked]


def test_artifacts_that_made_nothing_do_not_stand_in_the_way(tmp_path):
    """Another artifact between the same versions widens the bounds; one whose files are damaged is not needed."""
    world = World(tmp_path)
    fusion = Fusion(weight=0.5, shrinkage=True, **APART)
    found = search_as_one(world, fusion, slice(0, 4), 7)
    for other in (
        transform(seed=5, shrinkage=None),
        transform(seed=6, shrinkage=replace(SHRINKAGE, factors=(9, 3, 0))),
    ):
        world.gallery.artifacts.link(other, "v1", "v2")
        world.gallery = cs.Gallery.open(world.gallery.status().gallery)
        assert search_as_one(world, fusion, slice(0, 4), 7).equals(found)
    record = world.gallery._catalog.recorded().artifacts[other.id]
    (damaged,) = tmp_path.rglob(record.manifest)
    damaged.write_bytes(b"{}")
    world.gallery = cs.Gallery.open(world.gallery.status().gallery)
    assert search_as_one(world, fusion, slice(0, 4), 7).equals(found)
    used = world.gallery._catalog.recorded().artifacts[world.artifact.id]
    (gone,) = tmp_path.rglob(used.manifest)
    gone.unlink()
    world.gallery = cs.Gallery.open(world.gallery.status().gallery)
    with pytest.raises(CorruptArtifact, match=used.manifest[:12]):
        search_as_one(world, fusion, slice(0, 4), 7)
