"""Depths of two ranked lists, and their rows that may be the nearest by both distances.

The threshold algorithm (Fagin, Lotem and Naor, "Optimal aggregation algorithms for middleware", 2003): a row in neither
list is at least as far as the ends of both. So a few rows are compared by both vectors, and not all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from compatstore.arrays import BoolArray, Doubles, RowNumbers
from compatstore.evaluation.fusion import Fusion

FEWEST = 100  # rows of a list at first: reading fewer is no faster
DEEPER = 4  # factor of the next depth if these are not enough
DEEPEST = 20_000  # rows at which it stops: very many equal items would take all memory without a result


def first_depth(items: int, k: int) -> int:
    """Rows of each list at first: a quarter of `sqrt(items * k)`, by which two unrelated lists share about k rows."""
    return max(2 * k, FEWEST, math.isqrt(items * k) // 4)


class ListFactors(NamedTuple):
    """Bounds of the factors of the target's products (`shrunk_distances`).

    Attributes:
        metric: Of the target's distances.
        least: (n,) float64, the least factor of each row, by the data in the target's list.
        most: (n,) float64, the largest.
        rest: The least and the largest factor of a row that this list does not hold.
    """

    metric: str
    least: Doubles
    most: Doubles
    rest: tuple[float, float]


NO_FACTORS = ListFactors("dot", np.ones(1), np.ones(1), (1.0, 1.0))  # products as they are


@dataclass(frozen=True, eq=False)
class RankedLists:
    """The lists of both versions for one query, of n rows.

    Args:
        fusion: Weight and constants.
        rows: (n,) int64, each row once.
        source: (n,) float64, distances in the source's list, NaN for a row that it does not hold.
        target: (n,) float64, the same of the target's.
        ends: Lower bound of the distance of rows missing in each list; infinite if the list is complete.
        errors: Largest difference between the distances of each list and those of the vectors themselves.
        first: (n,) bool, rows that are always candidates. An index may miss rows that are nearer than the end of its
            list, so the first rows of a list may be nearer in the other one than the bounds.
        factors: The least and the largest factor of each row's product in the target.
    """

    fusion: Fusion
    rows: RowNumbers
    source: Doubles
    target: Doubles
    ends: tuple[float, float]
    errors: tuple[float, float]
    first: BoolArray
    factors: ListFactors

    @classmethod
    def of(
        cls,
        fusion: Fusion,
        lists: Sequence[tuple[RowNumbers, Doubles]],
        ends: tuple[float, float],
        errors: tuple[float, float] = (0.0, 0.0),
        first: int = 0,
        factors: ListFactors = NO_FACTORS,
    ) -> RankedLists:
        """Put the source's and the target's list together, each as rows and their distances, nearest first.

        Args:
            fusion: As of the class.
            lists: Both of them.
            ends: As of the class.
            errors: As of the class.
            first: Rows of each list that are always candidates.
            factors: Of the rows of the target's list.
        """
        rows, places = np.unique(np.concatenate([held for held, _ in lists]), return_inverse=True)
        distances, near = np.full((2, len(rows)), np.nan), np.zeros(len(rows), bool)
        for number, part in enumerate(np.split(places, [len(lists[0][0])])):
            distances[number, part] = lists[number][1]
            near[part[:first]] = True
        known = np.repeat(np.array(factors.rest)[:, None], len(rows), axis=1)
        known[:, places[len(lists[0][0]) :]] = factors.least, factors.most
        factors = factors._replace(least=known[0], most=known[1])
        return cls(fusion, rows, distances[0], distances[1], ends, errors, near, factors)

    def near(self, k: int) -> BoolArray:
        """(n,) bool, rows that may be among the k nearest of those that the lists hold."""
        if len(self.rows) <= k:
            return np.ones(len(self.rows), bool)
        least, most = self._bounds()
        near: BoolArray = (least <= np.partition(most, k - 1)[k - 1] + self._slack) | self.first
        return near

    def unseen(self) -> float:
        """The least fused distance that a row which neither list holds can have."""
        near, far = self.ends
        cases = [self._fused(np.array([near]), np.array([far])).min()] if np.isfinite(self.ends).all() else []
        for end, in_source in ((near, True), (far, False)):
            if np.isfinite(end):  # rows without a vector in the other version; the next step shows if they increase
                ahead = np.array([end, end + 1.0])
                alone = self._fused(ahead, ahead, in_source=in_source, in_target=not in_source)
                cases.append(alone[:, 0].min() if (alone[:, 1] >= alone[:, 0]).all() else -np.inf)
        return float(min(cases, default=np.inf)) - self._slack

    @cached_property
    def _slack(self) -> float:
        """The largest error of a fused distance, which is linear in both distances."""
        near, far = (np.array([0.0, error]) for error in self.errors)
        made = self._fused(near, far), self._fused(near, near, in_target=False), self._fused(far, far, in_source=False)
        return float(max(np.abs(np.diff(one, axis=1)).max() for one in made))

    def _bounds(self) -> tuple[Doubles, Doubles]:
        """(n,) the least and the most that the fused distance of each row can be.

        The most is infinite for a row that one list alone holds.
        """
        here, there = ~np.isnan(self.source), ~np.isnan(self.target)
        near, far = np.where(here, self.source, self.ends[0]), np.where(there, self.target, self.ends[1])
        least = np.where(np.minimum(near, far) == -np.inf, -np.inf, np.inf)
        most, rows = np.full(len(self.rows), np.inf), np.isfinite(near) & np.isfinite(far)
        both = self._fused(near[rows], far[rows], rows)
        least[rows], most[rows] = both.min(axis=0), np.where((here & there)[rows], both.max(axis=0), np.inf)
        for rows, known, in_source in ((here & ~there, near, True), (there & ~here, far, False)):
            alone = self._fused(known[rows], known[rows], rows, in_source=in_source, in_target=not in_source)
            least[rows] = np.minimum(least[rows], alone.min(axis=0))
        return least, most

    def _fused(
        self,
        source: Doubles,
        target: Doubles,
        rows: BoolArray | None = None,
        *,
        in_source: bool = True,
        in_target: bool = True,
    ) -> Doubles:
        """Fused distances by the kind of the target's vector, native or not, and its factor: (kinds, n) float64.

        A fused distance is linear in the factor: of all factors the least and the largest are enough.

        Args:
            source: (n,) float64, distances to source vectors.
            target: (n,) float64, distances to target vectors, as they are.
            rows: (all,) bool, the rows that these are; None for rows that no list holds.
            in_source: True if they have a source vector.
            in_target: True if they have a target vector.
        """
        factors, fusion, count = self.factors, self.fusion, len(source)
        ends = factors.rest if rows is None else (factors.least[rows], factors.most[rows])
        made = (fusion.shrunk(target, factor, factors.metric) for factor in (ends if fusion.shrinkage else ends[:1]))
        kinds = [*([(True, target)] if fusion.per_origin else []), *((False, one) for one in made)]
        held = np.full(count, in_source), np.full(count, in_target)
        return np.stack([fusion.distances(source, one, np.full(count, native), *held) for native, one in kinds])
