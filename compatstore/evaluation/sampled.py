"""Figures of a whole gallery, estimated from a sample of it, and the influence of each sampled item on them.

A sample is easier to search than the gallery that it was drawn from: fewer items are nearer than a correct one. Average
precision is corrected item by item. Where c of t nearer items are correct in a sample of 1 in w, about w c of w t are
correct in the whole gallery, so the precision there is (1 + w c) / (1 + w t). CMC needs the very nearest
items, of which a sample has few: of a sample it is not measured (see `put_right`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.evaluation.distances import Distances
from compatstore.evaluation.ranking import average_precision, nearest_first, ranks_at
from compatstore.evaluation.relevance import Relevance

_CELLS = 2**20  # distances ranked at a time


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Relation of a sampled gallery to the whole one.

    Args:
        weight: Items of the whole gallery for each sampled one, >= 1.
        asked: (q,) float64, weight of each query in the mean; None for equal weights. Queries that have no correct
            item in the sample count nothing, so that queries with one represent similar queries without.
        drawn: (n,) bool, items that were drawn at random, of which each stands for `weight`; the others stand for
            themselves alone. None for all.
    """

    weight: float = 1.0
    asked: Doubles | None = None
    drawn: BoolArray | None = None

    @property
    def unseen(self) -> float:
        """Deviation that a figure owes to the choice of the sample, as a share of an endless gallery's."""
        return float(np.sqrt(1.0 - 1.0 / self.weight))

    def stands_for(self, order: Positions) -> Doubles | float:
        """Items that each item stands for, by the rows of `order`: (n,) float64, or one number for all."""
        return float(self.weight) if self.drawn is None else np.where(self.drawn[order], self.weight, 1.0)


WHOLE = Sampling()


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryFigures:
    """Results of each query by one strategy to serve the gallery.

    Args:
        values: (metrics, q) float64: CMC at each k, recall@k, nDCG@k and MRR@k where these are measured, then average
            precision; NaN for a query without a correct item.
        influence: (metrics, n) float64, how much the mean over queries would lose without each gallery item, times
            n; zero where the gallery is not a sample.
        unexplained: Deviation of further unknowns of the mean, beside the draw of queries and items.
    """

    values: Doubles
    influence: Doubles
    unexplained: float = 0.0

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """(q,) bool, the queries that have a correct item in the gallery."""
        counted: npt.NDArray[np.bool_] = np.isfinite(self.values[-1])
        return counted


def find_in_galleries(
    distances: Distances,
    relevance: Relevance,
    galleries: Sequence[Positions],
    ks: Sequence[int],
    sampling: Sampling = WHOLE,
    progress: Callable[[int], None] | None = None,
) -> list[QueryFigures]:
    """Search several galleries of n items each whose vectors are rows of one table; as `rank_galleries`."""
    columns = [rows[relevance.order] for rows in galleries]
    return find_in_blocks(distances.blocks(), len(distances.left), relevance, columns, ks, sampling, progress=progress)


