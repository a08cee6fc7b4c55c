"""An upgrade without an artifact teaches itself from what it embeds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import GateFailed, Interrupted, InvalidInput, UnknownArtifact
from compatstore.evaluation.fusion import Fusion
from compatstore.trainers import MeanShift, Procrustes, Residual, Ridge
from compatstore.trainers.pairs.learn import CLOSED_FORMS
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from compatstore.upgrade.lesson import Lesson

ITEMS, LATENT, SHORT, LONG = 800, 12, 16, 20
IDS = [f"item-{number:04d}" for number in range(ITEMS)]
FIRST = cs.Learn(first=100, candidates=CLOSED_FORMS)  # networks take seconds: some tests name them


class Model:
    """Looks native vectors up by id, and counts the items that it was asked for."""

    dim, spec, reads = LONG, "", "id"

    def __init__(self, native):
        self._rows, self.asked = dict(zip(IDS, native, strict=True)), []
        self.fingerprint = f"model-{native[0, 0]:.6f}"

    def encode(self, ids):
        self.asked += ids
        return np.array([self._rows[item] for item in ids], np.float32)


class World:
    """Items whose two models see the same latent values, each with noise of its own."""

    def __init__(self, noise=0.3, seed=0):
        random = np.random.default_rng(seed)
        self.labels = random.integers(0, 40, ITEMS)
        latent = random.normal(size=(40, LATENT))[self.labels] + 0.6 * random.normal(size=(ITEMS, LATENT))
        self.source = self._seen(latent, SHORT, noise, random)
        self.native = self._seen(latent, LONG, 0.1, random)
        self.model = Model(self.native)

    @staticmethod
    def _seen(latent, dim, noise, random):
        seen = latent @ random.normal(size=(LATENT, dim)) + noise * random.normal(size=(len(latent), dim))
        return (seen / np.linalg.norm(seen, axis=1, keepdims=True)).astype(np.float32)

    def gallery(self, folder, **options):
        v1 = cs.EmbeddingVersion("v1", dim=SHORT, metric="cosine", normalised=True)
        gallery = cs.Gallery.create(str(folder / "gallery.lance"), v1)
        gallery.add({"id": IDS, "vector": self.source, "label": self.labels})
        encoder = {"encoder": self.model} | options
        gallery.register(cs.EmbeddingVersion("v2", dim=LONG, metric="cosine", normalised=True, **encoder))
        return gallery


@pytest.fixture
def world():
    return World()


def registry_of(gallery):
    return gallery._catalog.registry()


def served(gallery):
    """How searches use the upgrade, and the weight of its fusion."""
    registry = registry_of(gallery)
    record = registry.serving.get("v2")
    return ("single", None) if record is None else (record.serving, record.fusion.weight)


def steps(gallery):
    return [entry.step for entry in gallery.history() if entry.step in ("backfill", "learn", "hop", "ready")]


def test_it_embeds_learns_hops_and_serves_by_both_once_that_is_sure_to_be_better(world, tmp_path):
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.25, learn=FIRST)
    assert (result.state, result.backfilled, result.missing, result.ended_by) == ("ready", 200, 0, "backfill")
    assert gallery.active == "v1"
    assert served(gallery)[0] == "fused"
    assert served(gallery)[1] > 0
    table = gallery.search({"v1": world.source[:5], "v2": world.native[:5]}, 3)
    assert table.num_rows == 15
    (artifact,) = {entry.artifact for entry in gallery.history() if entry.step == "learn"} & set(
        gallery._catalog.registry().runs["v2"].path
    )
    assert {record.id for record in gallery.artifacts()} >= {artifact}


def test_nothing_is_embedded_beyond_the_budget_and_nothing_twice(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=cs.Backfill(max_cost=2.5, price_per_item=0.01), learn=FIRST)
    assert len(world.model.asked) == len(set(world.model.asked)) == 250
    assert set(gallery.native_ids("v2")) == set(world.model.asked)


def test_without_a_limit_the_first_sample_alone_is_embedded(world, tmp_path):
    gallery = world.gallery(tmp_path)
    assert gallery.upgrade("v2").backfilled == cs.Learn().first_rows(ITEMS) == 100
    assert gallery.upgrade("v2").backfilled == 0


def test_the_same_call_again_does_nothing(world, tmp_path):
    gallery = world.gallery(tmp_path)
    first = gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    before, version = steps(gallery), gallery._catalog.store.snapshot().version
    again = gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    assert (first.backfilled, again.backfilled, again.transformed) == (160, 0, 0)
    assert steps(gallery) == before
    assert gallery._catalog.store.snapshot().version == version


IN_BATCHES = {"backfill": 0.4, "learn": FIRST, "run": cs.RunSettings(batch_rows=40)}


def end_of(gallery):
    """The natives, vectors, serving and weights that an upgrade leaves."""
    registry = registry_of(gallery)
    weights = registry.artifacts[registry.runs["v2"].path[-1]].weights
    return set(gallery.native_ids("v2")), gallery.vectors(IDS, "v2").tobytes(), served(gallery), weights


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The end of an upgrade that nothing stops."""
    gallery = World().gallery(tmp_path_factory.mktemp("undisturbed"))
    gallery.upgrade("v2", **IN_BATCHES)
    return end_of(gallery)


