"""A gallery is served by both versions of an upgrade as was chosen: when, by which weight, and when not."""

from __future__ import annotations

from dataclasses import replace

import lance
import numpy as np
import pytest
from two_spaces import ASKING, ITEMS, OUTSIDE, World

import compatstore as cs
from compatstore.evaluation import retrieval_metrics
from compatstore.storage.registry import KEY, Registry
from compatstore.upgrade import resolve
from compatstore.upgrade.estimates.fusing import save_fusion


@pytest.fixture(scope="module")
def world():
    return World()


def make_hopped(path):
    gallery = World().gallery(path)
    gallery.upgrade("v2")
    return gallery


def make_fused(path):
    make_hopped(path).evaluate("v2", labels="label", sample=ITEMS, weight="best")


@pytest.fixture
def hopped(world, tmp_path, copy_of):
    return cs.Gallery.open(str(copy_of(make_hopped, tmp_path / "gallery.lance")), encoders=world.encoders())


@pytest.fixture
def fused(world, tmp_path, copy_of):
    return cs.Gallery.open(str(copy_of(make_fused, tmp_path / "gallery.lance")), encoders=world.encoders())


def precision(world, gallery, queries, **options):
    """Mean over queries of the share of the ten results that are of the query's class."""
    found = gallery.search(queries, 10, columns=["label"], **options)
    hits = np.array(found["label"].to_pylist()) == np.repeat(world.asked, 10)
    return hits.mean()


def test_the_weight_is_chosen_by_labels_and_serves_better_than_either_version(world, fused):
    both = world.both()
    status_quo = precision(world, fused, both["v1"], version="v1")
    hop = precision(world, fused, both["v2"], version="v2")
    served = precision(world, fused, both)
    assert served > max(status_quo, hop) + 0.01
    assert fused.search(both, 10).equals(fused.search(both, 10, serving="fused"))
    assert fused.search(both, 10, serving="source").equals(fused.search(both["v1"], 10))


def test_before_anything_was_chosen_nothing_is_fused(world, hopped):
    both = world.both()
    assert hopped.search(both, 5).equals(hopped.search(both["v1"], 5))
    with pytest.raises(cs.errors.UpgradeError, match=r'gallery\.evaluate\("v2", weight="best"\)'):
        hopped.search(both, 5, serving="fused")
    with pytest.raises(cs.errors.UpgradeError, match=r"gallery\.evaluate"):
        hopped.search(ASKING[0], 5, serving="fused")
    assert hopped.explain().merge == "none"


def test_a_source_is_embedded_by_both_versions(world, fused):
    found = fused.search(ASKING[3], 7)
    assert found.equals(fused.search(world.both(3), 7))
    assert found.equals(fused.search(ASKING[3], 7, serving="fused"))
    assert fused.search(ASKING[3], 7, serving="source").equals(fused.search(world.both(3)["v1"], 7))
    assert fused.search(ASKING[3], 7, version="v2").equals(fused.search(world.both(3)["v2"], 7, version="v2"))


def test_vectors_of_one_version_are_served_by_that_version(world, fused):
    both = world.both(2)
    assert set(fused.search(both["v1"], 5)["_version"].to_pylist()) == {"v1"}
    assert fused.search({"v2": both["v2"]}, 5).equals(fused.search(both["v2"], 5, version="v2"))
    with pytest.raises(cs.errors.InvalidInput, match="a query of each version"):
        fused.search(both["v1"], 5, serving="fused")
    with pytest.raises(cs.errors.InvalidInput, match="a query of each version"):
        fused.search({"v2": both["v2"]}, 5, serving="fused")


def test_a_program_without_one_of_the_encoders_is_served_by_one_version(world, fused, tmp_path):
    encoders = world.encoders()
    alone = cs.Gallery.open(str(tmp_path / "gallery.lance"), encoders={"v1": encoders["v1"]})
    with pytest.warns(cs.errors.CompatStoreWarning, match="v2 has no encoder here: this search is answered by v1"):
        assert alone.search(ASKING[3], 7).equals(fused.search(world.both(3)["v1"], 7))
    with pytest.warns(cs.errors.CompatStoreWarning):
        assert alone.explain(ASKING[3]).merge == "none"
    assert fused.explain(ASKING[3]).merge == "fused"
    with pytest.raises(cs.errors.InvalidInput, match="no encoder"):
        alone.search(ASKING[3], 7, serving="fused")


