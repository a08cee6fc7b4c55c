"""Upgrades without a hop: the merge of both parts is measured on a sample, stored, used, and shown."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.evaluation import Merge
from compatstore.trainers import Pairs, Ridge
from compatstore.upgrade import resolve

ITEMS, CLASSES, WIDE = 160, 16, 8
IDS = [f"item-{number:03d}" for number in range(ITEMS)]


class World:
    """Items of classes in two spaces: the target is much wider, and better or worse than the source."""

    def __init__(self, source_noise=1.0, target_noise=0.4, seed=0):
        random = np.random.default_rng(seed)
        self.labels = random.integers(0, CLASSES, ITEMS)
        exact = random.normal(size=(CLASSES, WIDE))[self.labels]
        self.v1, self.v2 = (
            (scale * (exact + noise * random.normal(size=exact.shape))).astype(np.float32)
            for scale, noise in ((1.0, source_noise), (30.0, target_noise))
        )

    def gallery(self, path, kind=None, **backfill):
        encoders = [cs.encoders.Precomputed(dict(zip(IDS, rows, strict=True))) for rows in (self.v1, self.v2)]
        v1, v2 = (
            cs.EmbeddingVersion(name, dim=WIDE, metric="l2", encoder=encoder)
            for name, encoder in zip(("v1", "v2"), encoders, strict=True)
        )
        gallery = cs.Gallery.create(str(path / "gallery.lance"), v1)
        gallery.add({"id": IDS, "vector": self.v1, "label": self.labels})
        gallery.register(v2)
        if kind == "Ridge":
            pairs = Pairs(self.v1, self.v2, source_version=v1, target_version=v2)
            gallery.artifacts.link(Ridge().fit(pairs).amended(seen=np.array([], np.uint64)))
        elif kind is not None:
            network = {}
            if kind == "QueryAdapter":  # the target's unit becomes the source's
                tensors = {"h.mixer.0.weight": np.eye(WIDE, dtype=np.float32) / 30, "h.mixer.0.bias": np.zeros(WIDE)}
                network = {"networks": {"h": Architecture(source_dim=WIDE, output_dim=WIDE)}, "tensors": tensors}
            gallery.artifacts.link(Artifact.create(kind, source=Space.of(v1), target=Space.of(v2), **network))
        gallery.upgrade("v2", backfill=cs.Backfill(**backfill), learn=None)
        return gallery

    def both(self):
        return {"v1": self.v1[:20], "v2": self.v2[:20]}


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture
def half(world, tmp_path):
    """Half of the items are native, and no artifact joins the two versions."""
    return world.gallery(tmp_path, share=1.0, max_rows=ITEMS // 2)


def precision(world, gallery, queries, **options):
    """Mean share of the five nearest others that are of the query's class."""
    found = gallery.search(queries, 6, columns=["label", "id"], **options)
    labels = np.array(found["label"].to_pylist()).reshape(-1, 6)
    own = np.array(found["id"].to_pylist()).reshape(-1, 6) == np.array(IDS[: len(labels)])[:, None]
    return ((labels == world.labels[: len(labels), None]) & ~own).sum() / (~own).sum()


@pytest.mark.full
def test_without_an_artifact_both_queries_search_one_part_each_by_calibrated_distances(world, half):
    merge = half.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    assert isinstance(merge, Merge)
    assert (merge.how, merge.bridge, merge.native_share, merge.num_queries) == ("calibrated", "", 0.5, ITEMS)
    assert merge.gain.low > 0
    assert merge.worth
    found = half.search(world.both(), 10)
    assert set(found["_version"].to_pylist()) == {"v1", "v2"}
    assert found.equals(half.search(world.both(), 10, serving="fused"))
    status_quo = precision(world, half, world.both()["v1"])
    assert precision(world, half, world.both()) > status_quo + 0.05
    assert half.search(world.both(), 10, serving="source").equals(half.search(world.both()["v1"], 10))
    said = str(half.explain())
    for part in ("query in v2 and v1", "merge: calibrated", "distances mapped into those of v2", "status quo +"):
        assert part in said


@pytest.mark.full
def test_a_source_is_embedded_by_both_models(world, half):
    half.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    one = {name: queries[3] for name, queries in world.both().items()}
    assert half.search(IDS[3], 7).equals(half.search(one, 7))
    with pytest.raises(cs.errors.InvalidInput, match="the same queries in each version"):
        half.search({"v1": world.v1[:2], "v2": world.v2[:3]}, 5)