@pytest.mark.parametrize("stop_at", [1, 5, 9, 16, 25])
def test_a_stopped_call_goes_on_to_the_same_end(world, tmp_path, undisturbed, stop_at):
    gallery, reports = world.gallery(tmp_path), []
    with pytest.raises(Interrupted):
        gallery.upgrade("v2", progress=reports.append, should_stop=lambda: len(reports) >= stop_at, **IN_BATCHES)
    gallery.upgrade("v2", **IN_BATCHES)
    assert end_of(gallery) == undisturbed


def test_a_call_that_was_stopped_in_a_lesson_says_how_many_transforms_were_tried(world, tmp_path):
    gallery, reports = world.gallery(tmp_path), []

    def second_tried():
        return reports[-1:] != [] and (reports[-1].step, reports[-1].done) == ("learn", 2)

    with pytest.raises(Interrupted) as stopped:
        gallery.upgrade("v2", progress=reports.append, should_stop=second_tried, **IN_BATCHES)
    assert str(stopped.value).startswith("run the lesson; found a stop was asked for after 2 transforms were tried")


def test_what_was_learned_is_served_though_the_call_was_stopped_before_that(world, tmp_path):
    gallery = world.gallery(tmp_path)
    asked = {"backfill": 0.25, "learn": cs.Learn(first=200, candidates=CLOSED_FORMS)}

    def learned():
        run = registry_of(gallery).runs.get("v2")
        return run is not None and run.learned_at > 0

    with pytest.raises(Interrupted):
        gallery.upgrade("v2", should_stop=learned, **asked)
    assert served(gallery)[0] == "single"
    assert gallery.upgrade("v2", **asked).served == "searches with queries of both versions rank by v1 and v2 as one"
    assert served(gallery)[0] == "fused"


@pytest.mark.parametrize("way", ["single", "expected"])
def test_what_was_chosen_since_the_last_lesson_stays(world, tmp_path, way):
    gallery = world.gallery(tmp_path)
    asked = {"backfill": 0.25, "learn": FIRST}
    gallery.upgrade("v2", **asked)
    gallery.cutover("v2", serving=way)
    gallery.upgrade("v2", **asked)
    assert served(gallery)[0] == "single"
    assert gallery.status().upgrades[0].serving == way


def test_the_last_lesson_is_of_all_that_the_budget_has_embedded(world, tmp_path):
    result = world.gallery(tmp_path).upgrade("v2", backfill=0.25, learn=FIRST)
    assert result.backfilled == 200
    assert "200 pairs" in result.lessons[-1]


