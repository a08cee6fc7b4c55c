"""Confidence intervals of means over queries, by the percentile bootstrap.

Queries are what is resampled: an interval says how much a figure would move with other queries of the same kind, with
the gallery, the models and the transform as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compatstore.evaluation.distances import Doubles

_CELLS = 2**22  # resampled queries held at a time


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure with its interval.

    Args:
        value: The figure over the queries at hand.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Resampled:
    """One figure of each query, and its mean over queries drawn anew.

    Args:
        values: (q,) float64.
        means: (resamples,) float64; the draws are the same for all that was resampled together, so that differences
            and ratios are paired.
        confidence: Share of the draws inside an interval, in (0, 1).
    """

    values: Doubles
    means: Doubles
    confidence: float

    @property
    def value(self) -> float:
        """The mean over the queries at hand."""
        return float(self.values.mean())

    def estimate(self) -> Estimate:
        """The mean."""
        return self._interval(self.value, self.means)

    def over(self, other: Resampled) -> Estimate:
        """The difference to another mean, query by query."""
        return self._interval(float((self.values - other.values).mean()), self.means - other.means)

    def share_of(self, other: Resampled) -> Estimate:
        """The ratio to another mean that is above 0; of a mean of 0 it is as large as numbers get."""
        tiny = float(np.finfo(np.float32).tiny)
        return self._interval(self.value / max(other.value, tiny), self.means / np.maximum(other.means, tiny))

    def _interval(self, value: float, drawn: Doubles) -> Estimate:
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(drawn, [tail, 1.0 - tail])
        return Estimate(value=value, low=float(low), high=float(high))


def resample(values: Doubles, resamples: int = 1000, seed: int = 0, confidence: float = 0.95) -> list[Resampled]:
    """Draw queries with replacement, the same for every row.

    Args:
        values: (r, q) float64, r figures of each query.
        resamples: Number of draws of q queries each.
        seed: Of the draws.
        confidence: Of the intervals, in (0, 1).

    Returns:
        One for each row.
    """
    means = _resampled_means(values, resamples, seed)
    return [
        Resampled(values=row, means=drawn, confidence=confidence) for row, drawn in zip(values, means.T, strict=True)
    ]


def _resampled_means(values: Doubles, resamples: int, seed: int) -> Doubles:
    """(resamples, r) float64; a draw is how often each query comes up in it, so that a mean is a matrix product."""
    random, queries = np.random.default_rng(seed), values.shape[1]
    step = max(_CELLS // queries, 1)
    means = []
    for start in range(0, resamples, step):
        draws = min(step, resamples - start)
        drawn = random.integers(0, queries, (draws, queries)) + queries * np.arange(draws)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=draws * queries).reshape(draws, queries)
        means.append(counts @ values.T / queries)
    return np.concatenate(means)
