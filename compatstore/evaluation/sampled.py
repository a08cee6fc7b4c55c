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
from compatstore.evaluation.ranking import Ranks, average_precision, nearest_first, rank_each
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
        influence: (metrics, n) float64, how much mean average precision would lose without each gallery item, times
            n; zero where the gallery is not a sample, and of the other metrics, which a sample does not give.
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
    *,
    influence: bool = True,
    progress: Callable[[int], None] | None = None,
) -> list[QueryFigures]:
    """Search several galleries of n items each whose vectors are rows of one table; as `rank_galleries`."""
    columns, blocks = [rows[relevance.order] for rows in galleries], distances.blocks()
    queries = len(distances.left)
    return find_in_blocks(blocks, queries, relevance, columns, ks, sampling, influence=influence, progress=progress)


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
    items, depth, drawn = len(relevance.order), relevance.depth, influence and sampling.unseen > 0
    shape = len(ks) + num_graded(depth) + 1, queries
    found = [QueryFigures(values=np.full(shape, np.nan), influence=np.zeros((shape[0], items))) for _ in columns]
    if sampling.weight == 1.0:
        tops = np.zeros((len(columns), queries, depth or 0))

        def record(gallery: int, query: int, there: BoolArray, ranks: Ranks) -> None:
            values, in_order = found[gallery].values[:, query], np.sort(ranks.of)
            values[: len(ks)] = [len(in_order) > 0 and in_order[0] <= k for k in ks]
            values[-1] = average_precision(in_order, len(there))
            if depth is not None:
                first = ranks.of <= depth
                tops[gallery, query, ranks.of[first] - 1] = relevance.gains_of(query)[there][first]

        rank_each(blocks, relevance, columns, record, progress)
        if depth is not None:
            for result, top in zip(found, tops, strict=True):
                result.values[len(ks) : -1] = _graded_each(top, relevance, depth)
        return found
    step = max(_CELLS // items, 1)
    for start, block in blocks:
        for row in range(0, len(block), step):
            rows = np.arange(start + row, min(start + row + step, start + len(block)))
            correct = np.zeros((len(rows), items), bool)
            for place, query in enumerate(rows.tolist()):
                correct[place, relevance.of(query)] = True
            itself = relevance.itself[rows]
            for places, result in zip(columns, found, strict=True):
                near = np.take(block[row : row + step], places, axis=1)
                near[itself >= 0, itself[itself >= 0]] = np.inf
                _record(result, rows, near, correct, relevance, ks, sampling, drawn=drawn)
            if progress is not None:
                progress(len(rows) * len(columns))
    return [_by_row(result, relevance, sampling) for result in found]


def _record(
    result: QueryFigures,
    rows: Positions,
    distances: Doubles,
    correct: BoolArray,
    relevance: Relevance,
    ks: Sequence[int],
    sampling: Sampling,
    *,
    drawn: bool,
) -> None:
    """Add some queries to a result, whose influences are sums over queries, in the order that breaks ties."""
    order, total = nearest_first(distances), correct.sum(axis=1)
    hit, some = np.take_along_axis(correct & np.isfinite(distances), order, axis=1), total > 0
    first = np.where(hit.any(axis=1), hit.argmax(axis=1), hit.shape[1])
    for metric, k in enumerate(ks):
        result.values[metric, rows[some]] = (first < k)[some]
    each = sampling.stands_for(relevance.order)
    chance, lost = None, np.zeros(order.shape)
    if drawn:
        chance = np.full(order.shape, sampling.weight)
        if sampling.drawn is not None:
            chance = np.where(sampling.drawn[relevance.order][order], sampling.weight, 0.0)
    result.values[-1, rows[some]] = _precision(
        hit, total, each if isinstance(each, float) else each[order], chance, lost
    )[some]
    if drawn:
        if sampling.asked is not None:
            lost *= sampling.asked[rows, None]
        # Added one by one, query after query, so that the sums do not depend on the blocks.
        np.add.at(result.influence[-1], order.ravel(), lost.ravel())


def _precision(
    hit: BoolArray, total: npt.NDArray[np.int64], each: Doubles | float, chance: Doubles | None, lost: Doubles
) -> Doubles:
    """Average precision in the whole gallery, (b,); fills in its loss without the item at each place.

    The precision at a correct item is c / t with t items of the whole gallery up to it, itself included, and c correct
    ones of them.

    Args:
        hit: (b, n) bool, places of some rankings that are correct.
        total: (b,) int64, correct items, found or not.
        each: (b, n) float64, items that the one at each place stands for, or one number for all.
        chance: (b, n) float64, items that the drawn item at each place represents, 0 for items that were not drawn;
            None to leave out the loss.
        lost: (b, n) float64, filled in.
    """
    every = np.maximum(total, 1)[:, None]
    stands: Doubles = np.broadcast_to(np.float64(each), hit.shape)
    hits: Doubles = np.multiply(hit, stands, dtype=np.float64)
    up_to = 1.0 + stands.cumsum(axis=1) - stands
    precision = hit * ((1.0 + hits.cumsum(axis=1) - hits) / up_to)
    mean = precision.sum(axis=1, keepdims=True) / every
    if chance is not None:
        gained, spoiled = chance * _after(hit / up_to), chance * _after(precision / up_to)
        np.divide(hit * (precision - mean + gained) - spoiled, every, out=lost)
        lost[(total == 0)[:, None] | (chance == 0.0)] = 0.0
    figures: Doubles = mean[:, 0]
    return figures


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


def _graded_each(tops: Doubles, relevance: Relevance, depth: int) -> Doubles:
    """`graded` of all queries, (3, q); NaN of those without a correct item. Those with as many are computed at once."""
    figures = np.full((len(GRADED), len(tops)), np.nan)
    correct = np.array([len(relevance.of(query)) for query in range(len(tops))], np.intp)
    for count in np.unique(correct[correct > 0]):
        rows = np.flatnonzero(correct == count)
        gains = np.array([relevance.gains_of(query) for query in rows.tolist()])
        figures[:, rows] = graded(tops[rows], gains, depth)
    return figures


def _after(values: Doubles) -> Doubles:
    """For each place the sum over all places behind it."""
    behind: Doubles = values.sum(axis=1, keepdims=True) - values.cumsum(axis=1)
    return behind


def _by_row(result: QueryFigures, relevance: Relevance, sampling: Sampling) -> QueryFigures:
    """Put influences in the order of the gallery's rows, scale them to means, and centre them."""
    influence = np.empty_like(result.influence)
    influence[:, relevance.order] = result.influence
    weights = result.counted if sampling.asked is None else sampling.asked * result.counted
    influence *= sampling.unseen * influence.shape[1] / max(weights.sum(), 1)
    drawn = slice(None) if sampling.drawn is None else sampling.drawn  # the others are in every draw
    influence[:, drawn] -= influence[:, drawn].mean(axis=1, keepdims=True)
    return QueryFigures(values=result.values, influence=influence)
