"""Fused search in the life of an upgrade: gates, status, cutover, report and retire know it."""

from __future__ import annotations

import numpy as np
import pytest
from two_spaces import ITEMS, World

import compatstore as cs
from compatstore.evaluation import retrieval_metrics

ASKED = {"labels": "label", "sample": ITEMS}


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture
def gallery(world, tmp_path):
    return world.gallery(tmp_path / "gallery.lance")


@pytest.fixture
def fused(gallery):
    gallery.upgrade("v2")
    gallery.evaluate("v2", labels="label", sample=ITEMS, weight="best")
    return gallery


def test_a_gallery_without_a_model_is_fused_by_a_weight_that_is_named(world, tmp_path):
    """Its vectors come from outside and nothing is native in the target: items stand in for queries."""
    gallery = world.gallery(tmp_path / "gallery.lance", models=False)
    gallery.upgrade("v2")
    both = world.both()
    with pytest.raises(cs.errors.UpgradeError) as error:
        gallery.search(both, serving="fused")
    assert error.value.fix == 'Name its weight: gallery.cutover("v2", serving="fused", weight=0.5)'
    with pytest.raises(cs.errors.UpgradeError, match="Name its weight"):
        gallery.cutover("v2", serving="fused")
    with pytest.raises(cs.errors.UpgradeError, match="no encoder"):
        gallery.evaluate("v2", weight="best")
    assert gallery.cutover("v2", serving="fused", weight=0.5).serving == "the fusion of v1 and v2"
    plan = gallery.explain(both)
    assert (plan.merge, plan.fusion.weight, plan.fusion.choice.gain) == ("fused", 0.5, None)
    found = {how: gallery.search(both, 10, serving=how)["id"].to_pylist() for how in (None, "fused")}
    assert found[None] == found["fused"]
    assert found[None] != gallery.search(both["v2"], 10)["id"].to_pylist()


@pytest.mark.full
def test_gates_are_checked_of_both_versions_as_one_and_the_upgrade_is_served_so(gallery, world):
    alone = gallery.upgrade("v2", gates=cs.Gates(require=("map>=0",), **ASKED), dry_run=True).estimate
    as_one = gallery.upgrade("v2", gates=cs.Gates(require=("map>=0",), serving="fused", **ASKED), dry_run=True).estimate
    assert as_one.row.notation == "s/s & t/h"
    assert as_one.row.figures["map"].value > alone.row.figures["map"].value
    between = (alone.row.figures["map"].low + as_one.row.figures["map"].low) / 2
    gates = cs.Gates(require=(f"map>={between:.4f}",), **ASKED)
    with pytest.raises(cs.errors.GateFailed):
        gallery.upgrade("v2", gates=gates)
    assert gallery.status().upgrades == ()
    gallery.upgrade("v2", gates=cs.Gates(require=gates.require, serving="fused", **ASKED))
    assert gallery.explain().merge == "fused"
    (run,) = gallery.status().upgrades
    assert (run.serving, run.weight) == ("fused", gallery.explain().fusion.weight)
    assert run.choice.criterion == "map"


@pytest.mark.full
def test_a_target_quality_takes_the_smallest_backfill_that_does_when_fused(gallery):
    gates = cs.Gates(target_quality=0.9, serving="fused", **ASKED)
    estimate = gallery.upgrade("v2", gates=gates, dry_run=True).estimate
    kept = {row.share: row.kept["map"].low for row in estimate.table.served("fused")}
    assert set(kept) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert estimate.share == min(share for share, low in kept.items() if low >= 0.9)
    assert (
        estimate.share < gallery.upgrade("v2", gates=cs.Gates(target_quality=0.9, **ASKED), dry_run=True).estimate.share
    )
    assert "by fused search" in estimate.promise


@pytest.mark.full
def test_an_upgrade_that_goes_on_keeps_the_fusion_and_its_estimate(gallery):
    gates = cs.Gates(require=("map>=0.1",), serving="fused", **ASKED)
    gallery.upgrade("v2", gates=gates)
    steps = [entry.step for entry in gallery.maintenance.history()]
    gallery.upgrade("v2", gates=gates)
    assert [entry.step for entry in gallery.maintenance.history()] == steps
    assert steps.count("fuse") == steps.count("estimate") == 1


