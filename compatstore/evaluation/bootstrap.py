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
    """A mean over queries with its interval.

    Args:
        value: Mean over the queries at hand.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    value: float
    low: float
    high: float


def resampled_means(values: Doubles, resamples: int, seed: int) -> Doubles:
    """Means over queries drawn with replacement; every row sees the same draws, so that differences are paired.

    Args:
        values: (r, q) float64, r figures of each query.
        resamples: Number of draws of q queries each.
        seed: Of the draws.

    Returns:
        (resamples, r) float64.
    """
    random, queries = np.random.default_rng(seed), values.shape[1]
    step = max(_CELLS // queries, 1)
    means = []
    for start in range(0, resamples, step):
        draws = min(step, resamples - start)
        drawn = random.integers(0, queries, (draws, queries)) + queries * np.arange(draws)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=draws * queries).reshape(draws, queries)
        means.append(counts @ values.T / queries)
    return np.concatenate(means)


def estimate(values: Doubles, means: Doubles, confidence: float) -> Estimate:
    """Sum up one figure.

    Args:
        values: (q,) float64, the figure of each query; or the differences of two.
        means: (resamples,) float64, its resampled means.
        confidence: Share of the resampled means inside the interval, in (0, 1).
    """
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Estimate(value=float(values.mean()), low=float(low), high=float(high))
