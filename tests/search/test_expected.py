"""A search by expected distance ranks what its definition says, in every state of an upgrade."""

from __future__ import annotations

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
from compatstore.search import ExpectedPlan
from compatstore.shown import view
from properties import examples


@pytest.mark.full
@pytest.mark.parametrize(
    ("metric", "share"), [("cosine", 0.0), ("cosine", 0.4), ("l2", 0.4), ("dot", 0.4), ("l2", 1.0)]
)
def test_the_nearest_by_expected_distance_are_found(tmp_path, metric, share):
    world = World(tmp_path, metric)
    world.gallery.upgrade("v2", backfill=cs.Backfill(share=share, order="sigma") if share else None)
    for condition, kept in ((None, np.ones(ROWS, bool)), ("even", np.arange(ROWS) % 2 == 0)):
        found = world.gallery.search(
            world.queries, k=7, version="v2", where=condition, columns=["id"], serving=cs.Expected(first=ROWS)
        )
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
    plain = world.gallery.search(query, k=max(first, k), version="v2", columns=["id"])["id"].to_pylist()
    found = world.gallery.search(query, k=k, version="v2", columns=["id"], serving=cs.Expected(first=first))
    distances = world.distances(query)
    assert found["id"].to_pylist() == sorted(plain, key=lambda item: distances[item])[:k]


_made: list[World] = []


def _world(factory):
    """One gallery for all examples, as none changes it."""
    if not _made:
        _made.append(World(factory.mktemp("world")))
    return _made[0]


def test_columns_are_those_asked_for(tmp_path):
    world = World(tmp_path)
    columns = ["v2__uncertainty", "id"]
    found = world.gallery.search(world.queries[0], k=3, version="v2", columns=columns, serving=cs.Expected())
    assert found.column_names == [*columns, "_distance", "_version", "_origin"]
    plain = world.gallery.search(world.queries[0], k=3, version="v2", serving=cs.Expected())
    assert plain.column_names == world.gallery.search(world.queries[0], k=3, version="v2").column_names


@pytest.mark.full
def test_native_vectors_are_searched_as_they_are(tmp_path):
    world = World(tmp_path)
    for version, query in (("v1", world.source[:2]), ("v2", world.queries)):
        if version == "v2":
            world.gallery.upgrade("v2", backfill=1.0)
            world.gallery.cutover("v2")
            world.gallery.retire("v1")
        plain = world.gallery.search(query, k=5, version=version)
        assert world.gallery.search(query, k=5, version=version, serving=cs.Expected()) == plain


@pytest.mark.full
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_what_stays_transformed_is_doubted_after_the_source_is_retired(tmp_path, share):
    world = World(tmp_path)
    world.gallery.upgrade("v2", backfill=share or None)
    world.gallery.cutover("v2")
    for retired in (False, True):
        if retired:
            world.gallery.retire("v1")
        found = world.gallery.search(world.queries[0], k=7, columns=["id"], serving=cs.Expected(first=ROWS))
        assert found["id"].to_pylist() == np.argsort(world.distances(world.queries[0]), kind="stable")[:7].tolist()


def test_the_plan_says_how_it_ranks(tmp_path):
    world = World(tmp_path)
    plan = world.gallery.explain(k=5, version="v2", serving=cs.Expected(first=20))
    assert isinstance(plan, ExpectedPlan)
    assert (plan.k, plan.candidates.k, plan.version, plan.versions) == (5, 20, "v2", ("v2",))
    assert "20 nearest" in str(plan)
    assert "expected of their native vectors" in str(plan)
    assert str(plan.using(cs.SearchSettings(nprobes=3))).count("nprobes") == 1


@pytest.mark.parametrize("artifact", [transform(shrinkage=None), transform(uncertainty=False, shrinkage=None)])
def test_a_transform_that_says_nothing_of_its_errors_is_refused(tmp_path, artifact):
    world = World(tmp_path, artifact=artifact)
    with pytest.raises(UpgradeError, match="predicts its own errors") as refused:
        world.gallery.search(world.queries, version="v2", serving=cs.Expected())
    assert artifact.short_id in refused.value.found
    assert world.gallery.search(world.queries, version="v2").num_rows == 40


