"""Intervals: as wide as theory says, the same on every run, paired where rows are compared."""

import numpy as np
import pytest

from compatstore.evaluation import bootstrap
from compatstore.evaluation.bootstrap import Estimate, SampledGallery, kept_shares, resample, share_of_queries

pytestmark = pytest.mark.kernel


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
    np.testing.assert_array_equal([figure.means for figure in resample(values, 100, seed=4)], whole)
    assert not np.allclose([figure.means for figure in resample(values, 100, seed=5)], whole)


def test_differences_and_ratios_are_paired():
    values = np.random.default_rng(2).random(200)
    one, more, double = resample(np.array([values, values + 0.25, 2 * values]))
    gain, [ratio] = more.over(one), kept_shares([double], one)
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.25, 0.25, 0.25))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2, 2))


@pytest.mark.full
def test_a_gallery_that_is_a_sample_widens_an_interval():
    values, influence = np.random.default_rng(3).normal(size=(2, 1, 400))
    influence -= influence.mean()
    for places in (None, np.arange(400)):  # queries of their own, and items that are queries too
        [alone] = resample(values, 4000)
        [both] = resample(values, 4000, gallery=SampledGallery(influence=influence, places=places))
        together = values + influence if places is not None else np.array([[2**0.5]]) * values
        found, expected = both.estimate(), 1.96 * together.std() / 20
        assert found.value == alone.estimate().value
        assert (found.high - found.low) / 2 == pytest.approx(expected, rel=0.08)


def test_shares_to_be_picked_from_have_wider_intervals_and_the_full_one_has_none():
    values = np.random.default_rng(4).random((6, 200))
    *some, full = resample(values)
    several, [alone, whole] = kept_shares([*some, full], full), kept_shares([some[0], full], full)
    assert (whole.low, whole.value, whole.high) == (several[-1].low, 1.0, several[-1].high) == (1.0, 1.0, 1.0)
    assert several[0].value == alone.value
    assert several[0].low < alone.low


def test_no_broken_query_among_few_does_not_mean_that_none_will_be():
    none = share_of_queries(np.zeros(100, bool))
    assert (none.value, none.low) == (0.0, 0.0)
    assert 0.03 < none.high < 0.04
    half = share_of_queries(np.arange(400) < 200)
    assert (half.high - half.low) / 2 == pytest.approx(0.049, abs=0.001)


def test_draws_without_a_query_are_left_out(monkeypatch):
    """Few items are queries, as where few of a small sample share their label with another."""
    values, places = np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([3, 7])
    gallery = SampledGallery(influence=np.zeros((2, 40)), places=places)
    found = resample(values, 400, gallery=gallery)
    assert 200 < len(found[0].means) < 400
    assert set(found[1].means) == {0.5}
    assert (found[0].estimate().low, found[0].estimate().high) == (0.25, 0.75)
    monkeypatch.setattr(bootstrap, "_CELLS", 40)  # one draw at a time
    assert np.array_equal(resample(values, 400, gallery=gallery)[0].means, found[0].means)


def test_a_difference_that_reads_as_none_is_neither_gain_nor_loss():
    """Rounding of distances gives every query the same tiny difference, whose interval lies beside zero."""
    assert Estimate(value=0.01, low=0.001, high=0.02).is_gain
    assert Estimate(value=-0.01, low=-0.02, high=-0.001).is_loss
    for tiny in (1e-9, -1e-9, 4e-4):
        estimate = Estimate(value=tiny, low=tiny, high=tiny)
        assert not estimate.is_gain
        assert not estimate.is_loss
    assert not Estimate(value=0.01, low=-0.001, high=0.02).is_gain