def test_what_was_chosen_is_stored_with_the_gallery_and_follows_it(world, fused, tmp_path):
    again = cs.Gallery.open(str(tmp_path / "gallery.lance"), encoders=world.encoders())
    both = world.both()
    before = fused.search(both, 10)
    assert again.search(both, 10).equals(before)
    again.cutover("v2")
    assert again.search(both, 10).equals(before)
    assert again.search(ASKING[0], 10)["id"].to_pylist() == before["id"].to_pylist()[:10]
    again.rollback()
    assert again.search(both, 10).equals(again.search(both["v1"], 10))


def test_after_the_source_is_retired_both_queries_are_answered_by_the_target(world, fused):
    fused.upgrade("v2", backfill=1.0)
    fused.cutover("v2")
    fused.retire("v1")
    both = world.both()
    for serving in (None, "fused", "target"):
        assert fused.search(both, 5, serving=serving).equals(fused.search(both["v2"], 5))
    assert fused.search(ASKING[0], 5).equals(fused.search(both["v2"][:1], 5))


@pytest.mark.full
def test_the_weight_grows_with_the_native_share(world, hopped):
    fusion = hopped.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    shares = [choice.native_share for choice in fusion.choices]
    assert shares == [0.0, 0.25, 0.5, 0.75, 1.0]
    hopped.upgrade("v2", backfill=0.5)
    plan = hopped.explain()
    assert plan.fusion.native_share == 0.5
    assert plan.fusion.weight == fusion.choices[2].weight
    assert plan.fusion.source == fusion.source
    hopped.upgrade("v2", backfill=1.0)
    assert hopped.explain(world.both(), serving="fused").version == "v2"
    notes = [entry.note for entry in hopped.maintenance.history() if entry.step == "fuse"]
    assert len(notes) == 3
    assert "at a native share of 0.5" in notes[1]


@pytest.mark.full
def test_a_choice_of_the_same_weight_is_followed_too(hopped):
    """A little more natives, and they are standardised apart."""
    hopped.upgrade("v2", backfill=0.22)
    first, *_ = hopped.evaluate("v2", labels="label", sample=ITEMS, weight="best").choices
    first = replace(first, weight=0.5, per_origin=False, native_share=0.1)
    choices = first, replace(first, per_origin=True, native_share=0.25)
    fusion = replace(hopped._catalog.registry().fusion_of("v2"), choices=choices).at(0.22)
    save_fusion(hopped._catalog, hopped._catalog.registry().runs["v2"], fusion, "label")
    assert hopped.explain().fusion.per_origin is False
    hopped.upgrade("v2", backfill=0.235)
    assert hopped.explain().fusion.per_origin is True


def test_an_upgrade_that_changes_no_share_writes_no_step(fused):
    steps = len(fused.maintenance.history())
    fused.upgrade("v2")
    assert len(fused.maintenance.history()) == steps


@pytest.mark.full
def test_a_hopeless_target_is_not_served(tmp_path):
    world = World(worse=0.05)
    world.v2[:] = np.random.default_rng(5).normal(size=world.v2.shape)
    gallery = world.gallery(tmp_path / "gallery.lance")
    gallery.upgrade("v2")
    fusion = gallery.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    assert (fusion.weight, fusion.choice.gain.value) == (0.0, 0.0)
    both = world.both()
    assert gallery.search(both, 5).equals(gallery.search(both["v1"], 5))
    assert gallery.search(both, 5, serving="fused").equals(gallery.search(both["v1"], 5, "v1"))
    assert gallery.explain().merge == "none"


@pytest.mark.full
def test_without_ground_truth_the_weight_is_the_agreement_of_the_column(hopped):
    fusion = hopped.evaluate("v2", sample=ITEMS, weight="best")
    assert {(choice.truth, choice.gain, choice.per_origin) for choice in fusion.choices} == {("", None, False)}
    weights = [choice.weight for choice in fusion.choices]
    assert weights == sorted(weights)
    assert weights[-1] == 0.9  # all is native; the source is heard until it is retired
    table = hopped.evaluate("v2", sample=ITEMS)
    assert fusion.choices[0].weight == pytest.approx(table.row("t/h").figures["agreement"].value, abs=0.01)


def test_a_weight_that_the_caller_names_stays(world, hopped):
    fusion = hopped.evaluate("v2", weight=0.3, sample=60)
    assert (fusion.weight, [choice.weight for choice in fusion.choices]) == (0.3, [0.3])
    hopped.upgrade("v2", backfill=0.5)
    assert hopped.explain().fusion.weight == 0.3
    assert "weight 0.3: " in str(hopped.explain())