@pytest.mark.parametrize("dtype", ["float16", "bits"])
def test_vectors_of_other_types(tmp_path, dtype):
    random = np.random.default_rng(0)
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=8, metric="cosine"))
    gallery.add({"id": [f"it's {n}" for n in range(30)], "vector": random.normal(size=(30, 8))})
    gallery.register(cs.EmbeddingVersion("v2", dim=16, metric="cosine", dtype=dtype))
    gallery.artifacts.link(transform(source=8, target=16), "v1", "v2")
    gallery.upgrade("v2")
    query = random.normal(size=16)
    if dtype == "bits":
        with pytest.raises(UpgradeError, match="vectors of values"):
            gallery.search(query, version="v2", serving=cs.Expected())
        return
    found = gallery.search(query, k=30, version="v2", serving=cs.Expected())
    plain = gallery.search(query, k=30, version="v2")
    assert sorted(found["id"].to_pylist()) == sorted(plain["id"].to_pylist())
    cosines = {
        item: 1 - distance
        for item, distance in zip(*(plain[name].to_pylist() for name in ("id", "_distance")), strict=True)
    }
    kept = [
        (1 - one) / cosines[item]
        for item, one in zip(*(found[name].to_pylist() for name in ("id", "_distance")), strict=True)
    ]
    assert np.ptp(kept) > 0.01
    assert min(kept) >= 0.4 - 1e-3
    assert max(kept) <= 1.3 + 1e-3


def test_queries_of_both_versions_are_ranked_in_one(tmp_path):
    world = World(tmp_path)
    both = {"v1": world.source[:4], "v2": world.queries}
    world.gallery.cutover("v2")
    asked = {"k": 5, "columns": ["id"], "serving": cs.Expected()}
    assert world.gallery.search(both, **asked) == world.gallery.search(world.queries, **asked)
    with pytest.raises(InvalidInput):
        world.gallery.search(both, version="v2", serving=cs.Expected())


def test_vectors_of_any_length_are_refused_where_lengths_count(tmp_path):
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
    with pytest.raises(UpgradeError, match="unit length, or cosine"):
        gallery.search(np.ones(SHORT), version="v2", serving=cs.Expected())


@pytest.mark.parametrize("first", [0, -1, 1.5, True, None, "10"])
def test_numbers_of_candidates_are_checked(first):
    with pytest.raises(InvalidInput):
        cs.Expected(first=first)


def ids(world, query, **asked):
    return world.gallery.search(query, k=ROWS, columns=["id"], **asked)["id"].to_pylist()


@pytest.mark.full
def test_searches_that_name_no_way_take_the_one_that_was_chosen(tmp_path):
    world = World(tmp_path)
    query = world.queries[0]
    world.gallery.upgrade("v2", backfill=0.4)
    switched = world.gallery.cutover("v2", serving="expected")
    assert (switched.active, switched.changed) == ("v2", True)
    assert not world.gallery.cutover("v2", serving="expected").changed
    plain, doubted = ids(world, query, serving="single"), ids(world, query, serving=cs.Expected())
    assert plain != doubted
    for retired in (False, True):
        if retired:
            world.gallery.retire("v1")
        else:
            assert world.gallery.status().upgrades[0].serving == "expected"
            assert ids(world, {"v2": query}) == doubted
            assert isinstance(world.gallery.explain(k=5, version="v1"), cs.search.SearchPlan)
        again = cs.Gallery.open(world.gallery.status().gallery)
        assert again.search(query, k=ROWS, columns=["id"])["id"].to_pylist() == doubted
        assert again.status().versions[1].expected == 100
        assert "searches in v2 rank their first 100 candidates by expected distances" in view(again.status())
        assert ids(world, query, serving="single") == plain
    assert not world.gallery.cutover("v2", serving="fused").changed  # a fusion ended with its source
    assert world.gallery.cutover("v2", serving="single").changed
    assert ids(world, query) == plain


@pytest.mark.full
def test_a_way_that_was_chosen_ends_with_the_version(tmp_path):
    world = World(tmp_path)
    world.gallery.cutover("v2", serving="expected")
    world.gallery.rollback("v2")
    world.gallery.abort("v2")
    world.gallery.upgrade("v2")
    assert world.gallery.status().versions[1].expected is None


def test_only_what_can_be_doubted_is_served_so(tmp_path):
    world = World(tmp_path, artifact=transform(shrinkage=None))
    with pytest.raises(UpgradeError, match="serve v2 by expected distances") as refused:
        world.gallery.cutover("v2", serving="expected")
    assert world.artifact.short_id in refused.value.found
    assert world.gallery.status().active == "v1"
    assert world.gallery.cutover("v2").active == "v2"


