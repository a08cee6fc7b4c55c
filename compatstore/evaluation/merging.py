"""Merges: how the rows of a gallery that are in two spaces become one list, and the calibration of their distances.

Rows with a vector of the target are searched with the target's query, the others in the source's space. A row is in one
of the two parts only. Three merges rank the rows of both:

    distance          as they are, where distances of both spaces compare
    calibrated        source distances mapped into the target's by a monotone function
    reciprocal rank   1 / (60 + rank within the part) (Cormack et al. 2009): the parts take turns

The calibration takes two distances as equal at which items are as likely to be correct. For each space the share of
correct pairs by distance is fitted to a sample, decreasing (isotonic regression by pooling adjacent violators); a
source distance becomes the target distance with the same share. `benchmarks/merges.py` compares it with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.boundary import checked_fields, require_fields
from compatstore.documents import read_record, to_document
from compatstore.errors import InvalidInput
from compatstore.evaluation.bootstrap import Estimate
from compatstore.evaluation.distances import Distances
from compatstore.evaluation.fusion import SAME_SHARE
from compatstore.evaluation.relevance import Relevance
from compatstore.shown import Shown

RankMerge = Literal["distance", "calibrated", "reciprocal rank"]
BINS = 16
_PAIRS = 2**20  # pairs of a query and an item that a calibration is fitted to, at most
_FEWEST = 10  # pairs in the bin of the nearest


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A strictly increasing function from distances of one space to distances of another; plain numbers.

    Lines join the knots. Beyond the knots the function goes on with `slope`. Rounding breaks no order: of two distances
    the nearer one is never mapped behind the other.

    Args:
        distances: Knots, strictly ascending.
        mapped: What each becomes, strictly ascending.
        slope: Beyond the knots, above 0.

    Raises:
        InvalidInput: The function would not increase.

    Examples:
        >>> calibration = cs.evaluation.Calibration(distances=(0.0, 1.0), mapped=(2.0, 6.0), slope=1.0)
        >>> calibration.apply(np.array([-1.0, 0.5, 3.0])).tolist()
        [1.0, 4.0, 8.0]
    """

    distances: tuple[float, ...] = (0.0,)
    mapped: tuple[float, ...] = (0.0,)
    slope: float = 1.0

    def __post_init__(self) -> None:
        require_fields(self)
        even = 0 < len(self.distances) == len(self.mapped)
        knots = np.array([self.distances, self.mapped]) if even else np.full((2, 1), np.nan)
        rising = bool(np.isfinite(knots).all() and (np.diff(knots, axis=1) > 0).all())
        if not (rising and np.isfinite(self.slope) and self.slope > 0):
            found = f"knots {self.distances} to {self.mapped} and a slope of {self.slope}"
            raise InvalidInput("calibrate distances", expected="knots that ascend, and a slope > 0", found=found)

    def apply(self, distances: Doubles) -> Doubles:
        """Mapped distances, of the same shape; infinite where a distance is."""
        x, y = np.array(self.distances), np.array(self.mapped)
        low, high = y[0] + (distances - x[0]) * self.slope, y[-1] + (distances - x[-1]) * self.slope
        if len(x) > 1:
            place = np.clip(np.searchsorted(x, distances, side="right") - 1, 0, len(x) - 2)
            shares = (np.clip(distances, x[0], x[-1]) - x[place]) / np.diff(x)[place]
            between = y[place] + shares * np.diff(y)[place]
            # A rounded line may end beyond the knot where the next line begins.
            between = np.clip(between, y[place], y[place + 1])
            low = np.where(distances >= x[0], between, low)
        mapped: Doubles = np.where(distances > x[-1], high, low)
        return mapped

    def __str__(self) -> str:
        ends = [f"{self.distances[end]:.4g} to {self.mapped[end]:.4g}" for end in (0, -1)]
        return f"{len(self.distances)} knots, {' ... '.join(ends)}"


