"""An upgrade that teaches itself, judged by the app's own queries."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import GateFailed, InvalidInput, UpgradeError
from compatstore.evaluation import DecisionSettings, EvaluationSample
from compatstore.evaluation.strategies import trial_of_fusions
from compatstore.trainers import MeanShift, Ridge
from compatstore.upgrade import judging
from compatstore.upgrade.estimates.estimate import read_waves
from tests.questions import ASKED, IDS, ITEMS, Questions

FIRST = cs.Learn(first=50, candidates=(Ridge(penalties=(0.1,)), MeanShift()))


@pytest.fixture
def world():
    return Questions()


def fusion(gallery):
    return gallery._catalog.registry().serving["v2"].fusion


@pytest.mark.full
@pytest.mark.parametrize("unit", [False, True])
def test_what_is_served_is_chosen_by_the_queries_and_promised_for_them(unit, tmp_path):
    world = Questions(unit=unit)
    gallery = world.gallery(tmp_path)
    asked = world.queries()
    gates = cs.Gates(labels=asked, criterion="ndcg@10", require=("ndcg@10>=0.05",))
    ended = gallery.upgrade("v2", backfill=0.2, gates=gates, learn=FIRST)
    assert len(world.asked) == len(set(world.asked)) == 100  # no item is embedded for the judgement
    assert ended.served.startswith("queries that carry both embeddings are ranked by the fusion of v1 and v2")
    choice = fusion(gallery).choice
    assert (choice.criterion, choice.truth, choice.num_queries) == ("ndcg@10", "qrels", ASKED)
    assert choice.native_share == pytest.approx(0.2)
    wave = read_waves(gallery._catalog, "v2")[-1]
    assert (wave.criterion, wave.truth, wave.ahead) == ("ndcg@10", "qrels", ())
    told = gallery.report("v2", labels=asked, criterion="ndcg@10", sample=ITEMS)
    served = told.measured.row("fused as served").figures["ndcg@10"]
    assert wave.served.low <= served.value <= wave.served.high
    assert told.measured.row("s/s").figures["ndcg@10"].value == pytest.approx(wave.status_quo.value, abs=1e-4)
    assert served.value > wave.status_quo.value
    assert (
        fusion(gallery).shrinkage == unit
    )  # where least squares has sigma^2 the transform's doubts count in what is judged, reported and searched
    both = {name: space[ITEMS:] for name, space in zip(("v1", "v2"), world.spaces, strict=True)}
    found = np.reshape(gallery.search(both, k=10, columns=["id"])["id"].to_pylist(), (ASKED, 10))
    right = [{IDS[item] for item in own} for own in world.correct]
    discounts = 1 / np.log2(np.arange(10) + 2)
    gained = [discounts @ [item in own for item in first] for first, own in zip(found, right, strict=True)]
    assert served.value == pytest.approx(
        np.mean(gained / np.array([discounts[: len(own)].sum() for own in right])), abs=1e-6
    )


@pytest.mark.full
def test_a_promise_holds_for_queries_that_had_no_part_in_it(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(labels=world.queries(slice(0, 110))), learn=FIRST)
    wave = read_waves(gallery._catalog, "v2")[-1]
    others = world.queries(slice(110, None))
    way = "fused as served" if wave.weight else "s/s"
    served = gallery.report("v2", labels=others, sample=ITEMS).measured.row(way).figures["map"]
    assert max(served.low, wave.served.low) <= min(served.high, wave.served.high)


@pytest.fixture(scope="module")
def judged():
    """Queries with labels that search a gallery of which a third is native; both spaces have errors of their own."""
    random = np.random.default_rng(3)
    centres, of_query, of_item = random.normal(size=(20, 8)), random.integers(0, 20, 120), random.integers(0, 20, 150)
    source, native = (centres[of_item] + 1.5 * random.normal(size=(150, 8)) for _ in range(2))
    sample = EvaluationSample(
        source_queries=centres[of_query] + 1.5 * random.normal(size=(120, 8)),
        target_queries=centres[of_query] + 1.5 * random.normal(size=(120, 8)),
        source=source,
        native=native,
        transformed=native + random.normal(size=native.shape),
        order=np.arange(150),
        query_labels=of_query,
        gallery_labels=of_item,
    )
    trial, rows = trial_of_fusions(sample, DecisionSettings(resamples=200)), np.arange(150) % 3 == 0
    judged = judging.JudgedTransform(trial=trial, native=rows, constants=trial.constants(), transform=None)
    assert judged.fitted.fusion.weight > 0
    return judged


def with_fit(judged, **changed):
    """The same with other figures of the weight that was chosen."""
    other = dataclasses.replace(judged)
    vars(other)["fitted"] = dataclasses.replace(judged.fitted, **changed)
    return other


def with_found(judged, found, served):
    return with_fit(judged, found=found, served=served).table(0.3)


def test_a_gain_reaches_up_to_that_of_the_weight_that_is_served(judged):
    """Folds with too few queries for a sure gain chose the status quo: alone they would promise none at all."""
    served = judged.fitted.served
    before = judged.trial.find(judged.native, dataclasses.replace(judged.fitted.fusion, weight=0.0))
    shown, low, high = (with_found(judged, *pair) for pair in ((before, served), (before, before), (served, served)))
    of, least, most = (table.budget(0.3, "fused") for table in (shown, low, high))
    for figure in ("map", "cmc@1"):
        assert (of.gains[figure].low, of.gains[figure].high) == (0.0, most.gains[figure].high)
        assert (of.figures[figure].low, of.figures[figure].high) == (
            least.figures[figure].low,
            most.figures[figure].high,
        )
    assert of.gains["map"].high > 0.02
    assert of.broken == most.broken  # a gate on them is not passed by folds that broke none
    assert of.broken.high > least.broken.high
    assert shown.row("s/s") == low.row("s/s")


def test_what_retiring_costs_is_at_the_most_that_of_the_weight_that_is_served(judged):
    before = judged.trial.find(judged.native, dataclasses.replace(judged.fitted.fusion, weight=0.0))
    target = judged.trial.find(judged.native, dataclasses.replace(judged.fitted.fusion, weight=1.0))
    least = judged.trial.over(before, target)
    (choice,) = judged.fitted.fusion.choices
    fusion = dataclasses.replace(judged.fitted.fusion, choices=(dataclasses.replace(choice, over_target=least),))
    over = with_fit(judged, fusion=fusion).fusion_as_it_is(0.3).choice.over_target
    most = judged.trial.over(judged.fitted.served, target)
    assert (over.low, over.high) == (least.low, max(least.high, most.high))
    assert most.high > least.high


def test_intervals_stay_where_the_weight_that_is_served_gives_less(judged):
    before = judged.trial.find(judged.native, dataclasses.replace(judged.fitted.fusion, weight=0.0))
    found = judged.fitted.served
    assert with_found(judged, found, before) == with_found(judged, found, found)


@pytest.mark.full
def test_a_large_gallery_is_searched_in_part(world, tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "MOST_SEARCHED", 450)
    gallery = world.gallery(tmp_path)
    with pytest.raises(InvalidInput, match=r"estimate .*ndcg@10.*which cannot be measured on a sample"):
        gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(labels=world.queries(), require=("ndcg@10>=0.1",)))
    gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(labels=world.queries()), learn=FIRST)
    assert len(world.asked) == 100
    wave = read_waves(gallery._catalog, "v2")[-1]
    assert (wave.criterion, wave.truth) == ("map", "qrels")
    whole = gallery.report("v2", labels=world.queries(), sample=ITEMS).measured
    for row, figure in (("s/s", wave.status_quo), ("fused as served", wave.served)):
        assert figure.low <= whole.row(row).figures["map"].value <= figure.high


@pytest.mark.parametrize(("asked", "items"), [(1, 25_000), (400, 25_000), (1_000, 10_000), (3_000, 5_000)])
def test_fewer_queries_search_a_larger_gallery_as_a_whole(asked, items):
    named = [f"q{number}" for number in range(asked)]
    vectors = {name: np.zeros((asked, 1), "f4") for name in ("source", "target")}
    queries = cs.Queries(queries={"id": named, **vectors}, qrels={"q0": {"a": 1}})
    assert judging.most_searched(queries) == items


@pytest.mark.full
def test_a_gate_by_queries_that_is_not_sure_to_hold_keeps_it_from_being_ready(world, tmp_path):
    gallery = world.gallery(tmp_path)
    gates = cs.Gates(labels=world.queries(), require=("ndcg@10>=0.99",))
    with pytest.raises(GateFailed, match=r"ndcg@10>=0.99"):
        gallery.upgrade("v2", backfill=0.2, gates=gates, learn=FIRST)
    assert gallery.active == "v1"


def test_a_target_quality_is_not_known_by_queries_before_all_is_native(world, tmp_path):
    gallery = world.gallery(tmp_path)
    with pytest.raises(InvalidInput, match="an unknown full backfill"):
        gallery.upgrade("v2", gates=cs.Gates(labels=world.queries(), target_quality=0.9))
    assert not world.asked
    assert gallery.status().versions[1].native == 0


@pytest.mark.full
def test_a_useless_target_is_not_served(tmp_path):
    world = Questions(noise=0.1)
    world.native = np.random.default_rng(5).normal(size=world.native.shape).astype(np.float32)
    gallery = world.gallery(tmp_path)
    ended = gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(labels=world.queries()), learn=FIRST)
    assert fusion(gallery).weight == 0.0
    assert ended.served.startswith("searches go on in v1 alone")


@pytest.mark.full
def test_a_stopped_call_goes_on_to_the_same_end(world, tmp_path):
    gates = cs.Gates(labels=world.queries())
    straight, stopped = (world.gallery(tmp_path / name) for name in ("straight", "stopped"))
    straight.upgrade("v2", backfill=0.2, gates=gates, learn=FIRST)
    calls = []

    def stop():
        calls.append(None)
        return len(calls) > 6

    run = cs.RunSettings(batch_rows=25)
    with pytest.raises(cs.errors.Interrupted):
        stopped.upgrade("v2", backfill=0.2, gates=gates, learn=FIRST, run=run, should_stop=stop)
    stopped.upgrade("v2", backfill=0.2, gates=gates, learn=FIRST, run=run)
    first, second = fusion(straight), fusion(stopped)
    assert dataclasses.replace(first, choices=()) == dataclasses.replace(second, choices=())


@pytest.mark.full
def test_queries_without_judgements_leave_it_to_the_items(world, tmp_path):
    gallery = world.gallery(tmp_path)
    asked = cs.Queries(queries=world.queries().queries)
    gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(labels=asked), learn=FIRST)
    assert fusion(gallery).choice.truth != "qrels"


def test_too_few_queries_are_refused_before_anything_is_embedded(world, tmp_path):
    gallery = world.gallery(tmp_path)
    with pytest.raises(UpgradeError, match="40 queries; found 7 of 7"):
        gallery.upgrade("v2", backfill=0.2, gates=cs.Gates(labels=world.queries(slice(0, 7))), learn=FIRST)
    assert world.asked == []
    assert gallery.status().upgrades == ()
