"""A sample stands for its gallery: figures as of the whole, and what each item of the sample is worth to them."""

from __future__ import annotations

import numpy as np
import pytest
from digit_galleries import DIGITS, LABELS

from compatstore.evaluation import rank_queries
from compatstore.evaluation.bootstrap import SampledGallery, resample
from compatstore.evaluation.distances import measure
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.evaluation.sampled import WHOLE, Sampling, find_in_galleries

pytestmark = pytest.mark.kernel

VECTORS = DIGITS[:, ::3] + np.random.default_rng(0).normal(0, 3, (len(DIGITS), 22))


def find(rows, sampling=WHOLE, ks=(1, 5)):
    """Let the items of some rows search each other."""
    relevance = relevance_from_labels(LABELS[rows], LABELS[rows], rows, rows)
    [found] = find_in_galleries(measure(VECTORS[rows], VECTORS[rows]), relevance, [np.arange(len(rows))], ks, sampling)
    return found


def test_a_whole_gallery_is_ranked_as_everywhere():
    rows = np.arange(300)
    found = find(rows)
    ranking = rank_queries(VECTORS[rows], VECTORS[rows], LABELS[rows], LABELS[rows], rows, rows)
    np.testing.assert_array_equal(found.values[0], ranking.first_match <= 1)
    np.testing.assert_array_equal(found.values[1], ranking.first_match <= 5)
    np.testing.assert_allclose(found.values[2], ranking.average_precision)
    assert not found.influence.any()


def test_equal_vectors_are_ranked_by_id_and_lonely_queries_are_not_counted():
    vectors, labels, ids = np.array([[0.0], [1.0], [1.0], [1.0]]), np.array([7, 8, 7, 9]), np.array([0, 3, 1, 2])
    relevance = relevance_from_labels(labels, labels, ids, ids)
    [found] = find_in_galleries(measure(vectors, vectors), relevance, [np.arange(4)], (1, 2))
    assert found.counted.tolist() == [True, False, True, False]
    assert found.values[:, 0].tolist() == [1, 1, 1]
    assert found.values[:, 2].tolist() == [0, 0, pytest.approx(1 / 3)]


def test_blocks_change_no_bit():
    rows, sampling = np.arange(150), Sampling(weight=4.0)
    relevance = relevance_from_labels(LABELS[rows], LABELS[rows], rows, rows)

    def found(block):
        distances = measure(VECTORS[rows], VECTORS[rows], block=block)
        return find_in_galleries(distances, relevance, [rows], (1, 5), sampling)[0]

    whole = found(None)
    for parts in (found(1), found(7), found(64)):
        assert np.array_equal(parts.values, whole.values)
        assert np.array_equal(parts.influence, whole.influence)


@pytest.mark.full
def test_samples_give_the_precision_of_the_whole_gallery():
    whole = find(np.arange(len(DIGITS))).values[-1].mean()
    random = np.random.default_rng(1)
    samples = [random.choice(len(DIGITS), 150, replace=False) for _ in range(40)]
    plain = [find(rows).values[-1].mean() for rows in samples]
    weighed = [find(rows, Sampling(weight=len(DIGITS) / 150)).values[-1].mean() for rows in samples]
    error = np.std(weighed) / np.sqrt(len(samples))
    assert abs(np.mean(weighed) - whole) < 4 * error
    assert np.mean(plain) - whole > 5 * error


@pytest.mark.full
def test_the_influence_of_an_item_is_what_is_lost_without_it():
    rows, sampling = np.arange(200), Sampling(weight=4.0)
    queries = VECTORS[200:400]

    def found(kept):
        left = relevance_from_labels(LABELS[200:400], LABELS[kept])
        return find_in_galleries(measure(queries, VECTORS[kept]), left, [np.arange(len(kept))], (1, 5), sampling)[0]

    everything = found(rows)
    lost = np.array([(everything.values - found(np.delete(rows, row)).values).mean(axis=1) for row in rows]).T
    lost = 200 * sampling.unseen * (lost - lost.mean(axis=1, keepdims=True))
    assert not everything.influence[:2].any()  # a sample gives no CMC
    assert np.corrcoef(everything.influence[2], lost[2])[0, 1] > 0.99
    assert everything.influence[2].std() == pytest.approx(lost[2].std(), rel=0.2)


@pytest.mark.full
def test_intervals_of_samples_cover_the_whole_gallery():
    whole = find(np.arange(len(DIGITS))).values[-1].mean()
    random, inside = np.random.default_rng(2), []
    for _ in range(60):
        rows = random.choice(len(DIGITS), 150, replace=False)
        found = find(rows, Sampling(weight=len(DIGITS) / 150))
        gallery = SampledGallery(influence=found.influence[-1:], places=np.arange(150))
        [figure] = resample(found.values[-1:], 300, gallery=gallery)
        inside.append(figure.estimate().low <= whole <= figure.estimate().high)
    assert np.mean(inside) >= 0.85


@pytest.mark.parametrize("sampling", [WHOLE, Sampling(weight=3.0), Sampling(weight=3.0, drawn=np.arange(90) % 2 == 0)])
def test_a_query_that_finds_nothing_has_no_part_in_the_figures_but_is_counted(sampling):
    rows, lost = np.arange(90), np.arange(0, 90, 4)
    vectors, others = VECTORS[rows], np.setdiff1d(rows, lost)
    relevance = relevance_from_labels(LABELS[rows], LABELS[rows], rows, rows)

    def found_by(queries):
        distances = measure(queries, vectors, "cosine", undirected="lose")
        return find_in_galleries(distances, relevance, [rows], (1, 5), sampling)[0]

    found, every = found_by(np.where(np.isin(rows, lost)[:, None], 0.0, vectors)), found_by(vectors)
    assert np.array_equal(found.counted, every.counted)
    assert not np.nan_to_num(found.values[:, lost]).any()
    assert np.array_equal(found.values[:, others], every.values[:, others], equal_nan=True)
    few = relevance_from_labels(LABELS[others], LABELS[rows], others, rows)
    alone = find_in_galleries(measure(vectors[others], vectors, "cosine"), few, [rows], (1, 5), sampling)[0]
    share = alone.counted.sum() / every.counted.sum()  # influences are on the mean over all queries
    np.testing.assert_allclose(found.influence, share * alone.influence, atol=1e-9)
