"""Intervals: as wide as theory says, the same on every run, paired where rows are compared."""

import numpy as np
import pytest

from compatstore.evaluation import bootstrap
from compatstore.evaluation.bootstrap import resample


def test_the_interval_of_a_share_is_as_wide_as_the_binomials():
    [figure] = resample((np.arange(400) < 300).astype(float)[None], resamples=4000)
    found, half = figure.estimate(), 1.96 * np.sqrt(0.75 * 0.25 / 400)
    assert found.value == 0.75
    assert (found.low, found.high) == pytest.approx((0.75 - half, 0.75 + half), abs=0.006)


def test_a_larger_confidence_is_a_wider_interval():
    values = np.random.default_rng(0).random((1, 100))
    narrow, wide = (resample(values, confidence=confidence)[0].estimate() for confidence in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_the_same_seed_gives_the_same_interval_in_any_number_of_pieces(monkeypatch):
    values = np.random.default_rng(1).random((3, 50))
    whole = [figure.means for figure in resample(values, 100, seed=4)]
    monkeypatch.setattr(bootstrap, "_CELLS", 50 * 7)
    np.testing.assert_allclose([figure.means for figure in resample(values, 100, seed=4)], whole)
    assert not np.allclose([figure.means for figure in resample(values, 100, seed=5)], whole)


def test_differences_and_ratios_are_paired():
    values = np.random.default_rng(2).random(200)
    one, more, double = resample(np.array([values, values + 0.25, 2 * values]))
    gain, ratio = more.over(one), double.share_of(one)
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.25, 0.25, 0.25))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2, 2))
