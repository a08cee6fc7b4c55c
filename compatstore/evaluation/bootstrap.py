"""Confidence intervals of means over queries, by the bootstrap.

The bootstrap resamples queries: an interval covers the variation over other queries of the same kind, for fixed models
and a fixed transform. Where the gallery is a sample, its items are resampled too, to first order: by the influence of
each item on the mean (the infinitesimal jackknife).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, Positions
from compatstore.evaluation.exact_products import cut, cut_whole, multiply

LEAST = 5e-4  # difference: 0.1 in percent, rounded; smaller ones come from rounding of distances
_CELLS = 2**22  # resampled queries held at a time


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure with its interval.

    Args:
        value: The figure over the measured queries.
        low: Lower end of the interval.
        high: Upper end of the interval.

    Examples:
        >>> estimate = cs.evaluation.Estimate(value=0.71, low=0.68, high=0.74)
        >>> estimate.low >= 0.6  # sure to reach 0.6
        True
    """

    value: float
    low: float
    high: float

    def within(self, least: float, most: float) -> Estimate:
        """The same, clipped to the range of the figure."""
        return Estimate(**{end: min(max(number, least), most) for end, number in asdict(self).items()})

    @property
    def is_gain(self) -> bool:
        """True for a difference whose whole interval is above zero, and that is not 0.0 in percent."""
        return self.low > 0 and self.value >= LEAST

    @property
    def is_loss(self) -> bool:
        """True for a difference whose whole interval is below zero, and that is not 0.0 in percent."""
        return self.high < 0 and self.value <= -LEAST

    @property
    def percent(self) -> str:
        """For people: "98.5 (98.1 to 99.0)", in percent."""
        return f"{100 * self.value:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Resampled:
    """One figure of each query, and its mean over each draw of queries.

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
        """The mean over the measured queries."""
        return float(self.values.mean())

    def estimate(self) -> Estimate:
        """The mean."""
        return self._interval(self.value, self.means)

    def over(self, other: Resampled) -> Estimate:
        """The difference to another mean, query by query."""
        return self._interval(float((self.values - other.values).mean()), self.means - other.means)

    def _interval(self, value: float, drawn: Doubles) -> Estimate:
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(drawn, [tail, 1.0 - tail])
        return Estimate(value=value, low=float(low), high=float(high))


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledGallery:
    """A sampled gallery, and the influence of its items on the measured figures.

    Args:
        influence: (r, n) float64, for each of r figures n times the loss of its mean without an item, centred.
        places: (q,) intp, places of query items in the gallery, so that an item is drawn as both; None
            where queries are no items.
        unexplained: (r,) float64, deviation of further unknowns of the means, the same in all of them but for its size;
            None for none.
    """

    influence: Doubles
    places: Positions | None = None
    unexplained: Doubles | None = None


def resample(
    values: Doubles,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
    gallery: SampledGallery | None = None,
) -> list[Resampled]:
    """Draw queries with replacement, the same for every row, and items of a sampled gallery with replacement as well.

    Args:
        values: (r, q) float64, r figures of each query.
        resamples: Number of draws of q queries each.
        seed: Seed of the draws.
        confidence: Level of the intervals, in (0, 1).
        gallery: The gallery's part in the r figures, if it is a sample.

    Returns:
        One for each row.
    """
    random = np.random.default_rng(seed)
    if gallery is None:
        means = _means(values, _draws(random, values.shape[1], resamples))
    elif gallery.places is None:
        means = _means(values, _draws(random, values.shape[1], resamples))
        means += _means(gallery.influence, _draws(random, gallery.influence.shape[1], resamples))
    else:
        draws = _draws(random, gallery.influence.shape[1], resamples)
        means = _joint_means(values, gallery.influence, gallery.places, draws)
    if gallery is not None and gallery.unexplained is not None:
        means += random.normal(size=(len(means), 1)) * gallery.unexplained
    return [
        Resampled(values=row, means=drawn, confidence=confidence) for row, drawn in zip(values, means.T, strict=True)
    ]


def resample_clusters(
    values: Doubles, clusters: npt.ArrayLike, resamples: int, random: np.random.Generator, confidence: float = 0.95
) -> Resampled:
    """Draw clusters of queries with replacement: the queries of one cluster are drawn together.

    Args:
        values: (q,) float64, one figure of each query.
        clusters: (q,) integers, the cluster of each query, such as its class: its queries rise and fall together.
        resamples: Number of draws, each of as many clusters as there are.
        random: Source of the draws.
        confidence: Level of the interval, in (0, 1).
    """
    names, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    sums, sizes = np.bincount(cluster, values), np.bincount(cluster)
    draws = random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    drawn = multiply(cut_whole(draws.astype(np.float64)), cut(np.array([sums, sizes], np.float64)))
    return Resampled(values=values, means=drawn[:, 0] / drawn[:, 1], confidence=confidence)


def mean_of_groups(groups: Sequence[Resampled]) -> Estimate:
    """The mean over groups of queries of each group's mean; the groups were resampled one by one."""
    means: Doubles = np.mean([group.means for group in groups], axis=0)
    value = float(np.mean([group.value for group in groups]))
    return Resampled(values=np.array([value]), means=means, confidence=groups[0].confidence).estimate()


