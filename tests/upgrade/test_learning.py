"""An upgrade without an artifact teaches itself from what it embeds."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import GateFailed, Interrupted, InvalidInput, UnknownArtifact
from compatstore.evaluation.fusion import Fusion
from compatstore.trainers import MeanShift

ITEMS, LATENT, SHORT, LONG = 800, 12, 16, 20
IDS = [f"item-{number:04d}" for number in range(ITEMS)]
FIRST = cs.Learn(first=100)


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


@pytest.mark.parametrize("stop_at", [1, 5, 9, 16, 25])
def test_a_stopped_call_goes_on_to_the_same_end(world, tmp_path, stop_at):
    whole, stopped = (world.gallery(tmp_path / name) for name in ("whole", "stopped"))
    settings = {"backfill": 0.4, "learn": FIRST, "run": cs.RunSettings(batch_rows=40)}
    whole.upgrade("v2", **settings)
    reports = []
    try:
        stopped.upgrade("v2", progress=reports.append, should_stop=lambda: len(reports) >= stop_at, **settings)
    except Interrupted:
        stopped.upgrade("v2", **settings)
    assert set(stopped.native_ids("v2")) == set(whole.native_ids("v2"))
    assert np.array_equal(stopped.vectors(IDS, "v2"), whole.vectors(IDS, "v2"))
    assert served(stopped) == served(whole)
    learned = [
        registry.artifacts[registry.runs["v2"].path[-1]].weights for registry in map(registry_of, (stopped, whole))
    ]
    assert learned[0] == learned[1]


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
