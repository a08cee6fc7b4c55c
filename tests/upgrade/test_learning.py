"""An upgrade without an artifact teaches itself from what it embeds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import GateFailed, InvalidInput, NotFound
from compatstore.evaluation.fusion import Fusion
from compatstore.shown import view
from compatstore.trainers import FastFill, MeanShift, Residual
from compatstore.trainers.pairs.learn import CLOSED_FORMS
from compatstore.upgrade.training_pairs import TrainingPairs
from tests.taught_galleries import (
    CHEAP,
    FIRST,
    IDS,
    ITEMS,
    LONG,
    SHORT,
    Counted,
    Model,
    World,
    registry_of,
    served,
    steps,
)


@pytest.fixture
def world():
    return World()


def test_it_embeds_learns_hops_and_serves_by_both_once_that_is_sure_to_be_better(world, tmp_path):
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.25, learn=FIRST)
    assert (result.state, result.backfilled, result.missing, result.ended_by) == ("ready", 100, 0, "backfill")
    assert gallery.active == "v1"
    assert served(gallery)[0] == "fused"
    assert served(gallery)[1] > 0
    table = gallery.search({"v1": world.source[:5], "v2": world.native[:5]}, 3)
    assert table.num_rows == 15
    (artifact,) = {entry.artifact for entry in gallery.maintenance.history() if entry.step == "learn"} & set(
        gallery._catalog.registry().runs["v2"].path
    )
    assert {record.id for record in gallery.artifacts} >= {artifact}


def test_a_target_that_gains_nothing_is_not_what_a_cutover_is_advised_for(world, tmp_path):
    noise = np.random.default_rng(5).normal(size=world.native.shape)
    world.model = Model((noise / np.linalg.norm(noise, axis=1, keepdims=True)).astype(np.float32))
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.25, gates=cs.Gates(labels="label"), learn=FIRST)
    assert result.has_no_gain
    *_, last = view(result)
    assert last.startswith("next: ")
    assert "evaluate" in last
    assert "cutover(" not in last
    better = World(seed=1).gallery(tmp_path / "better").upgrade("v2", backfill=0.25, learn=FIRST)
    assert not better.has_no_gain
    assert [*view(better)][-1] == 'next: gallery.cutover("v2")'


@pytest.mark.parametrize("known", [True, False])
def test_a_request_that_cannot_be_registers_and_links_nothing(world, tmp_path, known):
    gallery = world.gallery(tmp_path)
    before = gallery.status().table_version
    version = gallery.version("v2") if known else cs.EmbeddingVersion("v3", dim=3, model="other")
    with pytest.raises(InvalidInput, match="a share or a target quality"):
        gallery.upgrade(version, backfill=0.5, gates=cs.Gates(target_quality=0.9), transform="no artifact")
    assert (gallery.status().table_version, gallery.versions()) == (before, ("v1", "v2"))


@pytest.mark.full
def test_the_same_call_again_does_nothing(world, tmp_path):
    gallery = world.gallery(tmp_path)
    first = gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    before, version = steps(gallery), gallery._catalog.store.snapshot().version
    again = gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    assert (first.backfilled, again.backfilled, again.transformed) == (80, 0, 0)
    assert steps(gallery) == before
    assert gallery._catalog.store.snapshot().version == version


@pytest.mark.full
@pytest.mark.parametrize("way", ["target", "fused"])
def test_what_was_chosen_since_the_last_lesson_stays(world, tmp_path, way):
    gallery = world.gallery(tmp_path)
    asked = {"backfill": 0.25, "learn": FIRST}
    gallery.upgrade("v2", **asked)
    gallery.cutover("v2", serving=way)
    gallery.upgrade("v2", **asked)
    assert served(gallery)[0] == way


@pytest.mark.full
def test_where_all_are_native_a_lesson_chooses_a_weight_and_trains_nothing(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), Counted()
    gallery.upgrade("v2", backfill=0.5, learn=learn)
    path, before = registry_of(gallery).runs["v2"].path, list(learn.rounds)
    result = gallery.upgrade("v2", backfill=1.0, learn=learn)
    assert (result.backfilled, learn.rounds) == (ITEMS // 2, before)
    assert result.rounds[-1].startswith(f"kept after {ITEMS} pairs")
    assert registry_of(gallery).runs["v2"].path == path


@pytest.mark.full
def test_items_of_the_target_alone_do_not_stand_for_items_that_are_left(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), Counted()
    gallery.upgrade("v2", backfill=0.5, learn=learn)
    gallery.cutover("v2")
    new = ITEMS // 4
    gallery.add({"id": [f"new-{n}" for n in range(new)], "vector": world.native[:new]})
    before = len(learn.rounds)
    gallery.upgrade("v2", backfill=ITEMS / (ITEMS + new), learn=learn)  # as many natives as the source has items
    assert len(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()) == ITEMS
    assert len(learn.rounds) > before


def test_without_anything_to_learn_from_it_refuses(world, tmp_path):
    gallery = world.gallery(tmp_path)
    with pytest.raises(NotFound, match="a linked ForwardTransform"):
        gallery.upgrade("v2", backfill=0.2, learn=None)
    other = world.gallery(tmp_path / "other", encoder=None)
    with pytest.raises(NotFound, match="an encoder"):
        other.upgrade("v2")
    assert not world.model.asked


@pytest.mark.full
def test_a_full_backfill_learns_nothing(world, tmp_path):
    gallery = world.gallery(tmp_path)
    assert gallery.upgrade("v2", backfill=1.0).backfilled == ITEMS
    assert "learn" not in steps(gallery)


@pytest.mark.full
@pytest.mark.parametrize("noise", [0.1, 50.0])
def test_what_is_served_finds_no_less_than_before(tmp_path, noise):
    world = World(noise=noise)
    gallery = world.gallery(tmp_path)
    found = [precision(world, gallery)]
    for share in (0.1, 0.5):
        gallery.upgrade("v2", backfill=share, learn=FIRST)
        found.append(precision(world, gallery))
    assert min(found) > found[0] - 0.02
    assert found[-1] > found[0] + (0.02 if noise > 1 else 0)


def precision(world, gallery):
    """Mean share of the five nearest others, as the gallery is served, that are of the query's class."""
    asked = {"v1": world.source[:300], "v2": world.native[:300]}
    found = gallery.search(asked if served(gallery)[0] == "fused" else asked["v1"], 6, columns=["id", "label"])
    labels, ids = (np.array(found[name].to_pylist()).reshape(-1, 6) for name in ("label", "id"))
    others = ids != np.array(IDS[:300])[:, None]
    return ((labels == world.labels[:300, None]) & others).sum() / others.sum()


