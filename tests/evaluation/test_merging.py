"""Merging of two parts of a gallery: the calibration of distances, and both parts as one ranking."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.documents import read_record
from compatstore.errors import InvalidInput
from compatstore.evaluation import Calibration, DecisionSettings, Estimate, EvaluationSample, Merge, merging
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion_choice import Trial, folds_of, of_queries
from compatstore.evaluation.merging import BINS, calibrate, find_merged, matched, merged_blocks
from compatstore.evaluation.ranking import rank_blocks, rank_queries
from compatstore.evaluation.relevance import relevance_from_labels, relevance_from_neighbours
from compatstore.evaluation.sampled import WHOLE

NUMBERS = st.floats(-1e6, 1e6)


@st.composite
def calibrations(draw):
    """Any function that may be stored, knots as close as float64 has them."""
    size = draw(st.integers(1, 6))
    x, y = (sorted(draw(st.sets(NUMBERS, min_size=size, max_size=size))) for _ in range(2))
    return Calibration(distances=tuple(x), mapped=tuple(y), slope=draw(st.floats(1e-6, 1e6)))


@pytest.mark.full
@given(calibration=calibrations(), distances=st.lists(NUMBERS | st.just(float("inf")), min_size=1, max_size=30))
def test_of_two_distances_the_nearer_one_is_never_mapped_behind_the_other(calibration, distances):
    near = sorted([*distances, *calibration.distances, *np.nextafter(calibration.distances, -np.inf).tolist()])
    mapped = calibration.apply(np.array(near))
    assert (np.diff(mapped[np.isfinite(mapped)]) >= 0).all()
    assert (np.diff(mapped.astype(np.float32)[np.isfinite(mapped)]) >= 0).all()
    assert np.array_equal(np.isfinite(mapped), np.isfinite(near))
    at_knots = calibration.apply(np.array(calibration.distances))
    assert np.abs(at_knots - calibration.mapped).max() <= 1e-9 * np.abs(calibration.mapped).max()


def test_lines_join_the_knots_and_go_on_beyond_them():
    calibration = Calibration(distances=(1.0, 2.0, 4.0), mapped=(10.0, 11.0, 21.0), slope=2.0)
    asked = np.array([[0.0, 1.0, 1.5], [3.0, 4.0, 6.0]])
    assert calibration.apply(asked).tolist() == [[8.0, 10.0, 10.5], [16.0, 21.0, 25.0]]
    assert Calibration(distances=(3.0,), mapped=(5.0,), slope=2.0).apply(np.array([2.0, 4.0])).tolist() == [3.0, 7.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"distances": (1.0, 1.0), "mapped": (1.0, 2.0)},
        {"distances": (1.0, 2.0), "mapped": (2.0, 1.0)},
        {"distances": (1.0,), "mapped": (1.0, 2.0)},
        {"distances": (), "mapped": ()},
        {"distances": (float("nan"),), "mapped": (1.0,)},
        {"slope": 0.0},
        {"slope": float("inf")},
    ],
)
def test_what_would_not_increase_is_refused(wrong):
    with pytest.raises(InvalidInput, match="calibrate distances"):
        Calibration(**wrong)


def test_distances_become_those_at_which_items_are_as_likely_correct():
    """Correct with the chance exp(-d) at the distance d, which the source tells in another unit, bent."""
    random = np.random.default_rng(0)
    target = random.uniform(0, 6, 200_000)
    correct = random.random(len(target)) < np.exp(-target)
    asked = np.linspace(0.2, 3.0, 8)
    calibration = matched(np.square(target) * 10 + 3, target, correct)
    assert len(calibration.distances) <= BINS
    assert np.abs(calibration.apply(np.square(asked) * 10 + 3) - asked).max() < 0.15


def test_a_source_that_says_less_is_taken_for_farther():
    """The source's distances are noise: of these every one is as likely as the target's middle."""
    random = np.random.default_rng(0)
    target = random.uniform(0, 1, 50_000)
    correct = random.random(len(target)) < 1 - target
    calibration = matched(target + 3 * random.normal(size=len(target)), target, correct)
    mapped = calibration.apply(np.quantile(target, [0.0, 0.5]))
    assert 0.3 < mapped[0] < mapped[1] < 0.7


@pytest.mark.parametrize("correct", [False, True])
def test_where_nothing_tells_likely_pairs_apart_means_and_deviations_are_matched(correct):
    random = np.random.default_rng(0)
    source, target = random.normal(5, 2, 1000), random.normal(50, 4, 1000)
    mapped = matched(source, target, np.full(1000, correct)).apply(source)
    assert mapped.mean() == pytest.approx(target.mean())
    assert mapped.std() == pytest.approx(target.std())
    flat = matched(np.ones(10), np.ones(10), np.arange(10) < 3)
    assert flat.apply(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_a_querys_own_item_has_no_part_in_it():
    random = np.random.default_rng(0)
    labels, vectors = np.repeat(np.arange(6), 5), random.normal(size=(30, 4))
    relevance = relevance_from_labels(labels[:10], labels, np.arange(10), np.arange(30))
    fitted = calibrate(measure(vectors[:10], vectors), measure(3 * vectors[:10], 3 * vectors), relevance, np.arange(10))
    assert fitted.distances[0] > 0  # the distance of a query to itself is 0


def test_a_calibration_is_fitted_to_the_queries_that_are_named(monkeypatch, spaces):
    source, target, relevance = parts_of(spaces, scale=3.0)
    few, others = np.arange(0, 30, 3), np.setdiff1d(np.arange(30), np.arange(0, 30, 3))
    fitted = calibrate(source, target, relevance, few)
    assert fitted == calibrate(source.of(few), target.of(few), of_queries(relevance, few), np.arange(10))
    assert fitted != calibrate(source, target, relevance, others)
    monkeypatch.setattr("compatstore.evaluation.merging._PAIRS", 10 * 120)  # of many queries some, spread over all
    assert calibrate(source, target, relevance, np.arange(30)) == fitted


def test_a_merge_is_by_distance_without_a_calibration_and_survives_the_registry():
    options = {"gain": Estimate(value=0.01, low=0.0, high=0.02), "criterion": "map", "truth": "labels"}
    merges = [
        Merge(bridge="", calibration=calibration, num_queries=9, native_share=0.1, **options)
        for calibration in (None, Calibration(distances=(0.0, 1.0), mapped=(2.0, 6.0)))
    ]
    assert [merge.how for merge in merges] == ["distance", "calibrated"]
    assert [read_record(Merge, asdict(merge), "merge") for merge in merges] == merges
    assert not merges[0].worth
    assert replace(merges[0], gain=Estimate(value=0.01, low=0.001, high=0.02)).worth
    assert str(merges[0]) == (
        "distance, against the status quo +1.0 points of map (+0.0 to +2.0) by 9 queries, correct by labels, at a "
        "native share of 0.1"
    )


@pytest.fixture
def spaces():
    """One set of items in two spaces, the target's ten times as wide and shifted far away."""
    random = np.random.default_rng(0)
    labels, query_labels = random.integers(0, 10, 120), random.integers(0, 10, 30)
    centres = random.normal(size=(10, 8))
    gallery, queries = (centres[of] + 0.5 * random.normal(size=(len(of), 8)) for of in (labels, query_labels))
    ids, query_ids = [f"g{i:03d}" for i in range(120)], [f"g{i:03d}" if i % 2 else "new" for i in range(30)]
    return {"gallery": gallery, "queries": queries, "labels": (query_labels, labels), "ids": (query_ids, ids)}