@dataclass(frozen=True)
class Counted(cs.Learn):
    """Notes the pairs of each lesson that trains."""

    first: int = 100
    candidates: tuple = CLOSED_FORMS
    least_gain: float | None = None
    lessons: list = field(default_factory=list)

    def teach(self, lesson, tried=None):
        self.lessons.append(len(lesson))
        return super().teach(lesson, tried)


def test_where_all_are_native_a_lesson_chooses_a_weight_and_trains_nothing(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), Counted()
    gallery.upgrade("v2", backfill=0.5, learn=learn)
    path, before = registry_of(gallery).runs["v2"].path, list(learn.lessons)
    result = gallery.upgrade("v2", backfill=1.0, learn=learn)
    assert (result.backfilled, learn.lessons) == (ITEMS // 2, before)
    assert result.lessons[-1].startswith(f"kept, after {ITEMS} pairs")
    assert registry_of(gallery).runs["v2"].path == path


def test_items_of_the_target_alone_do_not_stand_for_items_that_are_left(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), Counted()
    gallery.upgrade("v2", backfill=0.5, learn=learn)
    gallery.cutover("v2")
    new = ITEMS // 4
    gallery.add({"id": [f"new-{n}" for n in range(new)], "vector": world.native[:new]})
    before = len(learn.lessons)
    gallery.upgrade("v2", backfill=ITEMS / (ITEMS + new), learn=learn)  # as many natives as the source has items
    assert len(gallery.native_ids("v2")) == ITEMS
    assert len(learn.lessons) > before


def test_without_anything_to_learn_from_it_refuses(world, tmp_path):
    gallery = world.gallery(tmp_path)
    with pytest.raises(UnknownArtifact, match="a linked ForwardTransform"):
        gallery.upgrade("v2", backfill=0.2, learn=None)
    other = world.gallery(tmp_path / "other", encoder=None)
    with pytest.raises(UnknownArtifact, match="an encoder"):
        other.upgrade("v2")
    assert not world.model.asked


def test_a_full_backfill_learns_nothing(world, tmp_path):
    gallery = world.gallery(tmp_path)
    assert gallery.upgrade("v2", backfill=1.0).backfilled == ITEMS
    assert "learn" not in steps(gallery)


@pytest.mark.parametrize("noise", [0.1, 2.0, 50.0])
def test_what_is_served_finds_no_less_than_before(tmp_path, noise):
    world = World(noise=noise)
    gallery = world.gallery(tmp_path)
    found = [precision(world, gallery)]
    for share in (0.1, 0.25, 0.5):
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
    result = gallery.upgrade("v2", backfill=0.1, learn=cs.Learn(first=100, candidates=(MeanShift(),)))
    assert result.missing == ITEMS - 80
    assert "no method can learn from" in next(entry.note for entry in gallery.history() if entry.step == "learn")
    assert served(gallery) == ("single", None)


def test_items_that_no_search_finds_are_in_no_lesson(tmp_path):
    world = World()
    world.source[::7] = 0
    world.native[::11] = 0
    world.model = Model(world.native)
    v1, v2 = (
        cs.EmbeddingVersion("v1", dim=SHORT, metric="dot"),
        cs.EmbeddingVersion("v2", dim=LONG, encoder=world.model),
    )
    gallery = cs.Gallery.create(str(tmp_path / "gallery.lance"), v1)
    gallery.add({"id": IDS, "vector": world.source})
    gallery.register(v2)
    result = gallery.upgrade("v2", backfill=0.3, learn=FIRST)
    assert result.state == "ready"
    assert result.num_unbackfillable > 0
    assert result.lessons
    assert gallery.verify().clean


def test_it_stops_at_the_target_quality_and_goes_on_for_more(tmp_path):
    gallery = World(noise=2.0).gallery(tmp_path)

    def upgraded(quality):
        return gallery.upgrade(
            "v2", backfill=cs.Backfill(max_rows=500), gates=cs.Gates(target_quality=quality), learn=FIRST
        )

    assert upgraded(0.05).ended_by == "target_quality"
    assert len(gallery.native_ids("v2")) == 100
    assert upgraded(0.05).backfilled == 0
    assert upgraded(1.0).ended_by == "max_rows"
    assert len(gallery.native_ids("v2")) == 500


def test_a_gate_that_is_not_sure_to_hold_keeps_it_from_being_ready(tmp_path):
    gallery = World(noise=2.0).gallery(tmp_path)
    with pytest.raises(InvalidInput, match="which a sample cannot tell"):
        gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(max_negative_flips=0.1), learn=FIRST)
    assert steps(gallery) == []
    with pytest.raises(GateFailed, match=r"map>=0\.99 for certain.*What was embedded is kept"):
        gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(require=("map>=0.99",)), learn=FIRST)
    assert gallery.status().upgrades[0].state == "backfill"
    assert len(gallery.native_ids("v2")) == 160
    assert gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(require=("map>=0.01",)), learn=FIRST).state == "ready"