def test_candidates_that_cannot_run_are_skipped_and_it_says_where_none_can(world, tmp_path):
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.1, learn=cs.Learn(first=50, candidates=(MeanShift(),)))
    assert result.missing == ITEMS - 40
    assert "no method can learn from" in next(
        entry.note for entry in gallery.maintenance.history() if entry.step == "learn"
    )
    assert served(gallery) == (None, None)


@pytest.mark.full
def test_a_gate_that_is_not_sure_to_hold_keeps_it_from_being_ready(tmp_path):
    gallery = World(noise=2.0).gallery(tmp_path)
    for labels, refused in (("label", "which cannot be measured on a sample"), (None, "expected labels or qrels")):
        with pytest.raises(InvalidInput, match=refused):
            gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(max_negative_flips=0.1, labels=labels), learn=FIRST)
    assert steps(gallery) == []
    with pytest.raises(
        GateFailed, match=r"agreement>=0\.99, for the whole confidence interval.*Embedded items are kept"
    ):
        gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(require=("agreement>=0.99",)), learn=FIRST)
    assert gallery.status().upgrades[0].state == "backfill"
    assert len(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()) == 80
    assert (
        gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(require=("agreement>=0.01",)), learn=FIRST).state == "ready"
    )


@pytest.mark.full
def test_labels_decide_where_they_are_named(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(labels="label"), learn=FIRST)
    notes = [entry.note for entry in gallery.maintenance.history() if entry.step == "learn"]
    assert notes
    assert all("correct by labels" in note for note in notes)


def test_the_plan_says_what_it_will_do_and_writes_nothing(world, tmp_path):
    gallery = world.gallery(tmp_path)
    version = gallery._catalog.store.snapshot().version
    plan = gallery.upgrade("v2", backfill=cs.Backfill(max_cost=1, price_per_item=0.01), learn=FIRST, dry_run=True)
    rows = {step.name: step.rows for step in plan.steps}
    assert (rows["backfill"], rows["learn"]) == (100, ITEMS - 100)
    assert gallery._catalog.store.snapshot().version == version