def parts_of(spaces, scale=1.0, block=None):
    """Both parts of the gallery, and what is correct."""
    source = measure(spaces["queries"], spaces["gallery"], block=block)
    target = measure(scale * spaces["queries"], scale * spaces["gallery"], block=block)
    return source, target, relevance_from_labels(*spaces["labels"], *spaces["ids"])


def mixed(spaces, native, *, calibrated, scale=1.0):
    """Rank a gallery of two parts as a whole."""
    source, target, relevance = parts_of(spaces, scale)
    calibration = calibrate(source, target, relevance, np.arange(30)) if calibrated else None
    blocks = merged_blocks(source, target, native, relevance, calibration)
    return rank_blocks(blocks, 30, relevance, [np.arange(120)])[0]


def whole(spaces):
    return rank_queries(spaces["queries"], spaces["gallery"], *spaces["labels"], *spaces["ids"])


def same(one, other):
    np.testing.assert_array_equal(one.first_match, other.first_match)
    np.testing.assert_allclose(one.average_precision, other.average_precision)


@pytest.mark.kernel
@pytest.mark.parametrize("calibrated", [False, True])
def test_two_parts_in_one_space_rank_as_one_gallery(spaces, calibrated):
    """A query does not find its own item in either part."""
    for native in (np.arange(120) % 3 == 0, np.ones(120, bool), np.zeros(120, bool)):
        same(mixed(spaces, native, calibrated=calibrated), whole(spaces))