@dataclass(frozen=True, kw_only=True)
class MergeChoice:
    """A merge and what it was chosen on.

    Args:
        merge: How the parts are merged.
        rule: The merge without a choice: by distance where the distances compare, else by reciprocal rank.
        native_share: Share of the gallery that was native in the target, from 0 to 1.
        criterion: Figure that decided, such as "map".
        truth: What counted as right: "labels", or "the target's 10 nearest neighbours".
        num_queries: Queries that decided.
        gain: Difference of the criterion to that of the rule.
        over_status_quo: Difference of the criterion to the source's queries on the source's vectors, each query by the
            merge that other queries chose.

    Raises:
        InvalidInput: The share is out of range.
    """

    merge: RankMerge
    rule: RankMerge
    native_share: float
    criterion: str
    truth: str
    num_queries: int
    gain: Estimate
    over_status_quo: Estimate

    def __post_init__(self) -> None:
        require_fields(self)
        if not 0 <= self.native_share <= 1:
            expected = "a native share from 0 to 1"
            raise InvalidInput("choose a merge", expected=expected, found=f"{self.native_share}")

    def __str__(self) -> str:
        over = "" if self.merge == self.rule else f", {_points(self.gain)} to {self.rule}"
        return (
            f"{self.merge} chosen by {self.criterion} of {self.num_queries} queries, correct by {self.truth}, for a "
            f"native share of {self.native_share:.4g}: {_points(self.over_status_quo)} to the status quo{over}"
        )


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Merge(Shown):
    """How searches merge the two parts of an upgrade without a hop; plain numbers, stored with the upgrade.

    Args:
        merge: How the parts are merged.
        calibration: Maps distances of the source's part into the target's space.
        bridge: Id of the artifact that brings the target's queries into the source's space; "" where the source's part
            is searched with the source's queries.
        choices: By ascending native share.
        native_share: Share of the gallery that was native in the target when the merge was last set.

    Raises:
        InvalidInput: A number is out of range.

    Examples:
        >>> merge = cs.evaluation.Merge(merge="calibrated", calibration=cs.evaluation.Calibration(), bridge="")
        >>> cs.evaluation.Merge.from_json(merge.as_json()) == merge
        True
    """

    merge: RankMerge
    calibration: Calibration
    bridge: str
    choices: tuple[MergeChoice, ...] = ()
    native_share: float = 0.0

    def __post_init__(self) -> None:
        require_fields(self)

    @property
    def choice(self) -> MergeChoice | None:
        """The choice that is followed: the last one for no more natives than there are; None without choices."""
        reached = [choice for choice in self.choices if choice.native_share <= self.native_share + SAME_SHARE]
        return (reached or self.choices[:1])[-1] if self.choices else None

    @property
    def worth(self) -> bool:
        """Whether it is better than the status quo for certain."""
        return self.choice is not None and self.choice.over_status_quo.low > 0

    def at(self, native_share: float) -> Merge:
        """The same when a share of the gallery is native: as was chosen for it."""
        there = replace(self, native_share=native_share)
        choice = there.choice
        return there if choice is None else replace(there, merge=choice.merge)

    def as_json(self) -> dict[str, object]:
        """Plain values for JSON."""
        document: dict[str, object] = to_document(self)
        return document

    @classmethod
    def from_json(cls, values: object) -> Merge:
        """Read back what `as_json` gave.

        Raises:
            Malformed: It is something else.
        """
        return read_record(cls, values, "merge")


