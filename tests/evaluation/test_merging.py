"""The calibration of distances: what it promises of every function, and what it is fitted to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.evaluation import Calibration, Estimate, Merge
from compatstore.evaluation.distances import measure
from compatstore.evaluation.merging import BINS, MergeChoice, calibrate, few_queries, matched
from compatstore.evaluation.relevance import relevance_from_labels

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
    others = measure(vectors[:10], vectors), measure(3 * vectors[:10], 3 * vectors)
    fitted = calibrate(*others, relevance_from_labels(labels[:10], labels, np.arange(10), np.arange(30)))
    assert fitted.distances[0] > 0  # the distance of a query to itself is 0


def test_few_queries_are_spread_over_all_of_them():
    assert few_queries(5, 100).tolist() == [0, 1, 2, 3, 4]
    many = few_queries(5000, 2**12)
    assert len(many) == 256
    assert (many[0], many[-1]) == (0, 4980)


def choice(merge, share):
    gain = Estimate(value=0.01, low=0.0, high=0.02)
    return MergeChoice(
        merge=merge, rule="distance", native_share=share, criterion="map", truth="labels", num_queries=9, gain=gain,
        over_status_quo=gain,
    )  # fmt: skip


def test_a_merge_follows_the_native_share_and_survives_json():
    choices = (choice("distance", 0.1), choice("calibrated", 0.5))
    merge = Merge(merge="distance", calibration=Calibration(), bridge="", choices=choices)
    assert [merge.at(share).merge for share in (0.0, 0.1, 0.49, 1.0)] == [
        "distance", "distance", "calibrated", "calibrated",
    ]  # fmt: skip
    assert Merge.from_json(merge.at(0.5).as_json()) == merge.at(0.5)
    assert not merge.worth
    with pytest.raises(InvalidInput, match="native share from 0 to 1"):
        choice("distance", 1.5)
