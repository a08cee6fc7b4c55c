"""Queries that are no items, judged by grades: figures as trec_eval has them, of galleries, samples and batches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.evaluation import DecisionSettings, EvaluationSample, Judgements, decide
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.relevance import relevance_from_judgements
from compatstore.evaluation.sampled import find_in_blocks, find_in_galleries
from compatstore.evaluation.whole import Passing, WholeSearch
from properties import examples

KS, DEPTH = (1, 5), 10
NAMES = ("success_1", "success_5", "recall_10", "ndcg_cut_10", "recip_rank", "map")
WAYS = ("s/s", "t/s", "t/h")


def judged_world(seed, queries=12, items=60, spread=3, most=4):
    """Whole numbers, so that distances tie; grades from -1 to 3, and queries for which nothing is correct."""
    random = np.random.default_rng(seed)
    gallery, asked = (random.integers(0, spread, (n, 3)).astype(np.float32) for n in (items, queries))
    pairs = [(q, i) for q in range(queries) for i in random.choice(items, random.integers(0, most + 1), replace=False)]
    grades = random.integers(-1, 4, len(pairs))
    good = [(*pair, grade) for pair, grade in zip(pairs, grades, strict=True) if grade > 0]
    judged = Judgements(
        queries=[q for q, _, _ in good], items=[i for _, i, _ in good], gains=[grade for _, _, grade in good]
    )
    return gallery, asked, judged, {pair: int(grade) for pair, grade in zip(pairs, grades, strict=True)}


def figures(gallery, asked, judged, depth=DEPTH):
    relevance = relevance_from_judgements(judged, len(asked), len(gallery), depth=depth)
    (found,) = find_in_galleries(measure(asked, gallery), relevance, [np.arange(len(gallery))], KS)
    return found.values


@pytest.mark.full
@examples(40)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([2, 4, 40]), items=st.integers(3, 80))
def test_figures_are_those_of_pytrec_eval(seed, spread, items):
    """Of items at one distance ours are ranked by ascending id, trec_eval's by descending name: names count down."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    gallery, asked, judged, grades = judged_world(seed, items=items, spread=spread, most=min(items, 4))
    names = [f"d{items - item:04d}" for item in range(items)]
    apart = ((asked[:, None].astype(int) - gallery[None].astype(int)) ** 2).sum(axis=-1)
    run = {f"q{q}": {name: float(-apart[q, item]) for item, name in enumerate(names)} for q in range(len(asked))}
    qrels = {f"q{q}": {} for q in range(len(asked))}
    for (q, item), grade in grades.items():
        qrels[f"q{q}"][names[item]] = grade
    wanted = {"success.1,5", "recall.10", "ndcg_cut.10", "recip_rank", "map"}
    expected = pytrec_eval.RelevanceEvaluator({q: own for q, own in qrels.items() if own}, wanted).evaluate(run)
    found = figures(gallery, asked, judged)
    for q in range(len(asked)):
        if not any(grade > 0 for (query, _), grade in grades.items() if query == q):
            assert np.isnan(found[:, q]).all()
            continue
        theirs = [expected[f"q{q}"][name] for name in NAMES]
        theirs[4] *= theirs[4] >= 1 / DEPTH  # theirs looks at the whole ranking
        np.testing.assert_allclose(found[:, q], theirs, rtol=1e-6)


def test_figures_by_hand():
    """One query; of five items the second and the fifth are correct, worth 1 and 3."""
    gallery = np.arange(5, dtype=np.float32)[:, None]
    judged = Judgements(queries=[0, 0], items=[1, 4], gains=[1, 3])
    found = figures(gallery, np.zeros((1, 1), np.float32), judged, depth=2)[:, 0]
    gained, best = 1 / np.log2(3), 3 + 1 / np.log2(3)
    np.testing.assert_allclose(found, [0, 1, 0.5, gained / best, 0.5, (1 / 2 + 2 / 5) / 2])