def test_labels_decide_where_they_are_named(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(labels="label"), learn=FIRST)
    notes = [entry.note for entry in gallery.history() if entry.step == "learn"]
    assert notes
    assert all("correct by labels" in note for note in notes)


def test_the_plan_says_what_it_will_do_and_writes_nothing(world, tmp_path):
    gallery = world.gallery(tmp_path)
    version = gallery._catalog.store.snapshot().version
    plan = gallery.plan("v2", backfill=cs.Backfill(max_cost=2, price_per_item=0.01), learn=FIRST)
    rows = {step.name: step.rows for step in plan.steps}
    assert (rows["backfill"], rows["learn"]) == (200, ITEMS - 200)
    assert gallery._catalog.store.snapshot().version == version


def test_an_upgrade_that_has_taught_itself_cuts_over_and_is_retired(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    assert gallery.cutover("v2").active == "v2"
    assert gallery.upgrade("v2", backfill=0.5, learn=FIRST).backfilled == 240
    assert gallery.verify().clean
    gallery.retire("v1", force=True)
    assert gallery.vectors(IDS, "v2").shape == (ITEMS, LONG)


def test_a_fusion_of_its_own_is_for_no_other_share(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    fusion = gallery._catalog.registry().fusion_of("v2")
    assert isinstance(fusion, Fusion)
    assert fusion.choices[0].native_share == pytest.approx(0.2)
    assert all(choice.truth.endswith("the target's") and not choice.per_origin for choice in fusion.choices)


def test_the_first_wave_is_spread_over_all_kinds_of_items(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", learn=FIRST)
    rows = ArrayRows(ids=IDS, source=world.source)
    assert set(gallery.native_ids("v2")) == {IDS[row] for row in order("spread", rows)[:100]}


def test_the_order_may_be_named_and_begins_at_random(world, tmp_path):
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, order="column:label"), learn=FIRST)
    native = set(gallery.native_ids("v2"))
    at_random = {IDS[row] for row in order("random", ArrayRows(ids=IDS))[:100]}
    assert at_random < native
    highest = sorted(set(IDS) - at_random, key=lambda item: -world.labels[IDS.index(item)])
    assert min(world.labels[IDS.index(item)] for item in native - at_random) >= world.labels[IDS.index(highest[99])]
    assert result.backfilled == 160


def test_an_order_by_sigma_waits_until_sigma_is_learned(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), cs.Learn(first=100, candidates=(Residual(epochs=3, width=16),))
    result = gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, order="sigma"), learn=learn)
    at_random = {IDS[row] for row in order("random", ArrayRows(ids=IDS))[:160]}
    native = set(gallery.native_ids("v2"))
    assert result.backfilled == len(native) == 160
    assert len(native & at_random) < 160
    for name, candidate, drawn in (("ridge", Ridge(), False), ("rotation", Procrustes(), True)):
        gallery, learn = world.gallery(tmp_path / name), cs.Learn(first=100, candidates=(candidate,))
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, order="sigma"), learn=learn)
        assert (set(gallery.native_ids("v2")) == at_random) == drawn