def test_explain_says_strategy_weight_constants_candidates_and_price(fused):
    said = str(fused.explain(k=15, where="label > 3"))
    fusion = fused.explain().fusion
    for part in (
        f"merge: fused, {1 - fusion.weight:.4g} v1 + {fusion.weight:.4g} v2",
        "with the query of v2; label > 3",
        "candidates: threshold algorithm, exact",
        "correct by labels",
        "two embeddings and two searches",
        "the column of v1 is kept",
    ):
        assert part in said


def test_fingerprints_of_both_models_are_held_against_both_versions(world, fused):
    both = world.both(0)
    prints = {name: fused.version(name).fingerprint for name in both}
    assert fused.search(both, 5, fingerprint=prints).num_rows == 5
    with pytest.raises(cs.errors.Incompatible, match=r"model|fingerprint"):
        fused.search(both, 5, fingerprint={**prints, "v2": prints["v1"]})
    with pytest.raises(cs.errors.InvalidInput, match="a fingerprint for each version"):
        fused.search(both, 5, fingerprint=prints["v1"])


@pytest.mark.parametrize("wrong", [{}, {"v1": 0, "v2": 0, "v3": 0}])
def test_queries_of_no_version_and_of_three_are_refused(fused, wrong):
    with pytest.raises(cs.errors.InvalidInput, match="one version or two"):
        fused.search(wrong, 5)


def test_versions_that_no_upgrade_joins_are_refused(world, fused):
    fused.register(cs.EmbeddingVersion("v3", dim=10))
    with pytest.raises(cs.errors.InvalidInput, match="no upgrade between the two"):
        fused.search({"v1": world.v1[:1], "v3": world.v1[:1]}, 5)
    with pytest.raises(cs.errors.NotFound, match="version"):
        fused.search({"v1": world.v1[:1], "v9": world.v1[:1]}, 5)


@pytest.mark.full
def test_an_upgrade_that_has_not_begun_cannot_be_fused(world, tmp_path):
    gallery = world.gallery(tmp_path / "gallery.lance")
    with pytest.raises(cs.errors.UpgradeError, match=r'gallery\.upgrade\("v2"\)'):
        gallery.evaluate("v2", weight="best")
    with pytest.raises(cs.errors.NotFound, match="version"):
        gallery.evaluate("v9", weight="best")
    gallery.upgrade("v2")
    with pytest.raises(cs.errors.InvalidInput, match="choose how to search by cmc@1"):
        gallery.evaluate("v2", labels="label", criterion="cmc@1", sample=100, weight="best")
    assert (
        gallery.evaluate("v2", labels="label", criterion="cmc@1", sample=ITEMS, weight="best").choice.criterion
        == "cmc@1"
    )


def test_a_choice_holds_for_its_own_upgrade_alone(world, fused, monkeypatch):
    """Also where the next upgrade begins in the same second."""
    began = fused._catalog.registry().runs["v2"].started_at
    monkeypatch.setattr(resolve, "now", lambda: began)
    fused.abort("v2")
    fused.upgrade("v2")
    both = world.both(0)
    assert fused.search(both, 5).equals(fused.search(both["v1"], 5))


def test_a_fusion_is_read_back_from_the_registry(fused, tmp_path):
    registry = Registry.loads(lance.dataset(str(tmp_path / "gallery.lance")).config()[KEY], "here")
    assert registry.fusion_of("v2") == fused.explain().fusion
    assert Registry.loads(registry.dumps(), "here") == registry


def test_a_choice_survives_whoever_works_on_the_upgrade_meanwhile(world, hopped):
    """The work's own record of the upgrade is older than the choice."""
    chosen = []

    def progress(done):
        if done.step == "backfill" and not chosen:
            chosen.append(cs.Gallery(hopped._catalog).evaluate("v2", weight=0.4, sample=60))

    hopped.upgrade("v2", backfill=0.5, run=cs.RunSettings(batch_rows=16), progress=progress)
    assert hopped.explain().fusion.weight == chosen[0].weight


def test_served_figures_are_those_of_the_whole_ranking(world, fused):
    """With every item a candidate, CMC and mAP of the search are those of the fused ranking."""
    both = world.both()
    found = fused.search(both, ITEMS, columns=["id", "label"])
    rows = np.array(found["label"].to_pylist()).reshape(OUTSIDE, ITEMS)
    hits = rows == world.asked[:, None]
    ranks = np.arange(1, ITEMS + 1)
    values = [(np.cumsum(hit) / ranks)[hit].mean() for hit in hits if hit.any()]
    alone = retrieval_metrics(both["v1"], world.v1[world.items], world.asked, world.labels, metric="l2")
    assert np.mean(values) > alone.map + 0.01
