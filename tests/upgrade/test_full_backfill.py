"""An upgrade that would learn embeds everything instead, where that takes less time."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import Interrupted
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from tests.taught_galleries import CHEAP, IDS, ITEMS, Counted, Model, SlowModel, World, registry_of, steps

FIRST = 50


class Slow(cs.Learn):
    """Says that an hour of learning is left, however fast the machine is."""

    def train(self, training, tried=None):
        tried(0, 1, 3600.0)
        return super().train(training, tried)


SLOW = Slow(first=FIRST)
QUICK = cs.Learn(first=FIRST, candidates=CHEAP)


class Whole(cs.Learn):
    """Embeds all that the budget allows, whatever it gains."""

    least_gain = None


def natives(gallery):
    return gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()


@pytest.fixture
def world():
    return World()


def slow(world):
    world.model = SlowModel(world.native)
    return world


def test_a_cheap_encoder_embeds_everything_and_nothing_is_learned(world, tmp_path):
    gallery, told = world.gallery(tmp_path), []
    result = gallery.upgrade("v2", learn=SLOW, progress=told.append)
    assert (result.state, result.backfilled, result.missing, result.ended_by) == ("ready", ITEMS, 0, "")
    assert "learn" not in steps(gallery)
    assert not gallery.artifacts
    assert result.full_backfill.startswith(f"full backfill instead of learning: {ITEMS - FIRST} more items take about ")
    assert "learning takes at least " in result.full_backfill
    assert result.full_backfill in {progress.found for progress in told}
    assert (result.served, result.waves, result.rounds) == ("", (), ())
    np.testing.assert_allclose(gallery.vectors(IDS, "v2"), world.native, atol=1e-6)
    again = gallery.upgrade("v2", learn=SLOW)
    assert (again.backfilled, again.full_backfill) == (0, result.full_backfill)
    assert gallery.cutover("v2").active == "v2"


def test_a_slow_encoder_is_learned_from_as_before(world, tmp_path):
    gallery = slow(world).gallery(tmp_path)
    result = gallery.upgrade("v2", learn=QUICK)
    assert (result.backfilled, result.full_backfill, result.missing) == (FIRST, "", 0)
    assert "learn" in steps(gallery)


@pytest.mark.parametrize(
    "asked",
    [
        {"backfill": 0.25},
        {"backfill": cs.Backfill(max_rows=100)},
        {"backfill": cs.Backfill(max_cost=1.0, price_per_item=0.01)},
        {"backfill": cs.Backfill(price_per_item=0.01)},
        {"gates": cs.Gates(require=("agreement>=0.01",))},
    ],
    ids=["share", "rows", "money", "price alone", "gate"],
)
def test_what_the_caller_named_stays_in_force(world, tmp_path, asked):
    gallery = world.gallery(tmp_path)
    plan = gallery.upgrade("v2", dry_run=True, learn=SLOW, **asked)
    assert "learn" in [step.name for step in plan.steps]
    result = gallery.upgrade("v2", learn=Whole(first=FIRST, candidates=CHEAP), **asked)
    assert (result.full_backfill, result.backfilled < ITEMS) == ("", True)
    assert "learn" in steps(gallery)


@pytest.mark.parametrize(
    "budget", [cs.Backfill(max_rows=ITEMS), cs.Backfill(max_cost=9.0, price_per_item=0.01), cs.Backfill(max_seconds=99)]
)
def test_limits_that_allow_everything_do_not_forbid_it(world, tmp_path, budget):
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", backfill=budget, learn=SLOW)
    assert (result.backfilled, result.ended_by == "max_rows") == (ITEMS, budget.max_rows is not None)
    assert result.full_backfill
    assert len(world.model.asked) == ITEMS
    if budget.max_cost:
        assert result.spent.cost == pytest.approx(4.0)


def test_the_plan_names_it_and_writes_nothing(world, tmp_path):
    gallery = world.gallery(tmp_path)
    version = gallery._catalog.store.snapshot().version
    plan = gallery.upgrade("v2", dry_run=True, learn=SLOW)
    (backfill,) = [step for step in plan.steps if step.name == "backfill"]
    assert backfill.rows == FIRST
    (learn,) = [step for step in plan.steps if step.name == "learn"]
    assert learn.rows == ITEMS - FIRST
    assert learn.note.endswith("or embed everything, if that takes less time")
    assert gallery._catalog.store.snapshot().version == version


@pytest.mark.parametrize("moment", ["first round", "decision", "full backfill"])
def test_a_call_that_was_stopped_goes_on_to_the_same_decision(world, tmp_path, moment):
    gallery, batches = world.gallery(tmp_path), cs.RunSettings(batch_rows=20)

    def reached():
        run = registry_of(gallery).runs.get("v2")
        decided, asked = run is not None and run.full_backfill == "chosen", len(world.model.asked)
        return {"first round": asked > 0, "decision": decided, "full backfill": decided and asked > 200}[moment]

    with pytest.raises(Interrupted):
        gallery.upgrade("v2", learn=SLOW, run=batches, should_stop=reached)
    assert len(world.model.asked) < ITEMS
    learn = SLOW if moment == "first round" else QUICK  # what was decided is not decided again
    result = cs.Gallery.open(str(tmp_path / "gallery.lance"), encoders={"v2": world.model}).upgrade("v2", learn=learn)
    assert (result.state, result.missing) == ("ready", 0)
    assert result.full_backfill.startswith("full backfill instead of learning")
    assert len(world.model.asked) == len(set(world.model.asked)) == ITEMS
    assert "learn" not in steps(gallery)


def test_a_share_that_is_named_later_ends_the_decision(world, tmp_path):
    gallery = world.gallery(tmp_path)
    with pytest.raises(Interrupted):
        gallery.upgrade(
            "v2", learn=SLOW, should_stop=lambda: registry_of(gallery).runs.get("v2").full_backfill == "chosen"
        )
    result = gallery.upgrade("v2", backfill=0.25, learn=QUICK)
    assert (result.backfilled, result.full_backfill) == (ITEMS // 4 - FIRST, "")
    assert "learn" in steps(gallery)


def test_items_that_cannot_be_embedded_are_transformed_by_what_the_others_teach(world, tmp_path):
    unreadable = {IDS[row] for row in order("spread", ArrayRows(ids=IDS, source=world.source))[200:210]}

    class Partial(Model):
        def encode(self, ids):
            if unreadable & set(ids):
                raise ValueError("unreadable")
            return super().encode(ids)

    world.model = Partial(world.native)
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", learn=SLOW, run=cs.RunSettings(retries=0))
    assert result.missing == 0
    assert result.backfilled == ITEMS - len(unreadable)
    assert "learn" in steps(gallery)


def test_a_gallery_of_one_round_is_embedded_and_nothing_is_learned(world, tmp_path):
    gallery = world.gallery(tmp_path)
    result = gallery.upgrade("v2", learn=cs.Learn(first=ITEMS))
    assert (result.backfilled, result.missing) == (ITEMS, 0)
    assert "learn" not in steps(gallery)


def test_natives_that_an_app_deletes_between_calls_bring_about_no_round_of_their_own(world, tmp_path):
    gallery, learn = world.gallery(tmp_path), Counted()
    gallery.upgrade("v2", backfill=0.25, learn=learn)
    assert learn.rounds == [50, 100]
    gallery.delete(natives(gallery)[:3])
    again = gallery.upgrade("v2", backfill=0.25, learn=learn)
    assert (again.backfilled, learn.rounds) == (2, [50, 100])
    gallery.upgrade("v2", backfill=0.5, learn=learn)
    assert learn.rounds[:2] == [50, 100]
    assert min(np.diff(learn.rounds)) > 40


def test_natives_that_an_app_deletes_within_a_round_are_made_up_for_before_it_is_learned_from(world, tmp_path):
    gallery, learn, deleted, told = world.gallery(tmp_path), Counted(), [], []

    def delete_some(progress):
        told.append(progress.found)
        if progress.step == "backfill" and progress.done == 80 and not deleted:
            native = natives(gallery)[:4]
            if len(native) == 4:
                deleted.extend(native)
                gallery.delete(native)

    run = cs.RunSettings(batch_rows=20)
    result = gallery.upgrade("v2", backfill=0.9, learn=learn, progress=delete_some, run=run)
    assert len(deleted) == 4
    assert (result.ended_by, result.missing) == ("backfill", 0)
    assert len(natives(gallery)) == round(0.9 * (ITEMS - 4))
    assert all(later >= 1.5 * earlier for earlier, later in zip(learn.rounds, learn.rounds[1:], strict=False))
    waves = [found.splitlines()[0] for found in dict.fromkeys(told) if found]
    assert waves
    assert len(waves) == len(set(waves)), "each wave is told once"
