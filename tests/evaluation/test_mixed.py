"""Merges: two parts of a gallery, each in its own space, as one ranking."""

import numpy as np
import pytest

from compatstore.errors import InvalidInput
from compatstore.evaluation.distances import measure
from compatstore.evaluation.merge_choice import mixed_blocks
from compatstore.evaluation.merging import Calibration, calibrate
from compatstore.evaluation.ranking import rank_blocks, rank_queries
from compatstore.evaluation.relevance import relevance_from_labels, relevance_from_neighbours

pytestmark = pytest.mark.kernel
MERGES = ("distance", "reciprocal rank", "calibrated")


@pytest.fixture
def spaces():
    """One set of items in two spaces, the target's ten times as wide and shifted far away."""
    random = np.random.default_rng(0)
    labels, query_labels = random.integers(0, 10, 120), random.integers(0, 10, 30)
    centres = random.normal(size=(10, 8))
    gallery, queries = (centres[of] + 0.5 * random.normal(size=(len(of), 8)) for of in (labels, query_labels))
    ids, query_ids = [f"g{i:03d}" for i in range(120)], [f"g{i:03d}" if i % 2 else "new" for i in range(30)]
    return {"gallery": gallery, "queries": queries, "labels": (query_labels, labels), "ids": (query_ids, ids)}


def rank_mixed(source, target, native, relevance, merge, calibration=None):
    """Rank a mixed gallery as a whole."""
    blocks = mixed_blocks(source, target, native, relevance, [merge], calibration or Calibration())
    return rank_blocks(blocks, len(source.left), relevance, [np.arange(len(native))])[0]


def mixed(spaces, native, merge, scale=1.0):
    source = measure(spaces["queries"], spaces["gallery"])
    target = measure(scale * spaces["queries"], scale * spaces["gallery"])
    relevance = relevance_from_labels(*spaces["labels"], *spaces["ids"])
    return rank_mixed(source, target, native, relevance, merge, calibrate(source, target, relevance))


def same(one, other):
    np.testing.assert_array_equal(one.first_match, other.first_match)
    np.testing.assert_allclose(one.average_precision, other.average_precision)


def test_two_parts_in_one_space_rank_as_one_gallery(spaces):
    whole = rank_queries(spaces["queries"], spaces["gallery"], *spaces["labels"], *spaces["ids"])
    native = np.arange(120) % 3 == 0
    same(mixed(spaces, native, "distance"), whole)
    same(mixed(spaces, native, "calibrated"), whole)


@pytest.mark.parametrize("merge", MERGES)
def test_blocks_change_no_bit(spaces, merge):
    native, relevance = np.arange(120) % 3 == 0, relevance_from_labels(*spaces["labels"], *spaces["ids"])

    def merged(block):
        target = measure(3.0 * spaces["queries"], spaces["gallery"] + 1.0, block=block)
        source = measure(spaces["queries"], spaces["gallery"], block=block)
        calibration = calibrate(source, target, relevance)
        parts = mixed_blocks(source, target, native, relevance, [merge], calibration)
        return np.concatenate([part.copy() for _, part in parts])

    for block in (1, 7, 29):
        assert np.array_equal(merged(block), merged(None))


def test_several_merges_stand_side_by_side(spaces):
    native, relevance = np.arange(120) % 3 == 0, relevance_from_labels(*spaces["labels"], *spaces["ids"])
    source, target = (measure(scale * spaces["queries"], spaces["gallery"], block=9) for scale in (1.0, 2.0))
    calibration = calibrate(source, target, relevance)
    together = mixed_blocks(source, target, native, relevance, MERGES, calibration)
    alone = [mixed_blocks(source, target, native, relevance, [merge], calibration) for merge in MERGES]
    for (start, block), *parts in zip(together, *alone, strict=True):
        assert all(part[0] == start for part in parts)
        assert np.array_equal(block, np.concatenate([part for _, part in parts], axis=1))


def test_calibration_undoes_another_scale_and_plain_distance_does_not(spaces):
    whole = rank_queries(spaces["queries"], spaces["gallery"], *spaces["labels"], *spaces["ids"])
    native = np.arange(120) % 3 == 0
    same(mixed(spaces, native, "calibrated", scale=10.0), whole)
    assert mixed(spaces, native, "distance", scale=10.0).average_precision.mean() < whole.average_precision.mean()


def test_reciprocal_ranks_take_turns_and_the_native_part_begins():
    source, target = np.array([[1.0], [2.0], [0.0], [0.0]]), np.array([[0.0], [0.0], [50.0], [70.0]])
    native = np.array([False, False, True, True])
    distances = measure([[0.0]], source), measure([[0.0]], target)
    truths = [relevance_from_labels([0], np.where(np.arange(4) == item, 0, 1)) for item in range(4)]
    first = [int(rank_mixed(*distances, native, truth, "reciprocal rank").first_match[0]) for truth in truths]
    assert first == [2, 4, 1, 3]


def test_a_query_does_not_find_its_own_item_in_either_part(spaces):
    whole = rank_queries(spaces["queries"], spaces["gallery"], *spaces["labels"], *spaces["ids"])
    for merge in MERGES:
        for native in (np.ones(120, bool), np.zeros(120, bool)):
            same(mixed(spaces, native, merge), whole)


def test_neighbours_as_truth_are_the_nearest_and_all_that_tie_with_them():
    gallery = np.array([[3.0], [1.0], [2.0], [-2.0], [9.0]])
    relevance = relevance_from_neighbours(measure([[0.0], [9.0]], gallery), 2, ["q", "e"], list("abcde"))
    assert [relevance.of(query).tolist() for query in (0, 1)] == [[1, 2, 3], [0, 2]]
    with pytest.raises(InvalidInput, match="1 to 4"):
        relevance_from_neighbours(measure([[0.0], [9.0]], gallery), 5, ["q", "e"], list("abcde"))