@pytest.mark.kernel
@pytest.mark.parametrize("calibrated", [False, True])
def test_blocks_change_no_bit(spaces, calibrated):
    def merged(block):
        source, target, relevance = parts_of(spaces, 3.0, block)
        calibration = calibrate(source, target, relevance, np.arange(30)) if calibrated else None
        parts = merged_blocks(source, target, np.arange(120) % 3 == 0, relevance, calibration)
        return np.concatenate([part.copy() for _, part in parts])

    for block in (1, 7, 29):
        assert np.array_equal(merged(block), merged(None))


@pytest.mark.kernel
def test_calibration_undoes_another_scale_and_plain_distance_does_not(spaces):
    native = np.arange(120) % 3 == 0
    same(mixed(spaces, native, calibrated=True, scale=10.0), whole(spaces))
    plain = mixed(spaces, native, calibrated=False, scale=10.0).average_precision
    assert plain.mean() < whole(spaces).average_precision.mean()


@pytest.mark.kernel
@pytest.mark.parametrize("calibrated", [False, True])
def test_no_query_is_searched_by_a_calibration_that_it_was_fitted_to(monkeypatch, spaces, calibrated):
    source, target, relevance = parts_of(spaces, 3.0)
    native, fitted = np.arange(120) % 3 == 0, []
    monkeypatch.setattr(
        merging, "calibrate", lambda *parts: fitted.append(parts[-1]) or Calibration(mapped=(float(len(fitted)),))
    )
    sample = EvaluationSample(
        source_queries=spaces["queries"],
        target_queries=3.0 * spaces["queries"],
        source=spaces["gallery"],
        transformed=3.0 * spaces["gallery"],
        native=3.0 * spaces["gallery"],
        order=np.arange(120),
        query_labels=spaces["labels"][0],
        gallery_labels=spaces["labels"][1],
    )
    trial = Trial(sample=sample, settings=DecisionSettings(), relevance=relevance, sampling=WHOLE, truth="labels")
    found = find_merged(trial, source, target, native, calibrated=calibrated)
    folds = folds_of(30, 0)
    assert len(fitted) == (len(folds) if calibrated else 0)
    for number, fold in enumerate(folds):
        if calibrated:
            assert sorted([*fitted[number], *fold]) == list(range(30))
        own = of_queries(relevance, fold)
        calibration = Calibration(mapped=(float(number + 1),)) if calibrated else None
        blocks = merged_blocks(source.of(fold), target.of(fold), native, own, calibration)
        ranking = rank_blocks(blocks, len(fold), own, [np.arange(120)])[0]
        np.testing.assert_allclose(found.values[-1, fold], ranking.average_precision)


def test_neighbours_as_truth_are_the_nearest_and_all_that_tie_with_them():
    gallery = np.array([[3.0], [1.0], [2.0], [-2.0], [9.0]])
    relevance = relevance_from_neighbours(measure([[0.0], [9.0]], gallery), 2, ["q", "e"], list("abcde"))
    assert [relevance.of(query).tolist() for query in (0, 1)] == [[1, 2, 3], [0, 2]]
    with pytest.raises(InvalidInput, match="1 to 4"):
        relevance_from_neighbours(measure([[0.0], [9.0]], gallery), 5, ["q", "e"], list("abcde"))
