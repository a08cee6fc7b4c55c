"""A search in one version ranks by shrunk distances as their definition says, in every state of an upgrade."""

from __future__ import annotations

import sys

import lance
import numpy as np
import pyarrow as pa
import pytest
from doubted_galleries import ROWS, SHORT, SHRINKAGE, Native, World, transform
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.artifacts.shrinkage import FIGURE
from compatstore.errors import InvalidInput, UpgradeError
from properties import examples

SAID = "shrunk by their predicted error"


def plain(world, query, k=ROWS):
    """Items by the distances that the table's own vectors have, as Lance ranks them."""
    nearest = {"column": "v2", "q": query, "k": k, "metric": world.metric}
    return lance.dataset(world.gallery.status().gallery).to_table(columns=["id"], nearest=nearest)["id"].to_pylist()


def ids(world, query, **asked):
    return world.gallery.search(query, k=ROWS, columns=["id"], **asked)["id"].to_pylist()


def ranked(world, query):
    return np.argsort(world.distances(query), kind="stable").tolist()


@pytest.mark.full
@pytest.mark.parametrize(
    ("metric", "share"), [("cosine", 0.0), ("cosine", 0.4), ("l2", 0.4), ("dot", 0.4), ("l2", 1.0)]
)
def test_the_nearest_by_shrunk_distance_are_found(tmp_path, metric, share):
    world = World(tmp_path, metric)
    world.gallery.upgrade("v2", backfill=cs.Backfill(share=share, order="sigma") if share else None)
    for condition, kept in ((None, np.ones(ROWS, bool)), ("even", np.arange(ROWS) % 2 == 0)):
        found = world.gallery.search(world.queries, k=7, version="v2", where=condition, columns=["id"])
        assert found.column_names == ["id", "_distance", "_version", "_origin", "_query"]
        for number, query in enumerate(world.queries):
            expected = np.where(kept, world.distances(query), np.inf)
            mine = found.filter(pa.compute.equal(found["_query"], number))
            assert mine["id"].to_pylist() == np.argsort(expected, kind="stable")[:7].tolist()
            np.testing.assert_allclose(mine["_distance"].to_numpy(), np.sort(expected)[:7], atol=2e-6)


@pytest.mark.full
@examples(25)
@given(first=st.integers(1, 80), k=st.integers(1, 80))
def test_only_the_first_candidates_change_places(tmp_path_factory, first, k):
    world = _world(tmp_path_factory)
    query = world.queries[0]
    candidates = plain(world, query, k=max(first, k))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["compatstore.search.execute"], "FIRST", first)
        found = world.gallery.search(query, k=k, version="v2", columns=["id"])
    distances = world.distances(query)
    assert found["id"].to_pylist() == sorted(candidates, key=lambda item: distances[item])[:k]


_made: list[World] = []


def _world(factory):
    """One gallery for all examples, as none changes it."""
    if not _made:
        _made.append(World(factory.mktemp("world")))
    return _made[0]


def test_columns_are_those_asked_for(tmp_path):
    world = World(tmp_path)
    columns = ["v2__uncertainty", "id"]
    found = world.gallery.search(world.queries[0], k=3, version="v2", columns=columns)
    assert found.column_names == [*columns, "_distance", "_version", "_origin"]
    own = world.gallery.search(world.source[0], k=3, version="v1")
    assert world.gallery.search(world.queries[0], k=3, version="v2").column_names == own.column_names


@pytest.mark.full
def test_native_vectors_are_searched_as_they_are(tmp_path):
    world = World(tmp_path)
    world.gallery.upgrade("v2", backfill=1.0)
    world.gallery.cutover("v2")
    world.gallery.retire("v1")
    assert ids(world, world.queries[0]) == plain(world, world.queries[0])