def test_a_query_that_is_an_item_does_not_find_itself():
    gallery = np.arange(5, dtype=np.float32)[:, None]
    judged = Judgements(queries=[0, 0], items=[0, 2], gains=[5, 1])
    relevance = relevance_from_judgements(judged, 1, 5, query_ids=[0], gallery_ids=np.arange(5), depth=10)
    (found,) = find_in_galleries(measure(gallery[:1], gallery), relevance, [np.arange(5)], KS)
    np.testing.assert_allclose(found.values[:, 0], [0, 1, 1, 1 / np.log2(3), 0.5, 0.5])


@pytest.mark.full
@examples(25)
@given(seed=st.integers(0, 10**6), batch=st.integers(1, 70), weight=st.sampled_from([0.0, 0.3, 1.0]))
def test_a_gallery_that_passes_by_is_searched_as_one_that_is_held(seed, batch, weight):
    gallery, asked, judged, _ = judged_world(seed)
    random = np.random.default_rng(seed)
    other, native = random.integers(0, 3, gallery.shape).astype(np.float32), random.random(len(gallery)) < 0.5
    fusion = Fusion(weight=weight)

    def batches():
        for start in range(0, len(gallery), batch):
            rows = np.arange(start, min(start + batch, len(gallery)))
            there = np.ones(len(rows), bool)
            both = {"source": gallery[rows], "target": other[rows], "in_source": there, "in_target": there}
            yield Passing(places=rows, native=native[rows], **both)

    relevance = relevance_from_judgements(judged, len(asked), len(gallery), depth=DEPTH)
    search = WholeSearch(source=asked, target=asked, metrics=("l2", "l2"), relevance=relevance, fusion=fusion)
    found = search.run(batches, KS)
    np.testing.assert_array_equal(found.correct, judged.counts(len(asked)))
    np.testing.assert_allclose(found.values["s/s"], figures(gallery, asked, judged))
    left, right = (next(iter(measure(asked, space).blocks()))[1].copy() for space in (gallery, other))
    fused = fusion.distances(left, right, native)
    (expected,) = find_in_blocks([(0, fused)], len(asked), relevance, [np.arange(len(gallery))], KS)
    np.testing.assert_allclose(found.values["s/s & t"], expected.values)


class Sampled:
    """A gallery of 1,500 items and 100 queries from outside with one to three correct items each."""

    def __init__(self):
        random = np.random.default_rng(0)
        items, queries, dim = 1500, 100, 12
        base = random.normal(size=(items, dim))
        self.source = (base + 0.8 * random.normal(size=base.shape)).astype(np.float32)
        self.native = (base + 0.3 * random.normal(size=base.shape)).astype(np.float32)
        self.transformed = self.source @ np.linalg.lstsq(self.source, self.native, rcond=None)[0].astype(np.float32)
        correct = [random.choice(items, random.integers(1, 4), replace=False) for _ in range(queries)]
        asked = np.array([base[own].mean(axis=0) for own in correct]) + 0.3 * random.normal(size=(queries, dim))
        self.asked = [(asked + error * random.normal(size=asked.shape)).astype(np.float32) for error in (0.5, 0.2)]
        self.judged = Judgements(
            queries=np.repeat(np.arange(queries), [len(own) for own in correct]),
            items=np.concatenate(correct),
            gains=np.ones(sum(map(len, correct))),
        )

    def certain(self, depth):
        found = [np.unique(self.judged.items)]
        for asked, space in zip(self.asked, (self.source, self.transformed), strict=True):
            apart = ((asked[:, None] - space[None]) ** 2).sum(axis=-1)
            found.append(np.unique(np.argsort(apart, axis=1)[:, :depth]))
        return np.unique(np.concatenate(found))

    def sample(self, rows, certain):
        return EvaluationSample(
            source_queries=self.asked[0],
            target_queries=self.asked[1],
            source=self.source[rows],
            transformed=self.transformed[rows],
            native=self.native[rows],
            order=np.random.default_rng(1).permutation(len(rows)),
            gallery_ids=np.arange(len(rows)),
            judged=self.judged.of_items(rows),
            population=len(self.source),
            drawn=~np.isin(rows, certain),
        )


