"""Two models in one column are found, and classes of one model are not taken for them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from compatstore.verification.two_models import effective_rank, find_mixture, neighbourhoods
from digits import load_digits


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def models():
    """Digits by two models: their pixels, and a random network's features of these."""
    pixels = load_digits().data
    draw = np.random.default_rng(5)
    hidden = np.maximum(pixels / 16 @ draw.normal(size=(64, 64)) / 8 + 0.1, 0)
    return unit(pixels), unit(hidden @ draw.normal(size=(64, 64)))


def some(n, rows):
    chosen = np.zeros(n, bool)
    chosen[rows] = True
    return chosen


@pytest.mark.full
def test_a_tenth_of_another_models_rows_is_found_without_any_order(models):
    for seed, (own, other) in enumerate((models, models[::-1])):
        foreign = some(len(own), np.random.default_rng(seed).permutation(len(own))[:180])
        found = find_mixture(np.where(foreign[:, None], other, own), seed=seed)
        assert found.found
        assert (found.part & foreign).sum() > 0.9 * (found.part | foreign).sum()


def test_half_and_half_of_two_models_is_found_within_seconds(models):
    for seed, (own, other) in enumerate((models, models[::-1])):
        foreign = np.random.default_rng(seed).random(len(own)) < 0.5
        began = time.process_time()
        found = find_mixture(np.where(foreign[:, None], other, own), seed=seed)
        assert time.process_time() - began < 5
        assert found.found
        same = (found.part == foreign).mean()
        assert max(same, 1 - same) > 0.95
        assert not find_mixture(own, seed=seed).found


@pytest.mark.full
def test_a_range_of_another_models_rows_is_found(models):
    other, own = models
    foreign = some(len(own), range(900, 1_080))
    found = find_mixture(np.where(foreign[:, None], other, own))
    assert found.found
    assert (found.part & foreign).sum() > 0.9 * (found.part | foreign).sum()


@pytest.mark.full
def test_a_rotation_alone_is_another_model(models):
    own = models[0]
    rotated = own @ np.linalg.qr(np.random.default_rng(0).normal(size=(64, 64)))[0].astype(np.float32)
    foreign = some(len(own), np.random.default_rng(1).permutation(len(own))[:180])
    assert find_mixture(np.where(foreign[:, None], rotated, own)).found


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2))
def test_ten_classes_of_one_model_are_no_sign_in_whatever_order(models, seed):
    digits, own = load_digits().target, models[seed]
    rows = np.random.default_rng(seed).permutation(len(own))
    assert not find_mixture(own[rows], seed=seed).found
    by_class = rows[np.argsort(digits[rows], kind="stable")]
    assert not find_mixture(own[by_class], seed=seed).found


def test_too_few_rows_are_not_judged(models):
    assert find_mixture(models[0][:599]) is None


@pytest.mark.full
def test_long_vectors_are_compared_in_the_directions_in_which_they_vary(models):
    longer = np.random.default_rng(0).normal(size=(64, 225)).astype(np.float32)
    own, other = (vectors @ longer for vectors in models)
    foreign = some(len(own), np.random.default_rng(1).permutation(len(own))[:180])
    assert find_mixture(np.where(foreign[:, None], other, own)).found


@pytest.mark.parametrize("seed", range(5))
def test_neighbourhoods_are_of_like_sizes_whatever_the_scale(seed):
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(1_000, 5)) * np.where(np.arange(1_000) < 300, 1e-6, 1)[:, None]
    places = neighbourhoods(rows.astype(np.float32), draw)
    sizes = np.bincount(places)
    assert len(sizes) == 60
    assert sizes.min() > 0
    assert sizes.max() <= 3 * 1_000 / 60


def test_effective_rank_counts_directions():
    draw = np.random.default_rng(0).normal(size=(20_000, 3)) @ np.eye(3, 8)
    assert effective_rank(draw) == pytest.approx(3, abs=0.01)
    assert effective_rank(np.ones((5, 4))) == 0