@pytest.mark.full
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_what_stays_transformed_is_shrunk_after_the_source_is_retired(tmp_path, share):
    world = World(tmp_path)
    world.gallery.upgrade("v2", backfill=share or None)
    world.gallery.cutover("v2")
    assert ranked(world, world.queries[0]) != plain(world, world.queries[0])
    for retired in (False, True):
        if retired:
            world.gallery.retire("v1")
        again = cs.Gallery.open(world.gallery.status().gallery)
        for gallery in (world.gallery, again):
            found = gallery.search(world.queries[0], k=7, columns=["id"])
            assert found["id"].to_pylist() == ranked(world, world.queries[0])[:7]


def test_the_plan_says_how_it_ranks(tmp_path):
    world = World(tmp_path)
    plan = world.gallery.explain(k=5, version="v2")
    assert (plan.k, plan.version, plan.versions, plan.shrinkage) == (5, "v2", ("v2",), True)
    assert SAID in str(plan)
    assert str(plan.using(cs.SearchSettings(nprobes=3))).count("nprobes") == 1
    assert SAID not in str(world.gallery.explain(k=5, version="v1"))


@pytest.mark.parametrize("artifact", [transform(shrinkage=None), transform(uncertainty=False, shrinkage=None)])
def test_a_transform_without_measured_errors_is_searched_as_it_is(tmp_path, artifact):
    world = World(tmp_path, artifact=artifact)
    assert not world.gallery.explain(version="v2").shrinkage
    assert ids(world, world.queries[0], version="v2") == plain(world, world.queries[0])


@pytest.mark.parametrize("dtype", ["float16", "bits"])
def test_vectors_of_other_types(tmp_path, dtype):
    random = np.random.default_rng(0)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=8, metric="cosine"))
    gallery.add({"id": [f"it's {n}" for n in range(30)], "vector": random.normal(size=(30, 8))})
    gallery.register(cs.EmbeddingVersion("v2", dim=16, metric="cosine", dtype=dtype))
    gallery.artifacts.link(transform(source=8, target=16), "v1", "v2")
    gallery.upgrade("v2")
    query = random.normal(size=16)
    found = gallery.search(query, k=30, version="v2")
    if dtype == "bits":
        assert SAID not in str(gallery.explain(version="v2"))
        assert found.num_rows == 30
        return
    vectors = np.array(gallery.vectors(found["id"].to_pylist(), "v2"), np.float64)
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    kept = (1 - found["_distance"].to_numpy()) / cosines
    assert np.ptp(kept) > 0.01
    assert min(kept) >= 0.4 - 1e-2
    assert max(kept) <= 1.3 + 1e-2


def test_queries_of_both_versions_are_ranked_in_one(tmp_path):
    world = World(tmp_path)
    both = {"v1": world.source[:4], "v2": world.queries}
    for serving, query in (("target", world.queries), ("source", world.source[:4])):
        name = "v2" if serving == "target" else "v1"
        alone = world.gallery.search(query, k=5, version=name, columns=["id"])
        assert world.gallery.search(both, k=5, columns=["id"], serving=serving) == alone
        assert world.gallery.search(query, k=5, version=name, columns=["id"], serving=serving) == alone
        other = {"v1": "v2", "v2": "v1"}[name]
        with pytest.raises(InvalidInput, match=f"a query of {name}"):
            world.gallery.search(both[other], version=other, serving=serving)


def test_a_version_of_an_upgrade_needs_one(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=2))
    gallery.add({"id": ["a"], "vector": [[0.0, 1.0]]})
    with pytest.raises(UpgradeError, match="an upgrade of v1"):
        gallery.search([0.0, 1.0], serving="source")
    for word in ("single", 3):
        with pytest.raises(InvalidInput):
            gallery.search([0.0, 1.0], serving=word)