@pytest.mark.full
def test_searches_go_on_where_another_transform_has_taken_the_place_of_the_one_that_was_measured(tmp_path):
    world = World(tmp_path)
    world.gallery.cutover("v2", serving="expected")
    world.gallery.rollback("v2")
    other = transform(seed=1, shrinkage=None)
    world.gallery.artifacts.link(other, "v1", "v2")
    world.gallery.upgrade("v2", transform=other.id)
    query = world.queries[0]
    assert ids(world, query, version="v2") == ids(world, query, version="v2", serving="single")
    world.gallery.cutover("v2")
    assert ids(world, query) == ids(world, query, serving="single")
    assert world.gallery.status().versions[1].expected is None


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
@pytest.mark.parametrize(("metric", "first"), [("cosine", 20), ("l2", 1), ("dot", ROWS), ("l2", 20)])
def test_a_cache_ranks_by_expected_distances_through_an_upgrade(tmp_path, metric, first):
    world = World(tmp_path, metric)
    doubting, gallery = cs.Expected(first=first), world.gallery
    with gallery.cache("v2", serving=doubting) as cache:
        same(cache, world, serving=doubting)
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.4, order="sigma"))
        same(cache, world, serving=doubting)
        where = cache.search(world.queries[0], k=3, where="even", columns=["id"], exact=True)["id"].to_pylist()
        asked = {"version": "v2", "where": "even", "columns": ["id"], "serving": doubting}
        assert where == gallery.search(world.queries[0], k=3, **asked)["id"].to_pylist()
        gallery.delete([1, 2])
        gallery.maintenance.optimize()
        cache.sync()
        same(cache, world, serving=doubting)
        gallery.cutover("v2")
        gallery.retire("v1")
        same(cache, world, serving=doubting)
        assert "by expected distances" in repr(cache)


@pytest.mark.full
def test_a_cache_searches_by_the_way_that_was_chosen_from_the_next_search_on(tmp_path):
    world = World(tmp_path)
    world.gallery.upgrade("v2", backfill=0.4)
    with world.gallery.cache("v2") as cache, world.gallery.cache("v2", serving="single") as single:
        graph = cache._state.held[0].graph
        same(cache, world, serving="single")
        for way in ("expected", "single", "expected"):
            cs.Gallery.open(world.gallery.status().gallery).cutover("v2", serving=way)
            same(cache, world)
            same(cache, world, serving=cs.Expected() if way == "expected" else "single")
            same(single, world, serving="single")
        assert cache._state.held[0].graph is graph  # what is read beside the vectors is there already


@pytest.mark.full
def test_a_cache_refuses_what_cannot_be_doubted(tmp_path):
    world = World(tmp_path, artifact=transform(shrinkage=None))
    with pytest.raises(UpgradeError, match="predicts its own errors"):
        world.gallery.cache("v2", serving=cs.Expected())
    for word in ("fused", "cascade", "expected", 3, cs.Cascade()):
        with pytest.raises(InvalidInput):
            world.gallery.cache("v2", serving=word)


@pytest.mark.full
def test_a_cascade_embeds_the_first_candidates_by_expected_distance(tmp_path):
    world = World(tmp_path)
    gallery, query = world.gallery, world.queries[0]
    doubted, plain = ids(world, query, version="v2", serving=cs.Expected()), ids(world, query, version="v2")
    first = next(n for n in range(2, ROWS) if set(doubted[:n]) != set(plain[:n]))
    none = cs.Cascade(first=first, in_all=0)
    assert ids(world, query, version="v2", serving=none) == plain
    gallery = world.gallery = cs.Gallery.open(gallery.status().gallery, encoders={"v2": Native(world.native)})
    gallery.cutover("v2", serving="expected")
    assert ids(world, query, serving=none) == doubted
    plan = gallery.explain(k=5, serving=none)
    assert isinstance(plan.candidates, ExpectedPlan)
    assert "expected of their native vectors" in str(plan)
    native = np.argsort(-(world.native @ query), kind="stable").tolist()
    found = ids(world, query, serving=cs.Cascade(first=first))
    assert found[:first] == [item for item in native if item in doubted[:first]]
    assert found[first:] == doubted[first:]
    gallery.retire("v1")
    assert ids(world, query, serving=none) == ids(world, query)
