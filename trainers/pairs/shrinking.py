"""Choose how much of its cosine a transformed vector keeps, on pairs that the transform has not learned from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.evaluation import recall_at_k, retrieval_metrics
from compatstore.evaluation.curve import native_rows
from compatstore.evaluation.distances import measure
from compatstore.evaluation.ranking import nearest_rows
from compatstore.trainers.pairs.trainer import unit

EXPONENTS = (0.2, 0.5, 1.0)
LEVELS = (1.0, 0.5, 0.0)
SHARES = (0.0, 0.25, 0.5, 0.75)  # of native rows; with all of them there is nothing to doubt
_PARTS, _FEWEST = 10, 20  # parts of the rows by sigma^2, and rows of a part at least
_MOST_ROWS = 2048  # that exponents are compared on: 32 MB of distances


def shrinkage_of(
    sigma2: FloatArray, transformed: FloatArray, native: FloatArray, labels: npt.NDArray[np.generic] | None = None
) -> Shrinkage | None:
    """Measure E[cos(h, n) | sigma^2], and choose the power and the level of it that find most.

    Where the error of a transformed vector h does not depend on the query q, cos(q, n) of its native vector n is
    expected to be cos(q, h) E[cos(h, n) | sigma^2]. It does depend on it: a query of an item's class lies where its
    error points. So powers of E[cos(h, n) | sigma^2] / E[cos(h, n)]^level are tried: at level 0 transformed vectors
    stand back behind native ones as far as they are expected to; at level 1 they do not on average, and what is doubted
    least is found before them. Native vectors search a backfill of the transformed ones in the order of sigma^2, and
    the mean over it of CMC-1 and mAP decides, or without labels that of the recalls at 1 and 10 of native neighbours.

    Args:
        sigma2: (n,) float32, predicted, of rows held out from training.
        transformed: (n, d) float32.
        native: (n, d) float32, of the same items.
        labels: (n,) classes, or None.

    Returns:
        The factors in up to ten parts of the rows, none above that of a part of smaller sigma^2; None of fewer than 40
        rows, or where cosines are not above 0.
    """
    parts = min(_PARTS, len(sigma2) // _FEWEST)
    if parts < 2:
        return None
    native, transformed = unit(native), unit(transformed)
    cosines = np.einsum("nd,nd->n", transformed, native, dtype=np.float64)
    if cosines.mean() <= 0:
        return None
    logs = np.log(np.maximum(sigma2, np.finfo(np.float32).tiny).astype(np.float64))
    rows = np.array_split(np.argsort(logs, kind="stable"), parts)
    kept, mean = descending(_shrunk([cosines[part] for part in rows])), cosines.mean()
    places = tuple(float(logs[part].mean()) for part in rows)
    tried = [Shrinkage(places, (1.0,) * parts, exponent=0.0)]
    for level, power in itertools.product(LEVELS, EXPONENTS):
        factors = (kept / mean**level) ** power
        tried.append(Shrinkage(places, tuple(map(float, factors)), exponent=power, level=level))
    some = slice(_MOST_ROWS)
    trial = _Backfill(sigma2[some], transformed[some], native[some], None if labels is None else labels[some])
    return max(tried, key=trial.found)


def _shrunk(parts: Sequence[Doubles]) -> Doubles:
    """Means of parts, (b,) float64, at least 0: nearer to the mean of all by what chance alone makes them differ.

    As of James and Stein: where sigma^2 says nothing of cosines, the means of its parts differ as much as means of so
    few rows do, and nothing is left of that.
    """
    means = np.array([part.mean() for part in parts])
    chance, spread = np.mean([part.var() / len(part) for part in parts]), means.var()
    share = max(1.0 - chance / spread, 0.0) if spread > 0 else 0.0
    shrunk: Doubles = np.maximum(means.mean() + share * (means - means.mean()), 0.0)
    return shrunk


class _Backfill:
    """Native vectors search transformed ones while these give way to native ones, in the order of sigma^2."""

    def __init__(
        self,
        sigma2: FloatArray,
        transformed: FloatArray,
        native: FloatArray,
        labels: npt.NDArray[np.generic] | None,
    ) -> None:
        self._sigma2, self._transformed, self._native = sigma2, transformed, native
        order = np.argsort(-sigma2, kind="stable")
        self._steps = [native_rows(order, share) for share in SHARES]
        self._finding = _finding(native, labels)

    def found(self, shrinkage: Shrinkage) -> float:
        """What is found, in the mean over the shares."""
        doubted = self._transformed * shrinkage.at(self._sigma2)[:, None].astype(np.float32)
        steps = [np.where(native[:, None], self._native, doubted) for native in self._steps]
        return float(np.mean([self._finding(gallery) for gallery in steps]))


def descending(values: Iterable[float]) -> Doubles:
    """(b,) -> (b,) float64: the nearest values, by squares, none of which is above the one before (isotonic)."""
    means: list[float] = []
    counts: list[int] = []
    for value in values:
        mean, count = float(value), 1
        while means and means[-1] < mean:  # pool adjacent violators
            mean = (means[-1] * counts[-1] + mean * count) / (counts[-1] + count)
            count += counts.pop()
            means.pop()
        means.append(mean)
        counts.append(count)
    return np.repeat(means, counts)


def _finding(native: FloatArray, labels: npt.NDArray[np.generic] | None) -> Callable[[FloatArray], float]:
    """What says how well the native vectors find transformed ones, each item's own left out."""
    rows = np.arange(len(native))
    counts = np.zeros(0) if labels is None else np.unique(labels, return_counts=True)[1]
    if labels is not None and len(counts) > 1 and counts.max() > 1:

        def of_classes(gallery: FloatArray) -> float:
            found = retrieval_metrics(native, gallery, labels, labels, rows, rows, ks=(1,), metric="dot")
            return found.cmc[1] + found.map

        return of_classes
    ks = [k for k in (1, 10) if len(native) > k]
    true = {k: nearest_rows(measure(native, native, "dot"), k, rows) for k in ks}

    def of_neighbours(gallery: FloatArray) -> float:
        distances = measure(native, gallery, "dot")
        return sum(recall_at_k(nearest_rows(distances, k, rows), true[k]) for k in ks)

    return of_neighbours
