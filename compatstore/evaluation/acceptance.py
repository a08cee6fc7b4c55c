"""Verification: how many pairs of one class are accepted where few pairs of two classes are, exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles
from compatstore.boundary import checked
from compatstore.errors import InvalidInput
from compatstore.evaluation.distances import Distances, measure
from compatstore.evaluation.relevance import Relevance, relevance_between
from compatstore.versions import Metric

_BITS = 16  # of a distance, told by each pass over all pairs
_SHIFTS = range(64 - _BITS, -1, -_BITS)
_SIGN = np.uint64(1 << 63)

Keys = npt.NDArray[np.uint64]


@checked
def true_acceptance(
    queries: npt.ArrayLike,
    gallery: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    rates: Sequence[float] = (1e-4, 1e-3, 1e-2),
    metric: Metric = "cosine",
    *,
    block: int | None = None,
) -> dict[float, float]:
    """Measure TAR@FAR: true acceptances at a rate of false ones (DMU, section 4.1).

    Each query and each gallery item are a pair, accepted where they are nearer than a threshold. The threshold is the
    largest at which no more than the rate of all pairs of two classes is accepted. All pairs are compared, five times,
    block by block: nothing is estimated, and memory is bounded.

    Args:
        queries: (q, d) floats.
        gallery: (n, d) floats.
        query_labels: (q,) integers or strings.
        gallery_labels: (n,) of the same kind.
        query_ids: (q,) integers or strings, or None.
        gallery_ids: (n,) of the same kind, each once, or None. Of one id a query and an item are no pair.
        rates: False acceptances, as shares of the pairs of two classes, from 0 to 1.
        metric: "l2", "cosine" or "dot".
        block: Queries at a time; bounds memory and changes no figure. None keeps a block near 128 MiB.

    Returns:
        For each rate the share of the pairs of one class that is accepted.

    Raises:
        InvalidInput: Vectors of two lengths, or labels or ids that do not match their vectors in number. A vector holds
            NaN or infinite values. A gallery id occurs twice. An unknown metric, a rate that is no share, labels of two
            kinds, a zero vector under cosine, or no pair of one class, or of two.

    Examples:
        >>> stored = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.6, 0.5]])
        >>> labels = [0, 0, 1, 1]
        >>> ids = range(4)
        >>> cs.evaluation.true_acceptance(stored, stored, labels, labels, ids, ids, rates=(0.0, 0.5))
        {0.0: 0.5, 0.5: 1.0}
    """
    asked = "measure true acceptances"
    wrong = [rate for rate in rates if not 0 <= rate <= 1]
    if wrong or not len(rates):
        raise InvalidInput(asked, expected="rates from 0 to 1", found=f"{wrong or 'none'}")
    distances = measure(queries, gallery, metric, block=block)
    relevance = relevance_between(distances, query_labels, gallery_labels, query_ids, gallery_ids)
    pairs = _Pairs(distances, relevance)
    same, other = pairs.count()
    for count, kind in ((same, "one class"), (other, "two classes")):
        if not count:
            raise InvalidInput(asked, expected=f"a pair of {kind}", found="none")
    thresholds = pairs.smallest({rate: int(rate * other) for rate in rates if int(rate * other) < other})
    accepted = dict.fromkeys(thresholds, 0)
    for keys, correct, _ in pairs.blocks():
        for rate, threshold in thresholds.items():
            accepted[rate] += int(np.count_nonzero(keys[correct] < np.uint64(threshold)))
    return {float(rate): accepted.get(rate, same) / same for rate in rates}


class _Pairs:
    """All pairs of queries and items, compared again in each pass.

    Args:
        distances: q queries against n items.
        relevance: Which pairs are of one class, and which are no pairs.
    """

    def __init__(self, distances: Distances, relevance: Relevance) -> None:
        self.distances, self.relevance = distances, relevance

    def blocks(self) -> Iterator[tuple[Keys, BoolArray, BoolArray]]:
        """Keys (b, n) uint64 that order as distances do, and which pairs are of one class, and of two."""
        relevance = self.relevance
        for start, block in self.distances.blocks():
            rows = np.arange(start, start + len(block))
            correct, counted = np.zeros(block.shape, bool), np.ones(block.shape, bool)
            for place, query in enumerate(rows.tolist()):
                correct[place, relevance.order[relevance.of(query)]] = True
            itself = relevance.itself[rows]
            counted[itself >= 0, relevance.order[itself[itself >= 0]]] = False
            yield _keys(block + self.distances.offsets[rows, None]), correct, counted & ~correct

    def count(self) -> tuple[int, int]:
        """Pairs of one class, and of two."""
        relevance, queries = self.relevance, len(self.distances.left)
        same = sum(len(relevance.of(query)) for query in range(queries))
        every = queries * len(relevance.order) - int((relevance.itself >= 0).sum())
        return same, every - same

    def smallest(self, ranks: dict[float, int]) -> dict[float, int]:
        """The key of the pair of two classes at each rank from 0, by the nearest: 16 bits of it in each pass."""
        found, left = dict.fromkeys(ranks, 0), dict(ranks)
        for shift in _SHIFTS:
            counts = self._histograms(set(found.values()), shift)
            for name, prefix in found.items():
                ahead = counts[prefix].cumsum()
                digit = int(np.searchsorted(ahead, left[name], side="right"))
                left[name] -= int(ahead[digit - 1]) if digit else 0
                found[name] = (prefix << _BITS) | digit
        return found

    def _histograms(self, prefixes: set[int], shift: int) -> dict[int, npt.NDArray[np.int64]]:
        """How many keys of pairs of two classes have which next bits, for each beginning of a key."""
        counts: dict[int, npt.NDArray[np.int64]] = defaultdict(lambda: np.zeros(2**_BITS, np.int64))
        for keys, _, wrong in self.blocks():
            bits = keys[wrong] >> np.uint64(shift)
            begin, digits = bits >> np.uint64(_BITS), (bits & np.uint64(2**_BITS - 1)).astype(np.intp)
            for prefix in prefixes:
                counts[prefix] += np.bincount(digits[begin == np.uint64(prefix)], minlength=2**_BITS)
        return counts


def _keys(distances: Doubles) -> Keys:
    """Whole numbers that order as floats do, with -0 as 0."""
    bits = (distances + 0.0).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)