def test_labels_are_learned_from_where_they_are_named(world, tmp_path):
    seen = []

    class Watching(cs.Learn):
        def teach(self, lesson, tried=None):
            seen.append(lesson.classes)
            return super().teach(lesson, tried)

    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.25, gates=cs.Gates(labels="label"), learn=Watching(first=100))
    assert all(classes is not None and len(classes) >= 100 for classes in seen)
    assert result.waves[-1].truth == "labels"
    assert any("Residual" in lesson or "FastFill" in lesson or "Ridge" in lesson for lesson in result.lessons)


def test_networks_through_a_head_are_judged_however_far_they_are_from_the_natives(world):
    pairs = 200
    classes = np.array(world.labels[:pairs], np.intp)
    classes[:20] = -1  # pairs without a label
    lesson = Lesson(
        source=world.source[:pairs],
        target=world.native[:pairs],
        side=None,
        source_version=cs.EmbeddingVersion("v1", dim=SHORT, metric="cosine", normalised=True),
        target_version=cs.EmbeddingVersion("v2", dim=LONG, metric="cosine", normalised=True),
        seed=0,
        classes=classes,
    )
    tried = []
    taught = cs.Learn().teach(lesson, lambda done, total: tried.append((done, total)))
    names = [one.name for one in taught]
    assert len([name for name in names if "scale=8.0" in name]) == 2
    assert len(names) == 5
    assert tried == [(number, len(tried)) for number in range(1, len(tried) + 1)]


def test_waves_say_what_was_found_and_promised(world, tmp_path):
    gallery, told = world.gallery(tmp_path), []
    budget = cs.Backfill(share=0.5, price_per_item=0.5)
    result = gallery.upgrade("v2", backfill=budget, learn=FIRST, progress=told.append)
    assert [wave.native for wave in result.waves] == [100, 200, 400]
    assert [wave.cost for wave in result.waves] == [50, 100, 200]
    for wave in result.waves:
        assert wave.share == pytest.approx(wave.native / ITEMS)
        assert wave.status_quo.low <= wave.status_quo.value <= wave.status_quo.high
        assert all(wave.share < promise.share <= 1 for promise in wave.ahead)
        assert (wave.gain is None) == (wave.weight == 0)
        assert wave.gain is None or wave.gain.low > 0
    lines = list(dict.fromkeys(progress.found for progress in told if progress.found))
    assert lines[0].startswith("wave 1, 100 native (12.5%), 50 in cost: map ")
    assert lines[0].endswith(" left of the budget, 150 in cost, about 0 s") or "about" in lines[0]
    assert {progress.step for progress in told} >= {"backfill", "learn", "hop"}
    learned = [progress for progress in told if progress.step == "learn"]
    assert learned[-1].done == learned[-1].total > 1
    (run,) = gallery.status().upgrades
    assert run.waves == result.waves
    assert run.left is None
    assert gallery.report("v2").waves == result.waves


def test_embedding_ends_where_more_is_sure_to_gain_nothing(world, tmp_path):
    """What is native in both and equal in both: nothing can be gained."""
    world.native = np.concatenate([world.source, np.zeros((ITEMS, LONG - SHORT), np.float32)], axis=1)
    world.model = Model(world.native)
    gallery = world.gallery(tmp_path)
    budget = cs.Backfill(share=0.9)
    result = gallery.upgrade("v2", backfill=budget, learn=FIRST)
    assert (result.backfilled, result.ended_by, result.state) == (100, "gain", "ready")
    assert gallery.upgrade("v2", backfill=budget, learn=FIRST).backfilled == 0
    whole = gallery.upgrade("v2", backfill=budget, learn=replace(FIRST, least_gain=None))
    assert (whole.backfilled, whole.ended_by) == (620, "backfill")