def few_queries(queries: int, items: int) -> Positions:
    """Queries that a calibration is fitted to, spread over all of them: enough pairs, and not more."""
    wanted = min(max(_PAIRS // items, 1), queries)
    return np.arange(wanted) * queries // wanted


def calibrate(source: Distances, target: Distances, relevance: Relevance) -> Calibration:
    """Fit the function that maps source distances into the target's space.

    Args:
        source: q queries against n items, as the source's part is searched.
        target: The same queries and items in the target's space, in blocks of the same size.
        relevance: The correct items.

    Returns:
        The function. Where the two spaces share no likelihood, such as where no item is correct, it gives source
        distances the mean and the deviation of target distances.
    """
    near, far, correct = list[Doubles](), list[Doubles](), list[BoolArray]()
    for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
        rows = np.arange(start, start + len(left))
        others = np.ones(left.shape, bool)
        hit = np.zeros(left.shape, bool)
        for row, query in enumerate(rows.tolist()):
            hit[row, relevance.of(query)] = True
            if relevance.itself[query] >= 0:
                others[row, relevance.itself[query]] = False
        for block, offsets, kept in ((left, source.offsets, near), (right, target.offsets, far)):
            kept.append((np.take(block, relevance.order, axis=1) + offsets[rows, None])[others])
        correct.append(hit[others])
    return matched(np.concatenate(near), np.concatenate(far), np.concatenate(correct))


def matched(source: Doubles, target: Doubles, correct: BoolArray) -> Calibration:
    """The calibration of pairs whose two distances are known: (p,) float64 twice, (p,) bool."""
    spread = float(source.std())
    slope = float(target.std()) / spread if spread else 1.0
    slope = slope if np.isfinite(slope) and slope > 0 else 1.0
    (near, chances), (far, wanted) = _chances(source, correct), _chances(target, correct)
    # Only between the smallest and the largest chance of the target is there a distance with the same chance.
    shared = (chances <= wanted[0]) & (chances >= wanted[-1])
    x, y = near[shared], np.interp(-chances[shared], -wanted, far)
    rising = np.flatnonzero(np.diff(np.maximum.accumulate(y), prepend=-np.inf) > 0)
    if len(rising) < 2 or chances[0] == chances[-1]:
        return Calibration(distances=(float(source.mean()),), mapped=(float(target.mean()),), slope=slope)
    return Calibration(distances=tuple(x[rising].tolist()), mapped=tuple(y[rising].tolist()), slope=slope)


def _chances(distances: Doubles, correct: BoolArray) -> tuple[Doubles, Doubles]:
    """Mean distance of each of some bins, ascending, and its share of correct pairs, made strictly decreasing.

    Bins grow with the distance: what ranks first is told apart finely.
    """
    order = np.argsort(distances, kind="stable")
    pairs = len(order)
    first = min(max(pairs // 4096, _FEWEST), pairs)
    edges = np.unique(np.concatenate([[0], np.geomspace(first, pairs, BINS).round().astype(np.intp)]))
    counts = np.diff(edges)
    means = np.add.reduceat(distances[order], edges[:-1]) / counts
    shares = np.add.reduceat(correct[order].astype(np.float64), edges[:-1]) / counts
    return _pooled(means, shares, counts.astype(np.float64))


def _pooled(means: Doubles, shares: Doubles, counts: Doubles) -> tuple[Doubles, Doubles]:
    """Pool adjacent bins until the shares decrease strictly (Ayer et al. 1955)."""
    pools: list[tuple[float, float, float]] = []
    for pool in zip(means.tolist(), shares.tolist(), counts.tolist(), strict=True):
        mean, share, count = pool
        while pools and pools[-1][1] <= share:
            other_mean, other_share, other = pools.pop()
            mean, share = (
                (mean * count + other_mean * other) / (count + other),
                (share * count + other_share * other) / (count + other),
            )
            count += other
        pools.append((mean, share, count))
    return np.array([pool[0] for pool in pools]), np.array([pool[1] for pool in pools])


def _points(estimate: Estimate) -> str:
    low, high = 100 * estimate.low, 100 * estimate.high
    return f"{100 * estimate.value:+.1f} points ({low:+.1f} to {high:+.1f})"


def rule_of(*, comparable: bool) -> RankMerge:
    """The merge without a choice."""
    return "distance" if comparable else "reciprocal rank"


def merges_of(*, comparable: bool) -> Sequence[RankMerge]:
    """The merges that can be chosen, the rule's first."""
    return ("distance", "calibrated", "reciprocal rank") if comparable else ("reciprocal rank", "calibrated")