@pytest.mark.full
@pytest.mark.parametrize("gate", [{"require": ("cmc@1>=0.1",)}, {"max_negative_flips": 0.5}])
def test_of_a_sample_only_map_of_a_fusion_is_known(gallery, gate):
    with pytest.raises(cs.errors.InvalidInput, match="a fused search"):
        gallery.upgrade("v2", gates=cs.Gates(serving="fused", labels="label", sample=100, **gate), dry_run=True)
    assert gallery.upgrade("v2", gates=cs.Gates(serving="fused", **ASKED, **gate), dry_run=True).estimate.passed


@pytest.mark.full
def test_a_cutover_may_say_how_the_gallery_is_served(fused, world):
    both = world.both()
    fused.cutover("v2", serving="target")
    assert fused.search(both, 5).equals(fused.search(both["v2"], 5))
    assert fused.explain(serving="fused").merge == "fused"
    assert fused.status().upgrades[0].serving == "target"
    again = fused.cutover("v2", serving="fused")
    assert again.changed
    assert fused.explain().merge == "fused"
    assert not fused.cutover("v2", serving="fused").changed
    assert not fused.cutover("v2").changed


def test_a_cutover_to_a_fusion_that_was_not_chosen_is_refused(gallery):
    gallery.upgrade("v2")
    with pytest.raises(cs.errors.UpgradeError, match=r'gallery\.evaluate\("v2", weight="best"\)'):
        gallery.cutover("v2", serving="fused")
    assert gallery.active == "v1"
    gallery.cutover("v2", serving="target")
    assert gallery.active == "v2"


@pytest.mark.full
def test_a_backfill_keeps_how_the_gallery_is_served(fused):
    fused.cutover("v2", serving="target")
    fused.upgrade("v2", backfill=0.5)
    (run,) = fused.status().upgrades
    assert (run.serving, run.choice.native_share) == ("target", 0.5)


@pytest.mark.full
def test_retire_says_what_searches_lose(fused, world):
    fused.upgrade("v2", backfill=0.5)
    fused.cutover("v2")
    choice = fused.status().upgrades[0].choice
    lost = fused.retire("v1")
    assert lost.fusion_ended == choice
    assert choice.over_target.low < choice.over_target.value < choice.over_target.high
    assert lost.fusion_ended.loss == fused.maintenance.history()[-1].note
    assert fused.retire("v1").fusion_ended is None


@pytest.mark.full
def test_what_is_lost_is_the_difference_of_both_figures(fused, world):
    """Of queries that are items, against an independent count; each query by the weight that others chose."""
    target = np.stack([fused.vectors(f"item-{row:03d}", "v2")[0] for row in range(ITEMS)])
    ids = np.arange(ITEMS)
    alone = retrieval_metrics(
        world.v2[world.items], target, world.labels, world.labels, metric="cosine", query_ids=ids, gallery_ids=ids
    )
    table = fused.evaluate("v2", labels="label", sample=ITEMS)
    gain = table.row("fused 0%").figures["map"].value - alone.map
    assert fused.status().upgrades[0].choice.over_target.value == pytest.approx(gain, abs=1e-9)


@pytest.mark.full
def test_retiring_a_source_that_searches_do_not_use_loses_nothing(fused):
    fused.cutover("v2", serving="target")
    assert fused.retire("v1").fusion_ended is None


@pytest.mark.full
def test_a_report_measures_what_is_served_on_items_that_nobody_has_seen(gallery):
    gallery.upgrade("v2", gates=cs.Gates(require=("map>=0",), serving="fused", labels="label", sample=100))
    report = gallery.report("v2")
    row = report.measured.row("fused as served")
    assert row.note.startswith(f"w {gallery.explain().fusion.weight:g}; two embeddings")
    assert row.figures["map"].value > report.measured.row("t/h").figures["map"].value
    assert "as served: map" in [compared.what for compared in report.compared]
    measured = {compared.what: compared.measured for compared in report.compared}
    assert measured["as served: map"] == row.figures["map"]


@pytest.mark.full
def test_a_report_compares_the_target_alone_where_that_was_estimated(gallery):
    gallery.upgrade("v2", gates=cs.Gates(require=("map>=0",), labels="label", sample=100))
    assert "after a cutover: map" in [compared.what for compared in gallery.report("v2").compared]
    gallery.evaluate("v2", labels="label", sample=100, weight="best")
    report = gallery.report("v2")
    measured = {compared.what: compared.measured for compared in report.compared}
    assert measured["target alone: map"] == report.measured.row("t/h").figures["map"]
    assert "as served: map" not in measured