def figures_together(figures: Sequence[Resampled]) -> list[Estimate]:
    """Mean of each figure; the intervals are simultaneous: they hold for all figures at once, at their confidence."""
    return _together([figure.value for figure in figures], [figure.means for figure in figures], figures[0].confidence)


def gains_together(figures: Sequence[Resampled], before: Resampled) -> list[Estimate]:
    """Mean difference of each figure to `before`, paired by query, with simultaneous intervals."""
    values = [float((figure.values - before.values).mean()) for figure in figures]
    return _together(values, [figure.means - before.means for figure in figures], before.confidence)


def kept_shares(figures: Sequence[Resampled], full: Resampled) -> list[Estimate]:
    """Ratio of each mean to the mean of `full`, with simultaneous intervals.

    A mean of `full` below the smallest normal float32 counts as that, so that no ratio is infinite.
    """
    tiny = float(np.finfo(np.float32).tiny)
    values = [figure.value / max(full.value, tiny) for figure in figures]
    return _together(values, [figure.means / np.maximum(full.means, tiny) for figure in figures], full.confidence)


def _together(values: Sequence[float], means: Sequence[Doubles], confidence: float) -> list[Estimate]:
    """Simultaneous intervals by the max-t bootstrap: one quantile of the largest studentised deviation of a draw.

    They allow for a choice among several figures: without them the largest of ten equal figures would look better than
    the others.
    """
    drawn = np.array(means)
    spread = drawn.std(axis=1)
    apart = np.abs(drawn - drawn.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, np.inf)[:, None]
    wide = float(np.quantile(apart.max(axis=0), confidence)) * spread
    return [
        Estimate(value=float(value), low=float(value - half), high=float(value + half))
        for value, half in zip(values, wide, strict=True)
    ]


def share_of_queries(chosen: npt.NDArray[np.bool_], confidence: float = 0.95) -> Estimate:
    """Share of true values in (q,) bool, with Wilson's interval, which has a width above 0 where no value is true."""
    return wilson(float(chosen.mean()), len(chosen), confidence)


def wilson(share: float, n: float, confidence: float = 0.95) -> Estimate:
    """Wilson's interval of a share of n observations; n need not be whole."""
    z2 = NormalDist().inv_cdf((1.0 + confidence) / 2.0) ** 2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = float(np.sqrt(z2 * (share * (1 - share) + z2 / (4 * n)) / n)) / (1 + z2 / n)
    return Estimate(value=share, low=min(max(centre - half, 0.0), share), high=max(min(centre + half, 1.0), share))


def _draws(random: np.random.Generator, units: int, resamples: int) -> Iterator[Doubles]:
    """Count of each unit in each draw with replacement: blocks of (draws, units) float64."""
    step = max(_CELLS // units, 1)
    for start in range(0, resamples, step):
        draws = min(step, resamples - start)
        drawn = random.integers(0, units, (draws, units)) + units * np.arange(draws)[:, None]
        yield np.bincount(drawn.ravel(), minlength=draws * units).reshape(draws, units).astype(np.float64)


def _means(values: Doubles, draws: Iterable[Doubles]) -> Doubles:
    """(resamples, r) float64, a mean as a matrix product, the same on every processor."""
    figures = cut(values)
    return np.concatenate([multiply(cut_whole(counts), figures) / values.shape[1] for counts in draws])


def _joint_means(values: Doubles, influence: Doubles, places: Positions, draws: Iterable[Doubles]) -> Doubles:
    """(resamples, r) float64, where drawing an item draws its query and its part of the gallery.

    Where few items are queries, draws without any of them are left out: they have no mean.
    """
    figures, parts, means = cut(values), cut(influence), []
    for drawn in draws:
        counts = drawn[drawn[:, places].any(axis=1)]
        query_counts = counts[:, places]
        of_queries = multiply(cut_whole(query_counts), figures) / query_counts.sum(axis=1, keepdims=True)
        means.append(of_queries + multiply(cut_whole(counts), parts) / influence.shape[1])
    return np.concatenate(means)
