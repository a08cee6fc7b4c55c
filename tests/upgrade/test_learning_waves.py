"""How much an upgrade that teaches itself embeds, in which order, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.errors import Interrupted
from compatstore.trainers import Procrustes, Ridge
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from tests.taught_galleries import CHEAP, FIRST, IDS, ITEMS, LONG, SHORT, Counted, Model, SlowModel, World

pytestmark = pytest.mark.full


@pytest.fixture
def world():
    return World()


def test_the_first_wave_is_spread_over_all_kinds_of_items(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=50 / ITEMS, learn=FIRST)
    rows = ArrayRows(ids=IDS, source=world.source)
    assert set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()) == {
        IDS[row] for row in order("spread", rows)[:50]
    }


def test_the_order_may_be_named_and_begins_at_random(world, tmp_path):
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, order="column:label"), learn=FIRST)
    native = set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
    at_random = {IDS[row] for row in order("random", ArrayRows(ids=IDS))[:50]}
    assert at_random < native
    highest = sorted(set(IDS) - at_random, key=lambda item: -world.labels[IDS.index(item)])
    assert min(world.labels[IDS.index(item)] for item in native - at_random) >= world.labels[IDS.index(highest[49])]
    assert result.backfilled == 80


def test_an_order_by_sigma_waits_until_sigma_is_learned(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), cs.Learn(first=50, candidates=(trainers.Residual(epochs=3, width=16),))
    result = gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, order="sigma"), learn=learn)
    at_random = {IDS[row] for row in order("random", ArrayRows(ids=IDS))[:80]}
    native = set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
    assert result.backfilled == len(native) == 80
    assert len(native & at_random) < 80
    for name, candidate, drawn in (("ridge", Ridge(), False), ("rotation", Procrustes(), True)):
        gallery, learn = world.gallery(tmp_path / name), cs.Learn(first=50, candidates=(candidate,))
        gallery.upgrade("v2", backfill=cs.Backfill(share=0.2, order="sigma"), learn=learn)
        assert (
            set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
            == at_random
        ) == drawn


def test_waves_say_what_was_found_and_promised(world, tmp_path):
    gallery, told = world.gallery(tmp_path), []
    budget = cs.Backfill(share=0.25, price_per_item=0.5)
    learn = replace(FIRST, candidates=(*CHEAP, Procrustes()))
    result = gallery.upgrade("v2", backfill=budget, learn=learn, progress=told.append)
    assert [wave.native for wave in result.waves] == [50, 100]
    assert "100 pairs" in result.rounds[-1], "the last lesson is of all that the budget has embedded"
    assert [wave.cost for wave in result.waves] == [25, 50]
    for wave in result.waves:
        assert wave.native_share == pytest.approx(wave.native / ITEMS)
        assert wave.status_quo.low <= wave.status_quo.value <= wave.status_quo.high
        assert all(wave.native_share < promise.native_share <= 1 for promise in wave.ahead)
        assert (wave.truth, wave.criterion, wave.gain) == ("", "agreement", None)
        assert wave.served.value > wave.status_quo.value
    lines = list(dict.fromkeys(progress.found for progress in told if progress.found))
    native, found, left = lines[0].splitlines()
    assert native == "wave 1, 50 native (12.5%), 25 in cost"
    assert found.startswith("  agreement ")
    assert left.startswith("  50 items are left of the budget, 25 in cost, about ")
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
    budget, learn = cs.Backfill(share=0.5), replace(FIRST, first=100, candidates=(Procrustes(),))
    asked = {"backfill": budget, "gates": cs.Gates(labels="label")}
    result = gallery.upgrade("v2", learn=learn, **asked)
    assert (result.backfilled, result.ended_by, result.state) == (100, "gain", "ready")
    assert gallery.upgrade("v2", learn=learn, **asked).backfilled == 0
    learner = type("Whole", (cs.Learn,), {"least_gain": None})(first=100, candidates=(Procrustes(),))
    whole = gallery.upgrade("v2", learn=learner, **asked)
    assert (whole.backfilled, whole.ended_by) == (100, "backfill")


@pytest.mark.parametrize(("rows", "rounds"), [(149, [50, 149]), (150, [50, 100, 150]), (100, [50, 100])])
def test_a_wave_goes_on_to_the_end_of_the_budget_if_that_is_near(world, tmp_path, rows, rounds):
    learn, told = Counted(), []
    gallery, batches = world.gallery(tmp_path), cs.RunSettings(batch_rows=20)
    budget = cs.Backfill(max_rows=rows)
    with pytest.raises(Interrupted):  # in the second wave, whose end is the same then
        gallery.upgrade(
            "v2", backfill=budget, learn=learn, run=batches, should_stop=lambda: len(world.model.asked) > 80
        )
    gallery.upgrade("v2", backfill=budget, learn=learn, run=batches, progress=told.append)
    assert learn.rounds == rounds


@dataclass(frozen=True)
class Allowed(Counted):
    """Notes the processor seconds that each round may take."""

    allowances: list = field(default_factory=list)

    def train(self, training, tried=None):
        self.allowances.append(training.allowance)
        return super().train(training, tried)


def test_all_rounds_together_may_take_a_share_of_the_time_of_a_full_embedding(world, tmp_path):
    world.model = SlowModel(world.native)
    learn = Allowed(time_share=0.2)
    result = world.gallery(tmp_path / "some").upgrade("v2", backfill=0.25, learn=learn)
    everything = ITEMS * result.spent.seconds / result.spent.rows
    assert learn.rounds == [50, 100]
    assert 0.5 * 0.2 * everything < learn.allowances[-1] < sum(learn.allowances) < 0.2 * everything
    unlimited = Allowed(time_share=None)
    world.gallery(tmp_path / "any").upgrade("v2", backfill=0.1, learn=unlimited)
    assert unlimited.allowances == [np.inf]


def test_it_stops_at_the_target_quality_and_goes_on_for_more(tmp_path):
    gallery = World(noise=2.0).gallery(tmp_path)

    def upgraded(quality):
        return gallery.upgrade(
            "v2", backfill=cs.Backfill(max_rows=120), gates=cs.Gates(target_quality=quality), learn=FIRST
        )

    assert upgraded(0.05).ended_by == "target_quality"
    assert len(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()) == 50
    assert upgraded(0.05).backfilled == 0
    assert upgraded(1.0).ended_by == "max_rows"
    assert len(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()) == 120


def test_nothing_is_embedded_beyond_the_budget_and_nothing_twice(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=cs.Backfill(max_cost=0.75, price_per_item=0.01), learn=FIRST)
    assert len(world.model.asked) == len(set(world.model.asked)) == 75
    assert set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()) == set(
        world.model.asked
    )


def test_without_a_limit_the_first_sample_alone_is_embedded(world, tmp_path):
    world.model = SlowModel(world.native)
    gallery = world.gallery(tmp_path)
    learn = cs.Learn(candidates=CHEAP)
    assert gallery.upgrade("v2", learn=learn).backfilled == cs.Learn().first_rows(ITEMS) == 100
    assert gallery.upgrade("v2", learn=learn).backfilled == 0


def test_that_nothing_is_sure_to_be_better_does_not_end_it(tmp_path):
    """Few queries of a poor target cannot tell yet; more natives may."""
    world, random = World(noise=0.02), np.random.default_rng(1)
    poor = world.native + 0.4 * random.normal(size=world.native.shape)
    world.native = (poor / np.linalg.norm(poor, axis=1, keepdims=True)).astype(np.float32)
    world.model = Model(world.native)
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=0.1, gates=cs.Gates(labels="label"), learn=replace(FIRST, first=40))
    assert result.waves[0].gain is None
    assert (result.backfilled, result.ended_by) == (40, "backfill")


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
    result = gallery.upgrade("v2", backfill=0.2, learn=FIRST)
    assert result.state == "ready"
    assert result.num_unbackfillable > 0
    assert result.rounds
    assert gallery.maintenance.verify().clean


def test_progress_covers_all_of_a_lesson(world, tmp_path):
    """The last report of a lesson comes when its result is in the history, and none before it says that all is done."""
    gallery, seen = world.gallery(tmp_path), []

    def note(progress):
        if progress.step == "learn":
            learned = sum(entry.step == "learn" for entry in gallery.maintenance.history())
            seen.append((progress.done, progress.total, learned))

    gallery.upgrade("v2", backfill=0.25, learn=replace(FIRST, candidates=(*CHEAP, Procrustes())), progress=note)
    lessons = [[(done, total) for done, total, learned in seen if learned == number] for number in (0, 1)]
    assert all(done < total or not total for done, total in lessons[0])
    assert lessons[0][-1][0] > lessons[0][-1][1] / 2
    ends = [(done, total) for done, total, learned in seen if total and done == total]
    assert len(ends) == 2
    assert seen[-1][2] == 2

    assert gallery.maintenance.verify().clean