def find_in_blocks(
    blocks: Iterable[tuple[int, Doubles]],
    queries: int,
    relevance: Relevance,
    columns: Sequence[Positions],
    ks: Sequence[int],
    sampling: Sampling = WHOLE,
    *,
    influence: bool = True,
    progress: Callable[[int], None] | None = None,
) -> list[QueryFigures]:
    """Search several galleries of n items each from distances that come block by block; as `rank_blocks`.

    An item at an infinite distance is not found. Without `influence` the influence of the items on the figures is left
    at zero, as it is of a whole gallery. `progress` is called with the rankings that were made since its last call: one
    for each query and gallery.
    """
    items, drawn = len(relevance.order), influence and sampling.unseen > 0
    found = [_empty(len(ks) + num_graded(relevance.depth) + 1, queries, items) for _ in columns]
    if sampling.weight == 1.0:
        for start, block in blocks:
            for query, distances in enumerate(block, start=start):
                for places, result in zip(columns, found, strict=True):
                    _record_whole(result.values[:, query], query, distances[places], relevance, ks)
                if progress is not None:
                    progress(len(columns))
        return found
    step = max(_CELLS // items, 1)
    for start, block in blocks:
        for row in range(0, len(block), step):
            rows = np.arange(start + row, min(start + row + step, start + len(block)))
            gains = _gains(relevance, rows)
            itself = relevance.itself[rows]
            for places, result in zip(columns, found, strict=True):
                near = np.take(block[row : row + step], places, axis=1)
                near[itself >= 0, itself[itself >= 0]] = np.inf
                _record(result, rows, near, gains, relevance, ks, sampling, drawn=drawn)
            if progress is not None:
                progress(len(rows) * len(columns))
    return [_by_row(result, relevance, sampling) for result in found]


def _record_whole(values: Doubles, query: int, distances: Doubles, relevance: Relevance, ks: Sequence[int]) -> None:
    """Fill in the results of a query in a whole gallery from the ranks of its correct items, without a full order."""
    positions, itself, depth = relevance.of(query), relevance.itself[query], relevance.depth
    gains = relevance.gains_of(query)
    positions, gains = positions[gains > 0], gains[gains > 0]
    if not len(positions):
        return
    if itself >= 0:
        distances[itself] = np.inf
    there = np.isfinite(distances[positions])
    ranks = ranks_at(distances, positions[there]).of
    in_order = np.sort(ranks)
    for metric, k in enumerate(ks):
        values[metric] = len(ranks) > 0 and in_order[0] <= k
    if depth is not None:
        first, top = ranks <= depth, np.zeros((1, depth))
        top[0, ranks[first] - 1] = gains[there][first]
        values[len(ks) : -1] = graded(top, gains[None], depth)[:, 0]
    values[-1] = average_precision(in_order, len(positions))


def _record(
    result: QueryFigures,
    rows: Positions,
    distances: Doubles,
    gains: Doubles,
    relevance: Relevance,
    ks: Sequence[int],
    sampling: Sampling,
    *,
    drawn: bool,
) -> None:
    """Add some queries to a result, whose influences are sums over queries, in the order that breaks ties."""
    order = nearest_first(distances)
    there = np.isfinite(distances)
    found = gains if there.all() else gains * there
    total = (gains > 0).sum(axis=1)
    hit = np.take_along_axis(found > 0, order, axis=1)
    each = sampling.stands_for(relevance.order)
    ranked = _Ranked.of(hit, total, each if isinstance(each, float) else each[order])
    some, depth = total > 0, relevance.depth
    for metric, k in enumerate(ks):
        result.values[metric, rows[some]] = (ranked.first < k)[some]
    if depth is not None:
        top = np.take_along_axis(found, order[:, :depth], axis=1)
        result.values[len(ks) : -1, rows[some]] = graded(top[some], gains[some], depth)
    if not drawn:
        result.values[-1, rows[some]] = ranked.precision()[some]
        return
    moved = np.zeros((len(result.influence), *order.shape))
    for metric, k in enumerate(ks):
        ranked.cmc_influence(k, moved[metric])
    chance = np.full(order.shape, sampling.weight)
    if sampling.drawn is not None:
        chance = np.where(sampling.drawn[relevance.order][order], sampling.weight, 0.0)
    result.values[-1, rows[some]] = ranked.precision(chance, moved[-1])[some]
    if sampling.asked is not None:
        moved *= sampling.asked[rows, None]
    for metric, lost in enumerate(moved):
        # Added one by one, query after query, so that the sums do not depend on the blocks.
        np.add.at(result.influence[metric], order.ravel(), lost.ravel())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Ranked:
    """Which places of some rankings are correct; (b, n) arrays by query and place from 0."""

    hit: npt.NDArray[np.bool_]
    above: npt.NDArray[np.int64]  # correct items up to and with each place
    total: npt.NDArray[np.int64]  # correct items, found or not
    first: Positions
    second: Positions
    each: Doubles | float  # items that the one at each place stands for

    @classmethod
    def of(cls, hit: npt.NDArray[np.bool_], total: npt.NDArray[np.int64], each: Doubles | float) -> _Ranked:
        above = hit.cumsum(axis=1)
        found, never = above[:, -1], hit.shape[1]
        first = np.where(found > 0, (above > 0).argmax(axis=1), never)
        second = np.where(found > 1, (above > 1).argmax(axis=1), never)
        return cls(hit=hit, above=above, total=total, first=first, second=second, each=each)

    def cmc_influence(self, k: int, lost: Doubles) -> None:
        """Fill in the loss of each query's CMC@k without the item at each place."""
        alone = np.flatnonzero((self.first < k) & (self.second > k))
        lost[alone, self.first[alone]] = 1.0
        lost[self.first == k, :k] = -1.0

    def precision(self, chance: Doubles | None = None, lost: Doubles | None = None) -> Doubles:
        """Average precision in the whole gallery, (b,); fills in its loss without the item at each place.

        The precision at a correct item is c / t with t items of the whole gallery up to it and c correct ones of them,
        itself included.

        Args:
            chance: (b, n) float64, items that the drawn item at each place represents, 0 for items that were not drawn.
            lost: (b, n) float64, filled in.
        """
        every = np.maximum(self.total, 1)[:, None]
        up_to, correct = self._up_to()
        precision = self.hit * (correct / up_to)
        mean = precision.sum(axis=1, keepdims=True) / every
        figures: Doubles = mean[:, 0]
        if lost is None or chance is None:
            return figures
        gained, spoiled = chance * _after(self.hit / up_to), chance * _after(precision / up_to)
        np.divide(self.hit * (precision - mean + gained) - spoiled, every, out=lost)
        lost[(self.total == 0)[:, None] | (chance == 0.0)] = 0.0
        return figures

    def _up_to(self) -> tuple[Doubles, Doubles]:
        """Items of the whole gallery up to each place, itself as one, and the number of correct ones: (b, n)."""
        each: Doubles = np.broadcast_to(np.float64(self.each), self.hit.shape)
        hits: Doubles = np.multiply(self.hit, each, dtype=np.float64)
        return 1.0 + each.cumsum(axis=1) - each, 1.0 + hits.cumsum(axis=1) - hits


GRADED = ("recall", "ndcg", "mrr")


def num_graded(depth: int | None) -> int:
    """Number of figures that judgements give beside CMC and mAP."""
    return 0 if depth is None else len(GRADED)


def graded(top: Doubles, gains: Doubles, depth: int) -> Doubles:
    """Recall, nDCG and MRR at a depth of each query, as trec_eval defines them: (3, b) float64.

    recall = correct items among the first / correct items; nDCG = sum of gain / log2(rank + 1) over the first, divided
    by that of the best ranking; MRR = 1 / rank of the first correct item, 0 where it is not among the first
    (Jarvelin and Kekalainen 2002, with linear gains).

    Args:
        top: (b, depth or fewer) float64, gains of the first items of each ranking, in order.
        gains: (b, m) float64, gains of all correct items of each query, at least one above 0.
        depth: Rank down to which items count.
    """
    hit = top > 0
    ideal = -np.sort(-gains, axis=1)[:, :depth]
    best = (ideal / np.log2(np.arange(ideal.shape[1]) + 2.0)).sum(axis=1)
    gained = (top / np.log2(np.arange(top.shape[1]) + 2.0)).sum(axis=1)
    first = np.where(hit.any(axis=1), 1.0 / (hit.argmax(axis=1) + 1.0), 0.0)
    return np.array([hit.sum(axis=1) / (gains > 0).sum(axis=1), gained / best, first])


def _after(values: Doubles) -> Doubles:
    """For each place the sum over all places behind it."""
    behind: Doubles = values.sum(axis=1, keepdims=True) - values.cumsum(axis=1)
    return behind


def _gains(relevance: Relevance, rows: Positions) -> Doubles:
    """(b, n) float64, gain of each item for some queries, 0 if it is not correct."""
    gains = np.zeros((len(rows), len(relevance.order)))
    for place, query in enumerate(rows.tolist()):
        gains[place, relevance.of(query)] = relevance.gains_of(query)
    return gains


def _by_row(result: QueryFigures, relevance: Relevance, sampling: Sampling) -> QueryFigures:
    """Put influences in the order of the gallery's rows, scale them to means, and centre them."""
    influence = np.empty_like(result.influence)
    influence[:, relevance.order] = result.influence
    weights = result.counted if sampling.asked is None else sampling.asked * result.counted
    influence *= sampling.unseen * influence.shape[1] / max(weights.sum(), 1)
    drawn = slice(None) if sampling.drawn is None else sampling.drawn  # the others are in every draw
    influence[:, drawn] -= influence[:, drawn].mean(axis=1, keepdims=True)
    return QueryFigures(values=result.values, influence=influence)


def _empty(metrics: int, queries: int, items: int) -> QueryFigures:
    return QueryFigures(values=np.full((metrics, queries), np.nan), influence=np.zeros((metrics, items)))
