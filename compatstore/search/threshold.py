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
        least: (m,) float64, the least factor of each row of the list, by the data in the list.
        most: (m,) float64, the largest.
        rest: The least and the largest factor of a row that it does not hold.
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
        factors: (2, n) float64, the least and the largest factor of each row's product in the target.
        rest: The same of a row that neither list holds.
        metric: Of the target's distances.
    """

    fusion: Fusion
    rows: RowNumbers
    source: Doubles
    target: Doubles
    ends: tuple[float, float]
    errors: tuple[float, float]
    first: BoolArray
    factors: Doubles
    rest: tuple[float, float] = (1.0, 1.0)
    metric: str = "dot"

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
            factors: Of the fusion by shrunk distances.
        """
        rows, places = np.unique(np.concatenate([held for held, _ in lists]), return_inverse=True)
        distances, near = np.full((2, len(rows)), np.nan), np.zeros(len(rows), bool)
        for number, part in enumerate(np.split(places, [len(lists[0][0])])):
            distances[number, part] = lists[number][1]
            near[part[:first]] = True
        known = np.repeat(np.array(factors.rest)[:, None], len(rows), axis=1)
        known[:, places[len(lists[0][0]) :]] = factors.least, factors.most
        return cls(fusion, rows, distances[0], distances[1], ends, errors, near, known, factors.rest, factors.metric)

    def near(self, k: int) -> BoolArray:
        """(n,) bool, rows that may be among the k nearest of those that the lists hold."""
        if len(self.rows) <= k:
            return np.ones(len(self.rows), bool)
        bar = np.partition(self._most(), k - 1)[k - 1]
        near: BoolArray = (self._least() <= bar + self._slack) | self.first
        return near

    def unseen(self) -> float:
        """The least fused distance that a row which neither list holds can have."""
        near, far = self.ends
        cases = []
        if np.isfinite(self.ends).all():
            cases.append(self._both(np.array([near]), np.array([far]), self._rest).min())
        for end, in_source in ((near, True), (far, False)):
            if np.isfinite(end):  # rows without a vector in the other version; the next step shows if they increase
                ahead = np.array([end, end + 1.0])
                alone = self._alone(ahead, self._rest, in_source=in_source)
                cases.append(alone[:, 0].min() if (alone[:, 1] >= alone[:, 0]).all() else -np.inf)
        return float(min(cases, default=np.inf)) - self._slack

    @cached_property
    def _slack(self) -> float:
        """The largest error of a fused distance, which is linear in both distances."""
        near, far = (np.array([0.0, error]) for error in self.errors)
        made = (
            self._both(near, far, self._rest),
            self._alone(near, self._rest, in_source=True),
            self._alone(far, self._rest, in_source=False),
        )
        return float(max(np.abs(np.diff(one, axis=1)).max() for one in made))

    def _least(self) -> Doubles:
        """(n,) the least that the fused distance of each row can be."""
        here, there = ~np.isnan(self.source), ~np.isnan(self.target)
        near, far = np.where(here, self.source, self.ends[0]), np.where(there, self.target, self.ends[1])
        least = np.where(np.minimum(near, far) == -np.inf, -np.inf, np.inf)
        finite = np.isfinite(near) & np.isfinite(far)
        least[finite] = self._both(near[finite], far[finite], self.factors[:, finite]).min(axis=0)
        for known, distances, in_source in ((here & ~there, near, True), (there & ~here, far, False)):
            alone = self._alone(distances[known], self.factors[:, known], in_source=in_source).min(axis=0)
            least[known] = np.minimum(least[known], alone)
        return least

    def _most(self) -> Doubles:
        """(n,) the most that it can be; infinite for a row that one list alone holds."""
        known = ~np.isnan(self.source) & ~np.isnan(self.target)
        most = np.full(len(self.rows), np.inf)
        most[known] = self._both(self.source[known], self.target[known], self.factors[:, known]).max(axis=0)
        return most

    @property
    def _rest(self) -> Doubles:
        """(2, 1) float64, `rest` as `factors` are given."""
        return np.array(self.rest)[:, None]

    def _both(self, source: Doubles, target: Doubles, factors: Doubles) -> Doubles:
        """(kinds, n) fused distances of rows with both vectors, by their factors, (2, n) or (2, 1)."""
        return np.stack(
            [
                self.fusion.distances(source, self._expected(target, factor), np.full(len(source), native))
                for native, factor in self._kinds(factors)
            ]
        )

    def _alone(self, distances: Doubles, factors: Doubles, *, in_source: bool) -> Doubles:
        """(kinds, n) the same of rows with a vector in one version only."""
        here, there = (np.full(len(distances), held) for held in (in_source, not in_source))
        return np.stack(
            [
                self.fusion.distances(
                    distances, self._expected(distances, factor), np.full(len(distances), native), here, there
                )
                for native, factor in self._kinds(factors)
            ]
        )

    def _kinds(self, factors: Doubles) -> list[tuple[bool, Doubles | float]]:
        """Kinds of a row's target vector, native or not, with their factors; one kind if there is no difference.

        A fused distance is linear in the factor: of all factors the least and the largest are enough.
        """
        made: list[tuple[bool, Doubles | float]] = [(False, factor) for factor in factors]
        if (factors[0] == factors[1]).all():
            made = made[:1]
        return [(True, 1.0), *made] if self.fusion.per_origin else made

    def _expected(self, distances: Doubles, factor: Doubles | float) -> Doubles:
        return self.fusion.shrunk(distances, factor, self.metric)
