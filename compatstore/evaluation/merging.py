"""Merging: the rows of a gallery that are in two spaces become one list.

Rows with a vector of the target are searched with the target's query, all others in the source's space: a search during
a backfill that needs no transform at all (Seo et al., arXiv 2301.03767). A row is in one of the two parts only. Both
parts are ranked by distance where distances of both spaces compare. Else source distances are mapped into the target's
space first, by a calibration.

The calibration takes two distances as equal at which items are as likely to be correct. For each space the share of
correct pairs by distance is fitted to a sample, decreasing (isotonic regression by pooling adjacent violators); a
source distance becomes the target distance with the same share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput
from compatstore.evaluation.distances import Distances
from compatstore.evaluation.fusion import Measurement
from compatstore.evaluation.fusion_choice import Trial, folds_of, of_queries
from compatstore.evaluation.relevance import Relevance
from compatstore.evaluation.sampled import QueryFigures, Sampling, find_in_blocks
from compatstore.shown import Shown

BINS = 16
_PAIRS = 2**20  # pairs of a query and an item that a calibration is fitted to, at most
_FEWEST = 10  # pairs in the bin of the nearest
_BLOCK_CELLS = 2**21  # distances of a block


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A strictly increasing function from distances of one space to distances of another; plain numbers.

    Lines join the knots. Beyond the knots the function goes on with `slope`. Rounding breaks no order: of two distances
    the nearer one is never mapped behind the other.

    Args:
        distances: Knots, strictly ascending.
        mapped: Target distances of the knots, strictly ascending.
        slope: Slope beyond the knots, above 0.

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
        even = 0 < len(self.distances) == len(self.mapped)
        knots = np.array([self.distances, self.mapped]) if even else np.full((2, 1), np.nan)
        rising = bool(np.isfinite(knots).all() and (np.diff(knots, axis=1) > 0).all())
        if not (rising and np.isfinite(self.slope) and self.slope > 0):
            found = f"knots {self.distances} to {self.mapped} and a slope of {self.slope}"
            raise InvalidInput("calibrate distances", expected="knots that ascend, and a slope > 0", found=found)

    def apply(self, distances: Doubles) -> Doubles:
        """Mapped distances, of the same shape; infinite where a distance is."""
        x, y = np.array(self.distances), np.array([*self.mapped, self.mapped[-1]])
        place = np.maximum(np.searchsorted(x, distances, side="right") - 1, 0)
        # A rounded line may end beyond the knot where the next line begins.
        between = np.clip(np.interp(distances, x, y[:-1]), y[place], y[place + 1])
        mapped: Doubles = between + self.slope * (np.minimum(distances - x[0], 0) + np.maximum(distances - x[-1], 0))
        return mapped

    def __str__(self) -> str:
        ends = [f"{self.distances[end]:.4g} to {self.mapped[end]:.4g}" for end in (0, -1)]
        return f"{len(self.distances)} knots, {' ... '.join(ends)}"


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Merge(Measurement, Shown):
    """Merging of the two parts of an upgrade without a hop, and its gain; stored with the upgrade.

    Args:
        bridge: Id of the artifact that brings the target's queries into the source's space; "" if the source's part
            is searched with the source's queries.
        calibration: Maps distances of the source's part into the target's space; None if distances compare.
        gain, criterion, truth, num_queries, native_share: Gain over the status quo, and its measurement.

    Examples:
        >>> gain = cs.evaluation.Estimate(value=0.031, low=0.012, high=0.05)
        >>> merge = cs.evaluation.Merge(
        ...     bridge="", calibration=cs.evaluation.Calibration(), gain=gain, criterion="map", truth="labels",
        ...     num_queries=800, native_share=0.25,
        ... )
        >>> merge.how, merge.worth
        ('calibrated', True)
    """

    bridge: str
    calibration: Calibration | None

    @property
    def how(self) -> Literal["distance", "calibrated"]:
        """Ranking criterion of both parts."""
        return "distance" if self.calibration is None else "calibrated"

    @property
    def worth(self) -> bool:
        """True if it is significantly better than the status quo."""
        return self.gain is not None and self.gain.is_gain

    def __str__(self) -> str:
        return f"{self.how}, against the status quo {super().__str__()}"


def find_merged(
    trial: Trial, source: Distances, target: Distances, native: BoolArray, *, calibrated: bool
) -> QueryFigures:
    """Search a gallery of two parts, each query by a calibration that was fitted to other queries.

    Args:
        trial: q queries and n items.
        source: The queries and items in the source's space, as the source's part is searched.
        target: The same in the target's space.
        native: (n,) bool, items that are searched in the target's space.
        calibrated: False for distances that compare as they are.
    """
    folds, every = folds_of(len(source.left), trial.settings.seed), np.arange(len(source.left))
    source, target = (distances.by(_BLOCK_CELLS // len(native)) for distances in (source, target))
    query_weights, found = trial.sampling.asked, list[QueryFigures]()
    for fold in folds:
        others = np.setdiff1d(every, fold) if len(folds) > 1 else every
        calibration = calibrate(source, target, trial.relevance, others) if calibrated else None
        near, far = source.of(fold), target.of(fold)
        sampling = replace(trial.sampling, asked=None if query_weights is None else query_weights[fold])

        def find(
            relevance: Relevance,
            near: Distances = near,
            far: Distances = far,
            calibration: Calibration | None = calibration,
            sampling: Sampling = sampling,
        ) -> list[QueryFigures]:
            blocks = merged_blocks(near, far, native, relevance, calibration)
            columns = [np.arange(len(native))]
            return find_in_blocks(
                blocks, len(near.left), relevance, columns, trial.settings.ks, sampling, progress=trial.progress
            )

        found += trial.figures(of_queries(trial.relevance, fold), find, fold)
    return trial.joined(folds, found)


def merged_blocks(
    source: Distances, target: Distances, native: BoolArray, relevance: Relevance, calibration: Calibration | None
) -> Iterator[tuple[int, Doubles]]:
    """Distances of a gallery of two parts, block by block: (b, n), items in the order that breaks ties.

    Args:
        source: Queries and n items in the source's space.
        target: The same in the target's space, in blocks of the same size.
        native: (n,) bool, items that are searched in the target's space.
        relevance: The correct items.
        calibration: Calibration of the source distances; None for distances that compare as they are.
    """
    native = native[relevance.order]
    for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
        rows = slice(start, start + len(left))
        near, far = (
            np.take(block, relevance.order, axis=1) + distances.offsets[rows, None]
            for block, distances in ((left, source), (right, target))
        )
        yield start, np.where(native, far, near if calibration is None else calibration.apply(near))


def calibrate(source: Distances, target: Distances, relevance: Relevance, queries: Positions) -> Calibration:
    """Fit the function that maps source distances into the target's space.

    Args:
        source: Queries against n items, as the source's part is searched.
        target: The same queries and items in the target's space, in blocks of the same size.
        relevance: The correct items.
        queries: Places of the queries to fit to; of many, only some that are spread over all of them.

    Returns:
        The function. If the two spaces share no likelihood, such as without correct items, it gives source
        distances the mean and the deviation of target distances.
    """
    items = len(relevance.order)
    wanted = min(max(_PAIRS // items, 1), len(queries))
    few = queries[np.arange(wanted) * len(queries) // wanted]
    source, target, relevance = source.of(few), target.of(few), of_queries(relevance, few)
    near, far, correct = list[Doubles](), list[Doubles](), list[BoolArray]()
    for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
        for query, (own, other) in enumerate(zip(left, right, strict=True), start=start):
            hit, found = np.zeros(items, bool), np.arange(items) != relevance.itself[query]
            hit[relevance.of(query)] = True
            near.append((own[relevance.order] + source.offsets[query])[found])
            far.append((other[relevance.order] + target.offsets[query])[found])
            correct.append(hit[found])
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
    """Mean distance of each of some bins, ascending, and its share of correct pairs, strictly decreasing.

    Bins grow with the distance: the first ranks get fine bins. Adjacent bins are pooled until their shares
    decrease (Ayer et al. 1955).
    """
    order = np.argsort(distances, kind="stable")
    pairs = len(order)
    first = min(max(pairs // 4096, _FEWEST), pairs)
    edges = np.unique(np.concatenate([[0], np.geomspace(first, pairs, BINS).round().astype(np.intp)]))
    rows = np.stack([np.ones(pairs), distances[order], correct[order]], axis=1)
    pools = list[Doubles]()
    for sums in np.add.reduceat(rows, edges[:-1]):
        pool = sums
        while pools and pools[-1][2] / pools[-1][0] <= pool[2] / pool[0]:
            pool = pool + pools.pop()
        pools.append(pool)
    counts, distance, hits = np.array(pools).T
    return distance / counts, hits / counts