@pytest.fixture(scope="module")
def world():
    return Sampled()


def whole_of(world):
    there = np.ones(len(world.source), bool)

    def batches():
        both = {"source": world.source, "target": world.transformed, "in_source": there, "in_target": there}
        yield Passing(places=np.arange(len(there)), native=~there, **both)

    relevance = relevance_from_judgements(world.judged, len(world.asked[0]), len(there), depth=DEPTH)
    source, target = world.asked
    search = WholeSearch(source=source, target=target, metrics=("l2", "l2"), relevance=relevance)
    return search.run(batches, KS)


CHOSEN = DecisionSettings(depth=DEPTH, shares=(0.5,), resamples=200)


@pytest.mark.full
def test_a_sample_with_all_that_is_correct_stands_for_the_gallery(world):
    from dataclasses import replace

    every, whole = np.arange(len(world.source)), whole_of(world)
    truth = decide(world.sample(every, every), CHOSEN)
    assert truth.truth == "qrels"
    assert set(truth.row("t/t").figures) == {"cmc@1", "cmc@5", "recall@10", "ndcg@10", "mrr@10", "map"}
    certain, found = world.certain(depth=3), []
    for seed in range(20):
        others = np.random.default_rng(seed).permutation(np.setdiff1d(every, certain))[:200]
        table = decide(replace(world.sample(np.concatenate([certain, others]), certain), whole=whole), CHOSEN)
        for way in WAYS:  # what needs no native vector is measured in the whole gallery
            for name, figure in table.row(way).figures.items():
                assert figure.value == pytest.approx(truth.row(way).figures[name].value)
        full = table.row("t/t").figures
        assert set(full) == {"map"}
        assert full["map"].low <= truth.row("t/t").figures["map"].value <= full["map"].high
        found.append(full["map"].value)
    assert np.mean(found) == pytest.approx(truth.row("t/t").figures["map"].value, rel=0.06)


def test_a_share_of_a_sample_is_that_of_the_gallery_that_it_stands_for(world):
    every = np.arange(len(world.source))
    certain = every[:300]
    rows = np.concatenate([certain, every[300:420]])  # each of the 120 stands for 10
    sample = world.sample(rows, certain)
    assert sample.weight == 10.0
    assert sample.share_of(sample.drawn) == pytest.approx(0.8)
    assert sample.share_of(sample.filled(0.5)) == pytest.approx(0.5, abs=0.01)
    assert sample.filled(1.0).all()
    assert not sample.filled(0.0).any()
    assert sample.filled(0.8, native=sample.drawn).tolist() == sample.drawn.tolist()


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"queries": [0], "items": [0, 1], "gains": [1]}, "2 items and 1 gains"),
        ({"queries": [0], "items": [0], "gains": [0]}, "finite gains above 0"),
        ({"queries": [0], "items": [0], "gains": [np.nan]}, "finite gains above 0"),
    ],
)
def test_judgements_that_make_no_sense_are_refused(parts, said):
    with pytest.raises(cs.errors.InvalidInput, match=said):
        Judgements(**parts)


def test_a_sample_whose_judgements_name_rows_that_are_not_there_is_refused(world):
    from dataclasses import replace

    every = np.arange(len(world.source))
    sample = world.sample(every, every)
    with pytest.raises(cs.errors.InvalidInput, match="rows of 1500 items"):
        replace(sample, judged=Judgements(queries=[0], items=[1500], gains=[1]))
    with pytest.raises(cs.errors.InvalidInput, match="labels or judgements"):
        replace(sample, query_labels=np.zeros(100, int), gallery_labels=np.zeros(1500, int))