def test_labels_that_are_not_there_are_refused_before_anything_is_embedded(world, tmp_path):
    gallery = world.gallery(tmp_path)
    with pytest.raises(InvalidInput, match="labels in one of"):
        gallery.upgrade("v2", backfill=0.25, gates=cs.Gates(labels="no column"), learn=FIRST)
    assert world.model.asked == []
    assert gallery.status().upgrades == ()


def test_that_nothing_is_sure_to_be_better_does_not_end_it(tmp_path):
    """Few queries of a poor target cannot tell yet; more natives may."""
    world, random = World(noise=0.02), np.random.default_rng(1)
    poor = world.native + 0.4 * random.normal(size=world.native.shape)
    world.native = (poor / np.linalg.norm(poor, axis=1, keepdims=True)).astype(np.float32)
    world.model = Model(world.native)
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.1, gates=cs.Gates(labels="label"), learn=replace(FIRST, first=40))
    assert result.waves[0].gain is None
    assert (result.backfilled, result.ended_by) == (80, "backfill")


def test_both_versions_are_searched_until_the_cutover_where_the_target_alone_is_best(tmp_path):
    world = World(noise=3.0)
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.6, learn=FIRST)
    way, weight = served(gallery)
    assert way == "fused"
    assert 0 < weight < 1
    assert "as one" in result.served


@dataclass(frozen=True)
class Flattering(cs.Learn):
    """Beside what it learns, a transform that finds what the natives find and is far from them; perhaps it alone."""

    first: int = 100
    candidates: tuple = CLOSED_FORMS
    least_gain: float | None = None
    alone_from: int = 10_000  # pairs from which it is alone

    def teach(self, lesson, tried=None):
        learned = super().teach(lesson, tried)
        far = replace(learned[0], name="flattering", transformed=5 * lesson.target)
        return [far] if len(lesson) >= self.alone_from else [*learned, far]


def test_what_comes_nearer_is_not_passed_over_for_what_does_not(world, tmp_path):
    result = world.gallery(tmp_path).upgrade("v2", backfill=0.5, learn=Flattering())
    assert result.lessons[0].startswith("flattering")  # there is nothing to come nearer than
    assert not result.lessons[-1].startswith(("flattering", "kept"))


def test_figures_are_of_the_transform_that_stays(world, tmp_path):
    learn = Flattering(alone_from=200)
    result = world.gallery(tmp_path).upgrade("v2", backfill=0.25, learn=learn)
    assert result.lessons[-1].startswith("kept")
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


@pytest.mark.parametrize("labels", [None, "label"])
def test_targets_without_values_where_a_naive_swap_cuts_are_learned_from(tmp_path, labels):
    gallery = sparse_world().gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.125, learn=FIRST, gates=cs.Gates(labels=labels))
    assert (result.state, result.backfilled, result.missing) == ("ready", 100, 0)
    assert any(entry.step == "learn" and entry.artifact for entry in gallery.history())
    table = gallery.evaluate("v2", sample=300, labels=labels)
    swap = table.row("naive swap")
    assert "find nothing" in swap.note
    assert swap.figures["map"].value < table.row("status quo").figures["map"].value


def test_what_stays_is_searched_as_more_queries_have_chosen(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), Flattering(first=200, alone_from=250)
    gallery.upgrade("v2", backfill=0.25, learn=learn)
    before = registry_of(gallery).fusion_of("v2").choices
    assert before[0].num_queries == 200
    result = gallery.upgrade("v2", backfill=0.32, learn=learn)  # 56 pairs are new
    assert result.lessons[-1] == "kept, after 256 pairs, too few of them new to judge it again"
    assert registry_of(gallery).fusion_of("v2").choices == before
    assert [wave.native for wave in result.waves] == [200]
    assert served(gallery)[0] == "fused"