@pytest.mark.full
def test_an_upgrade_that_has_taught_itself_cuts_over_and_is_retired(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    assert gallery.cutover("v2").active == "v2"
    assert gallery.upgrade("v2", backfill=0.5, learn=FIRST).backfilled == 120
    assert gallery.maintenance.verify().clean
    gallery.retire("v1", force=True)
    assert gallery.vectors(IDS, "v2").shape == (ITEMS, LONG)


@pytest.mark.full
def test_a_fusion_of_its_own_is_for_no_other_share(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    fusion = gallery._catalog.registry().fusion_of("v2")
    assert isinstance(fusion, Fusion)
    assert fusion.choices[0].native_share == pytest.approx(0.2)
    assert all(choice.truth == "" and not choice.per_origin for choice in fusion.choices)


@pytest.mark.full
def test_labels_are_learned_from_where_they_are_named(world, tmp_path):
    seen = []

    class Watching(cs.Learn):
        def train(self, lesson, tried=None):
            seen.append(lesson.classes)
            return super().train(lesson, tried)

    candidates = (*CHEAP, FastFill(epochs=3, branch_width=8, mixer_width=8, batch_size=128))
    learn = Watching(first=50, candidates=candidates)
    result = world.gallery(tmp_path).upgrade("v2", backfill=0.25, gates=cs.Gates(labels="label"), learn=learn)
    assert all(classes is not None and len(classes) >= 50 for classes in seen)
    assert result.waves[-1].truth == "labels"
    assert any("FastFill" in lesson or "Ridge" in lesson for lesson in result.rounds)


@pytest.mark.full
def test_networks_through_a_head_are_judged_however_far_they_are_from_the_natives(world):
    pairs = 200
    classes = np.array(world.labels[:pairs], np.intp)
    classes[:20] = -1  # pairs without a label
    lesson = TrainingPairs(
        source=world.source[:pairs],
        target=world.native[:pairs],
        side=None,
        source_version=cs.EmbeddingVersion("v1", dim=SHORT, metric="cosine", normalised=True),
        target_version=cs.EmbeddingVersion("v2", dim=LONG, metric="cosine", normalised=True),
        seed=0,
        classes=classes,
    )
    tried = []
    candidates = (*CLOSED_FORMS, Residual(width=16, epochs=2, loss="l2+disc"))
    taught = cs.Learn(candidates=candidates).train(lesson, lambda done, total, _: tried.append((done, total)))
    names = [one.name for one in taught]
    assert len([name for name in names if "l2+disc" in name]) == 1
    assert len(names) == 4
    assert [done for done, _ in tried] == list(range(1, len(tried) + 1))
    assert all(done < total for done, total in tried[:-1])
    assert tried[-1] == (len(tried), len(tried))


def test_labels_that_are_not_there_are_refused_before_anything_is_embedded(world, tmp_path):
    gallery = world.gallery(tmp_path)
    with pytest.raises(InvalidInput, match="a column of labels, text or whole numbers"):
        gallery.upgrade("v2", backfill=0.25, gates=cs.Gates(labels="no column"), learn=FIRST)
    assert world.model.asked == []
    assert gallery.status().upgrades == ()


@pytest.mark.full
def test_both_versions_are_searched_until_the_cutover_where_the_target_alone_is_best(tmp_path):
    world = World(noise=3.0)
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.6, learn=FIRST)
    way, weight = served(gallery)
    assert way == "fused"
    assert 0 < weight < 1
    assert "the fusion of v1 and v2" in result.served


@dataclass(frozen=True)
class Flattering(cs.Learn):
    """Beside what it learns, a transform that finds what the natives find and is far from them; perhaps it alone."""

    first: int = 50
    candidates: tuple = CHEAP
    least_gain: float | None = None
    alone_from: int = 10_000  # pairs from which it is alone

    def train(self, lesson, tried=None):
        learned = super().train(lesson, tried)
        far = replace(learned[0], name="flattering", transformed=5 * lesson.target)
        return [far] if len(lesson) >= self.alone_from else [*learned, far]


@pytest.mark.full
def test_what_comes_nearer_is_not_passed_over_for_what_does_not(world, tmp_path):
    result = world.gallery(tmp_path).upgrade("v2", backfill=0.5, learn=Flattering())
    assert result.rounds[0].startswith("flattering")  # there is nothing to come nearer than
    assert not result.rounds[-1].startswith(("flattering", "kept"))


@pytest.mark.full
def test_figures_are_of_the_transform_that_stays(world, tmp_path):
    learn = Flattering(alone_from=100)
    result = world.gallery(tmp_path).upgrade("v2", backfill=0.25, learn=learn)
    assert result.rounds[-1].startswith("kept")
    first, second = result.waves
    # The far one finds all that the natives find; what stays does not.
    assert second.served.high < first.served.value


def sparse_world():
    """Every ninth item has its target values behind those that a naive swap keeps."""
    world = World()
    world.native[::9, :SHORT] = 0.0
    world.native /= np.linalg.norm(world.native, axis=1, keepdims=True)
    world.model = Model(world.native)
    return world


@pytest.mark.full
@pytest.mark.parametrize("labels", [None, "label"])
def test_targets_without_values_where_a_naive_swap_cuts_are_learned_from(tmp_path, labels):
    gallery = sparse_world().gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.125, learn=FIRST, gates=cs.Gates(labels=labels))
    assert (result.state, result.backfilled, result.missing) == ("ready", 50, 0)
    assert any(entry.step == "learn" and entry.artifact for entry in gallery.maintenance.history())
    table = gallery.evaluate("v2", sample=300, labels=labels)
    swap = table.row("naive swap")
    assert "find nothing" in swap.note
    assert swap.figures[table.criterion].value < table.row("status quo").figures[table.criterion].value


@pytest.mark.full
def test_what_stays_is_searched_as_more_queries_have_chosen(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), Flattering(first=200, alone_from=240)
    gallery.upgrade("v2", backfill=0.5, learn=learn)
    before = registry_of(gallery).fusion_of("v2").choices
    assert before[0].num_queries == 200
    result = gallery.upgrade("v2", backfill=0.61, learn=learn)  # 44 pairs are new
    assert result.rounds[-1] == "kept after 244 pairs, too few new ones to re-evaluate"
    assert registry_of(gallery).fusion_of("v2").choices == before
    assert [wave.native for wave in result.waves] == [200]
    assert served(gallery)[0] == "fused"