@pytest.mark.full
def test_nothing_is_merged_before_it_was_chosen_and_by_no_other_upgrade(world, half, monkeypatch):
    both = world.both()
    assert half.search(both, 5).equals(half.search(both["v1"], 5))
    with pytest.raises(cs.errors.UpgradeError, match=r'gallery\.evaluate\("v2", weight="best"\)'):
        half.search(both, 5, serving="fused")
    half.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    began = half._catalog.registry().runs["v2"].started_at
    monkeypatch.setattr(resolve, "now", lambda: began)  # the next upgrade begins in the same second
    half.abort("v2")
    half.upgrade("v2", backfill=cs.Backfill(share=1.0, max_rows=40), learn=None)
    assert half.search(both, 5).equals(half.search(both["v1"], 5))


@pytest.mark.full
def test_a_merge_below_the_status_quo_is_kept_and_not_searched_by(tmp_path):
    world = World(source_noise=0.3, target_noise=3.0)
    gallery = world.gallery(tmp_path, share=1.0, max_rows=ITEMS // 2)
    merge = gallery.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    assert merge.gain.high < 0
    assert gallery.search(world.both(), 10).equals(gallery.search(world.v1[:20], 10))
    assert gallery.explain(world.both(), serving="fused").merge == "calibrated"


@pytest.mark.full
def test_the_merge_is_kept_with_the_gallery_while_natives_grow(world, half, tmp_path):
    merge = half.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    again = cs.Gallery.open(str(tmp_path / "gallery.lance"), encoders={"v2": half.version("v2").encoder})
    assert str(again.explain(world.both())) == str(half.explain(world.both()))
    again.upgrade("v2", backfill=cs.Backfill(share=1.0, max_rows=int(0.8 * ITEMS)), learn=None)
    assert again.explain(world.both()).chosen == merge
    again.upgrade("v2", backfill=cs.Backfill(share=1.0, max_rows=ITEMS))
    again.cutover("v2")
    again.retire("v1")
    assert set(again.search(world.v2[:3], 5)["_version"].to_pylist()) == {"v2"}
    assert again.search({"v1": world.v1[:3], "v2": world.v2[:3]}, 5).equals(again.search(world.v2[:3], 5))


@pytest.mark.full
def test_a_compatible_model_is_merged_by_distance_and_what_that_gains_is_measured(tmp_path):
    """Identity says that distances compare; here they are in another unit, which the sample shows."""
    world = World()
    gallery = world.gallery(tmp_path, "Identity", share=0.5)
    assert gallery.explain(version="v2").merge == "distance"
    assert "merge by rule" in str(gallery.explain(version="v2"))
    merge = gallery.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    assert (merge.how, merge.calibration) == ("distance", None)
    status_quo = precision(world, gallery, world.v1[:20], version="v1")
    assert (precision(world, gallery, world.v2[:20], version="v2") > status_quo) == merge.worth
    assert gallery.explain(version="v2").merge == "distance"
    assert f"merge {merge}" in str(gallery.explain(version="v2"))
    newer = Artifact.create(
        "Identity", source=Space.of(gallery.version("v1")), target=Space.of(gallery.version("v2")), method="newer"
    )
    gallery.artifacts.link(newer)
    assert "merge by rule" in str(gallery.explain(version="v2"))  # another artifact's merge was measured


@pytest.mark.full
def test_adapted_queries_search_by_ranks_until_their_distances_are_calibrated(world, tmp_path):
    gallery = world.gallery(tmp_path, "QueryAdapter", share=0.5)
    assert gallery.explain(version="v2").merge == "reciprocal rank"
    before = precision(world, gallery, world.v2[:20], version="v2")
    merge = gallery.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    assert merge.bridge == gallery.artifacts[0].id
    assert gallery.explain(version="v2").merge == "calibrated"
    assert precision(world, gallery, world.v2[:20], version="v2") > before


@pytest.mark.full
def test_without_ground_truth_nothing_is_gained_and_searches_go_on_as_before(half):
    merge = half.evaluate("v2", sample=ITEMS, weight="best")
    assert (merge.truth, merge.gain, merge.worth) == ("", None, False)
    assert "not measured, as there is no ground truth" in str(merge)


def test_a_weight_needs_a_hop(half):
    with pytest.raises(cs.errors.InvalidInput, match="an upgrade with a hop"):
        half.evaluate("v2", weight=0.5)


@pytest.mark.full
def test_a_compatible_model_that_is_none_is_served_with_a_warning(tmp_path):
    """Queries in another unit and of a worse model search the source's vectors."""
    world = World(source_noise=0.3, target_noise=3.0)
    gallery = world.gallery(tmp_path, "Identity", share=0.0)
    gallery.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    said = str(gallery.explain(version="v2"))
    assert "warning: v2 merged with v1 is below the status quo" in said
    assert "correct by labels, at a native share of 0" in said
    assert gallery.status().upgrades[0].warnings == ()  # before the cutover v1 is served
    assert "warning" not in str(gallery.explain())
    gallery.cutover("v2")
    (warning,) = gallery.status().upgrades[0].warnings
    assert warning in str(gallery.explain())
    gallery.rollback()
    assert gallery.status().upgrades[0].warnings == ()


@pytest.mark.full
def test_a_hop_below_the_status_quo_is_served_with_a_warning_by_what_was_measured(tmp_path):
    world = World(source_noise=0.3, target_noise=3.0)
    gallery = world.gallery(tmp_path, "Ridge")
    fusion = gallery.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    assert fusion.choice.target_gain.high < 0
    assert "warning: v2 alone is below the status quo" in str(gallery.explain(version="v2"))
    assert gallery.status().upgrades[0].warnings == ()
    gallery.cutover("v2")
    (warning,) = gallery.status().upgrades[0].warnings
    assert warning.startswith("v2 alone is below the status quo: -")


def test_a_named_weight_below_the_status_quo_is_served_with_a_warning(tmp_path):
    world = World(source_noise=0.3, target_noise=3.0)
    gallery = world.gallery(tmp_path, "Ridge")
    fusion = gallery.evaluate("v2", labels="label", weight=0.95, sample=ITEMS)
    assert [choice.weight for choice in fusion.choices] == [0.95]
    assert "warning: the fused search over v1 and v2 is below the status quo" in str(gallery.explain())
    (warning,) = gallery.status().upgrades[0].warnings
    assert warning in str(gallery.explain())


@pytest.mark.full
def test_the_estimate_of_the_gates_warns_of_a_hop(tmp_path):
    world = World(source_noise=0.3, target_noise=3.0)
    gallery = world.gallery(tmp_path, "Ridge")
    assert "warning" not in str(gallery.explain(version="v2"))  # nothing was estimated
    gallery.abort("v2")
    gallery.upgrade("v2", gates=cs.Gates(labels="label", sample=ITEMS, require=("map>=0.01",)))
    assert "warning: v2 alone is below the status quo" in str(gallery.explain(version="v2"))


@pytest.mark.full
def test_what_is_better_than_the_status_quo_has_no_warning(world, tmp_path):
    gallery = world.gallery(tmp_path, "Ridge", share=1.0)
    gallery.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    gallery.cutover("v2")
    assert gallery.status().upgrades[0].warnings == ()
    assert "warning" not in str(gallery.explain(version="v2"))


@pytest.mark.full
def test_queries_that_an_artifact_leaves_without_a_direction_choose_no_merge(tmp_path):
    random = np.random.default_rng(5)
    native = random.normal(size=(ITEMS, 12)).astype("f4")
    native[::8, :WIDE] = 0.0
    stored = native[:, :WIDE] + 0.1 * random.normal(size=(ITEMS, WIDE)).astype("f4")
    v1 = cs.EmbeddingVersion("v1", dim=WIDE, metric="cosine", model="prefix of v2")
    v2 = cs.EmbeddingVersion(
        "v2", dim=12, metric="cosine", encoder=cs.encoders.Precomputed(dict(zip(IDS, native, strict=True)))
    )
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), v1)
    gallery.add({"id": IDS, "vector": stored})
    gallery.register(v2)
    gallery.artifacts.link(Artifact.create("Prefix", source=Space.of(v1), target=Space.of(v2)))
    gallery.upgrade("v2", backfill=0.5, learn=None)
    assert gallery.evaluate("v2", sample=ITEMS, weight="best").num_queries == ITEMS - ITEMS // 8
