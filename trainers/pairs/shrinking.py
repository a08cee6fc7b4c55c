"""Choose the shrinkage of a transformed vector's cosines, on pairs that the transform was not trained on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.artifacts.shrinkage import FIGURE, Shrinkage
from compatstore.evaluation.curve import native_rows
from compatstore.evaluation.distances import measure
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.trainers.pairs.pairs import unit, unit_length
from compatstore.versions import Metric

EXPONENTS = (0.2, 0.5, 1.0)
LEVELS = (1.0, 0.5, 0.0)
SHARES = (0.0, 0.25, 0.5, 0.75)  # native shares; at 1 no transformed row is left
_FEWEST = 40  # rows held out
_PLACES = 33  # values of sigma^2 with a factor
_MOST_ROWS = 2048  # rows that exponents are compared on: 32 MB of distances
# Standard errors subtracted from a gain by neighbours: without them the factors chosen put natives first and lost
# quality by classes (`docs/results/self_training.md`). Gains by classes are compared as `evaluate` does.
_ERRORS_BY_NEIGHBOURS = 3.0


class HeldOutRows(NamedTuple):
    """Rows that a transform was not trained on, and what it makes of them.

    Attributes:
        sigma2: (n,) float32, predicted.
        transformed: (n, d) float32.
        native: (n, d) float32, of the same items.
        labels: (n,) classes, or None.
        shares: Native shares of the gallery that decide, in [0, 1): while few items are native, little is gained by
            ranking them first.
    """

    sigma2: FloatArray
    transformed: FloatArray
    native: FloatArray
    labels: npt.NDArray[np.generic] | None = None
    shares: Sequence[float] = SHARES

    def part(self, rows: slice) -> HeldOutRows:
        """Some of the rows."""
        labels = None if self.labels is None else self.labels[rows]
        return HeldOutRows(self.sigma2[rows], self.transformed[rows], self.native[rows], labels, self.shares)


def shrinkage_of(rows: HeldOutRows) -> Shrinkage | None:
    """Measure E[cos(h, n) | sigma^2], and choose the power and the level of it with the best retrieval.

    If the error of a transformed vector h did not depend on the query q, cos(q, n) of its native vector n would be
    expected to be cos(q, h) E[cos(h, n) | sigma^2]. It does depend on it: a query of an item's class lies where its
    error points. So powers of E[cos(h, n) | sigma^2] / E[cos(h, n)]^level are tried: at level 0 transformed vectors
    rank behind native ones by their expected loss; at level 1 they do not on average, and the least uncertain
    ones rank first. Native vectors search a backfill of the transformed ones in the order of sigma^2, and
    the mean over it of CMC-1 and mAP decides. Without labels it is that of the recalls at 1 and 10 of native
    neighbours, and the lower bound of the gain over unshrunk cosines, three standard errors below the mean, decides.
    If no gain is above 0, cosines are not shrunk.

    E[cos(h, n) | sigma^2] is a line in log sigma^2: means over quantiles of the rows would not resolve the few least
    uncertain vectors within the tenth of the rows that they are in.

    Returns:
        The factors between the first and the last hundredth of sigma^2, none above that of a smaller sigma^2; None of
        fewer than 40 rows, or where cosines are not above 0.
    """
    if len(rows.sigma2) < _FEWEST:
        return None
    rows = rows._replace(native=unit(rows.native), transformed=unit(rows.transformed))
    cosines = np.einsum("nd,nd->n", rows.transformed, rows.native, dtype=np.float64)
    mean = cosines.mean()
    if mean <= 0:
        return None
    known = np.finfo(np.float32)
    logs = np.log(np.clip(rows.sigma2.astype(np.float64), known.tiny, known.max))
    # Beyond the hundredths, those: no row tilts the line alone.
    logs = np.clip(logs, np.quantile(logs, 0.01, method="higher"), np.quantile(logs, 0.99, method="lower"))
    places = np.unique(np.linspace(logs.min(), logs.max(), _PLACES))
    kept = np.clip(mean + _slope(logs, cosines) * (places - logs.mean()), 0.0, 1.0)
    at = tuple(map(float, places))
    tried = [Shrinkage(at, (1.0,) * len(at), exponent=0.0)]
    for level, power in itertools.product(LEVELS, EXPONENTS):
        factors = (kept / mean**level) ** power
        tried.append(Shrinkage(at, tuple(map(float, factors)), exponent=power, level=level))
    trial = _Backfill(rows.part(slice(_MOST_ROWS)))
    scores = np.stack([trial.found(one) for one in tried])
    gains = scores - scores[0]
    errors = gains.std(axis=1, ddof=1) / np.sqrt(gains.shape[1])
    least = gains.mean(axis=1) - (_ERRORS_BY_NEIGHBOURS if trial.labels is None else 0.0) * errors
    return tried[int(np.argmax(least))]


def cross_fitted_factors(rows: HeldOutRows) -> Doubles | None:
    """Factor of each row, measured on the other half of the rows, so that the same rows can evaluate it.

    Args:
        rows: In random order.

    Returns:
        (n,) float64; None of fewer than 80 rows, or where cosines are not above 0.
    """
    factors, halves = np.empty(len(rows.sigma2)), (slice(None, None, 2), slice(1, None, 2))
    for half, other in zip(halves, reversed(halves), strict=True):
        measured = shrinkage_of(rows.part(half))
        if measured is None:
            return None
        factors[other] = measured.at(rows.sigma2[other])
    return factors


def shrinkage_figure(rows: HeldOutRows, metric: Metric | None) -> dict[str, object]:
    """Result of `shrinkage_of` as a figure of h; none if the metric depends on lengths, or nothing could be measured.

    Args:
        rows: The rows.
        metric: Of the target space; None, of bare arrays, may be cosine.
    """
    if metric not in ("cosine", None) and not unit_length(rows.native):
        return {}
    found = shrinkage_of(rows)
    return {} if found is None else {FIGURE: found.figure()}


def _slope(logs: Doubles, cosines: Doubles) -> float:
    """Slope of cosines by log sigma^2, (n,) float64 each, at most 0, shrunk by its own standard error.

    This is the estimate of James and Stein: if sigma^2 and cosines are independent, the squared slope of least squares
    is about its own variance, and the result is about 0.
    """
    centred = logs - logs.mean()
    spread = float(centred @ centred)
    if spread == 0:
        return 0.0
    slope = float(centred @ cosines) / spread
    left = cosines - cosines.mean() - slope * centred
    chance = float(left @ left) / (len(logs) - 2) / spread
    return min(slope - chance / slope, 0.0) if slope < 0 else 0.0


class _Backfill:
    """Native vectors search transformed ones while these give way to native ones, in the order of sigma^2."""

    def __init__(self, held_out: HeldOutRows) -> None:
        sigma2, transformed, native, labels, shares = held_out
        self._sigma2, rows = sigma2, np.arange(len(native))
        # Products are shrunk in place of vectors: two sets of them serve every factor and every share.
        self._natives, self._made = (
            np.concatenate([block.copy() for _, block in measure(native, gallery, "dot").blocks()])
            for gallery in (native, transformed)
        )
        order = np.argsort(-sigma2, kind="stable")
        self._steps = [native_rows(order, share) for share in shares]
        counts = np.zeros(0) if labels is None else np.unique(labels, return_counts=True)[1]
        # Classes rank if some of them have several rows and not all.
        self.labels = labels if len(counts) > 1 and counts.max() > 1 else None
        if self.labels is not None:
            self._correct = relevance_from_labels(self.labels, self.labels, rows, rows)
            return
        self._ks = [k for k in (1, 10) if len(native) > k]
        self._neighbours = [self._nearest(self._natives, k) for k in self._ks]

    def found(self, shrinkage: Shrinkage) -> Doubles:
        """Return the score of each query, (q,) float64, in the mean over the shares."""
        shrunk = self._made * shrinkage.at(self._sigma2)
        steps = [np.where(native, self._natives, shrunk) for native in self._steps]
        found: Doubles = np.mean([self._score(distances) for distances in steps], axis=0)
        return found

    def _score(self, distances: Doubles) -> Doubles:
        """CMC-1 and AP of each query among other items, or its recalls of native neighbours: (q, n) -> (q,) float64."""
        if self.labels is not None:
            columns = [self._correct.order]
            (ranking,) = rank_blocks([(0, distances)], len(distances), self._correct, columns)
            each: Doubles = (ranking.first_match == 1) + ranking.average_precision
            return each[ranking.counted]
        recalls = np.zeros(len(distances))
        for k, true in zip(self._ks, self._neighbours, strict=True):
            found = self._nearest(distances, k)
            recalls += (found[:, :, None] == true[:, None, :]).sum(axis=(1, 2)) / k
        return recalls

    @staticmethod
    def _nearest(distances: Doubles, k: int) -> Positions:
        """(q, k) intp, the nearest other items of each query, in no order; its own item gets an infinite distance."""
        np.fill_diagonal(distances, np.inf)
        return np.argpartition(distances, k - 1, axis=1)[:, :k]