def test_vectors_of_any_length_are_searched_as_they_are_where_lengths_count(tmp_path):
    source, target = (cs.EmbeddingVersion(name, dim=SHORT, metric="l2") for name in ("v1", "v2"))
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), source, id_type="int64")
    gallery.add({"id": [0, 1, 2], "vector": np.eye(3, SHORT)})
    gallery.register(target)
    network = Architecture(source_dim=SHORT, output_dim=SHORT, uncertainty=True)
    tensors = {f"h.{name}": np.ones(shape, np.float32) for name, shape in network.shapes().items()}
    space = Space(dim=SHORT)
    made = {"networks": {"h": network}, "tensors": tensors, "figures": {"h": {FIGURE: SHRINKAGE.figure()}}}
    gallery.artifacts.link(Artifact.create("ForwardTransform", source=space, target=space, **made), "v1", "v2")
    gallery.upgrade("v2")
    assert not gallery.explain(version="v2").shrinkage
    assert gallery.search(np.ones(SHORT), version="v2").num_rows == 3


@pytest.mark.full
def test_another_transform_takes_the_place_of_the_one_that_was_measured(tmp_path):
    world = World(tmp_path)
    world.gallery.cutover("v2")
    world.gallery.rollback("v2")
    other = transform(seed=1, shrinkage=None)
    world.gallery.artifacts.link(other, "v1", "v2")
    world.gallery.upgrade("v2", transform=other.id)
    query = world.queries[0]
    assert ids(world, query, version="v2") == plain(world, query)
    world.gallery.cutover("v2")
    assert ids(world, query) == plain(world, query)


def same(cache, world, k=7, **asked):
    """A cache finds what a search finds that compares the same candidates."""
    for query in (world.queries, world.queries[0]):
        expected = world.gallery.search(query, k=k, version="v2", columns=["id"], **asked)
        found = cache.search(query, k=k, columns=["id"], exact=True)
        assert found.drop_columns("_distance").equals(expected.drop_columns("_distance"))
        np.testing.assert_allclose(found["_distance"].to_numpy(), expected["_distance"].to_numpy(), atol=2e-6)
        near = cache.nearest(query, k=k)
        assert near.ids.ravel().tolist() == expected["id"].to_pylist()
        np.testing.assert_allclose(near.distances.ravel(), expected["_distance"].to_numpy(), atol=2e-6)


@pytest.mark.full
@pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
def test_a_cache_ranks_by_shrunk_distances_through_an_upgrade(tmp_path, metric):
    world = World(tmp_path, metric)
    gallery = world.gallery
    with gallery.cache("v2") as cache:
        graph = cache._state.held[0].graph
        same(cache, world)
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.4, order="sigma"))
        same(cache, world)
        where = cache.search(world.queries[0], k=3, where="even", columns=["id"], exact=True)["id"].to_pylist()
        asked = {"version": "v2", "where": "even", "columns": ["id"]}
        assert where == gallery.search(world.queries[0], k=3, **asked)["id"].to_pylist()
        gallery.cutover("v2")
        same(cache, world)
        assert cache._state.held[0].graph is graph  # what is read beside the vectors is there already
        gallery.delete([1, 2])
        gallery.maintenance.optimize()
        cache.sync()
        same(cache, world)
        gallery.retire("v1")
        same(cache, world)


@pytest.mark.full
def test_a_cascade_embeds_the_first_candidates_by_shrunk_distance(tmp_path):
    world = World(tmp_path)
    gallery, query = world.gallery, world.queries[0]
    found = ids(world, query, version="v2")
    own = plain(world, query)
    first = next(n for n in range(2, ROWS) if set(found[:n]) != set(own[:n]))
    none = cs.Cascade(first=first, in_all=0)
    assert ids(world, query, version="v2", serving=none) == found
    gallery = world.gallery = cs.Gallery.open(gallery.status().gallery, encoders={"v2": Native(world.native)})
    gallery.cutover("v2")
    plan = gallery.explain(k=5, serving=none)
    assert plan.candidates.shrinkage
    assert SAID in str(plan)
    native = np.argsort(-(world.native @ query), kind="stable").tolist()
    embedded = ids(world, query, serving=cs.Cascade(first=first))
    assert embedded[:first] == [item for item in native if item in found[:first]]
    assert embedded[first:] == found[first:]
    gallery.retire("v1")
    assert ids(world, query, serving=none) == ids(world, query)
