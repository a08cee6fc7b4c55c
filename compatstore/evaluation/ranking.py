"""CMC and average precision of each query, which need the ranks of its correct items alone.

The rank of an item is the number of distances below its own, read from the sorted distances, plus the items before it
among those at exactly its distance. Sorted are single-precision roundings: plain numbers of half the length sort in
half the time. Rounding keeps the order, so only items whose roundings are equal, a few in a thousand, are put in order
by their distances themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.boundary import checked
from compatstore.evaluation.distances import Distances, measure
from compatstore.evaluation.relevance import Relevance, leave_out, relevance_between
from compatstore.versions import Metric

UNFOUND = np.iinfo(np.int64).max  # the rank of items that a query does not find


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranking:
    """Results of each query in one gallery: per query, for confidence intervals and flips.

    Args:
        first_match: (q,) int64, rank of the first correct item, from 1; 0 for a query that has none, and behind every
            rank (`UNFOUND`) for one that finds none of those that it has.
        average_precision: (q,) float64, over the whole ranking; NaN for a query that has no correct item.
        average_precision_at: (q,) float64, over the first `map_at` ranks; None unless requested.
        ties: (q,) int64, places decided by id, not distance: items as far away as the item ranked just before
            them.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> queries = np.array([[0.4], [5.4], [2.9]])
        >>> cs.evaluation.rank_queries(queries[:2], stored, [0, 1], [0, 0, 1, 1]).average_precision.tolist()
        [1.0, 1.0]
    """

    first_match: npt.NDArray[np.int64]
    average_precision: Doubles
    average_precision_at: Doubles | None
    ties: npt.NDArray[np.int64]

    @property
    def counted(self) -> npt.NDArray[np.bool_]:
        """(q,) bool, the queries that have a correct item in the gallery."""
        return self.first_match > 0


@checked
def rank_queries(
    queries: npt.ArrayLike,
    gallery: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    metric: Metric = "l2",
    *,
    map_at: int | None = None,
    block: int | None = None,
) -> Ranking:
    """Rank the gallery for each query; arguments, rules and errors as in `retrieval_metrics`.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> queries = np.array([[0.4], [5.4], [2.9]])
        >>> cs.evaluation.rank_queries(queries, stored, [0, 1, 1], [0, 0, 1, 1]).first_match.tolist()
        [1, 1, 2]
    """
    distances = measure(queries, gallery, metric, block=block)
    return rank_by_labels(distances, query_labels, gallery_labels, query_ids, gallery_ids, map_at=map_at)


def rank_by_labels(
    distances: Distances,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    *,
    map_at: int | None = None,
) -> Ranking:
    """Rank the gallery for each query, by distances that are ready; the rest as of `rank_queries`."""
    relevance = relevance_between(distances, query_labels, gallery_labels, query_ids, gallery_ids)
    return rank_galleries(distances, relevance, [np.arange(len(distances.right))], map_at=map_at)[0]


def rank_galleries(
    distances: Distances, relevance: Relevance, galleries: Sequence[Positions], *, map_at: int | None = None
) -> list[Ranking]:
    """Rank several galleries of n items each whose vectors are rows of one table; distances are computed once.

    Args:
        distances: Queries against all rows of the table.
        relevance: The correct items, for galleries of n items.
        galleries: For each gallery (n,) intp, the row of the table that holds each item's vector.
        map_at: Also average precision over the first `map_at` ranks.

    Returns:
        One ranking per gallery.
    """
    columns = [rows[relevance.order] for rows in galleries]
    return rank_blocks(distances.blocks(), len(distances.left), relevance, columns, map_at=map_at)


def rank_blocks(
    blocks: Iterable[tuple[int, Doubles]],
    queries: int,
    relevance: Relevance,
    columns: Sequence[Positions],
    *,
    map_at: int | None = None,
) -> list[Ranking]:
    """Rank several galleries of n items each from distances that come block by block.

    Args:
        blocks: Index of a block's first query, and (b, m) float64 distances of its queries.
        queries: Number of all queries.
        relevance: The correct items, for galleries of n items.
        columns: For each gallery (n,) intp, the column of a block that holds each item, in `relevance.order`.
        map_at: Also average precision over the first `map_at` ranks.

    Returns:
        One ranking per gallery.
    """
    rankings = [_empty(queries, map_at) for _ in columns]
    work = _Work(relevance=relevance, columns=columns, rankings=rankings, map_at=map_at)
    threads = _cores()
    with ThreadPoolExecutor(threads) as pool:
        for start, block in blocks:
            jobs = [pool.submit(work.rank, block, start, range(t, len(block), threads)) for t in range(threads)]
            for job in jobs:
                job.result()
    return rankings


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work:
    """State shared by the threads: each fills in the results of its own queries.

    Args:
        relevance: The correct items.
        columns: For each gallery the columns of a block that hold its items, in the order that breaks ties.
        rankings: For each gallery the results.
        map_at: The k of average precision at k, or None.
    """

    relevance: Relevance
    columns: Sequence[Positions]
    rankings: list[Ranking]
    map_at: int | None

    def rank(self, block: Doubles, start: int, rows: Iterable[int]) -> None:
        """Rank the queries in some rows of the block that begins with query `start`."""
        row = np.empty(len(self.relevance.order))
        for query in (start + place for place in rows):
            positions, itself = self.relevance.of(query), self.relevance.itself[query]
            if not positions.size:
                continue
            for columns, ranking in zip(self.columns, self.rankings, strict=True):
                np.take(block[query - start], columns, out=row, mode="clip")  # "clip" writes to `out` without a copy
                if itself >= 0:
                    row[itself] = np.inf
                ranks, ranking.ties[query] = ranks_at(row, positions[np.isfinite(row[positions])])
                _record(ranking, query, np.sort(ranks), len(positions), self.map_at)


def average_precision(ranks: Positions, correct: int) -> float:
    """Mean over correct items of the precision at the rank of each, 0 for one not found: (m,) ascending, from 1."""
    return float(_precisions(ranks).sum() / correct)


def _precisions(ranks: Positions) -> Doubles:
    return np.arange(1, len(ranks) + 1) / ranks


def _record(ranking: Ranking, query: int, ranks: Positions, correct: int, map_at: int | None) -> None:
    """Average precision: the mean over correct items of the precision at each one's rank, 0 for one not found."""
    ranking.first_match[query] = ranks[0] if len(ranks) else UNFOUND
    ranking.average_precision[query] = average_precision(ranks, correct)
    if ranking.average_precision_at is not None and map_at is not None:
        within = ranks[: ranks.searchsorted(map_at, side="right")]
        ranking.average_precision_at[query] = average_precision(within, min(correct, map_at))


def nearest_rows(distances: Distances, k: int, itself: Positions) -> Positions:
    """The k nearest vectors of the gallery for each query, in no order: (q, k) intp.

    Args:
        distances: q queries against n vectors.
        k: Vectors of a query, from 1 to n - 1.
        itself: (q,) intp, the row of the gallery that each query leaves out; -1 for none.
    """
    found = []
    for start, block in distances.blocks():
        leave_out(block, itself[start : start + len(block)])
        found.append(np.argpartition(block, k - 1, axis=1)[:, :k])
    return np.concatenate(found)


def _empty(queries: int, map_at: int | None) -> Ranking:
    return Ranking(
        first_match=np.zeros(queries, dtype=np.int64),
        average_precision=np.full(queries, np.nan),
        average_precision_at=None if map_at is None else np.full(queries, np.nan),
        ties=np.zeros(queries, dtype=np.int64),
    )


def _cores() -> int:
    """Cores this process may use, which in a container are often fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_MANY = 16  # distances of which one has an equal rounding: from there on all are sorted as they are
_BITS = 16  # of a rounding, that tell most others from it

Singles = npt.NDArray[np.float32]


class Ranks(NamedTuple):
    """Ranks of some items of a query.

    Args:
        of: (m,) intp, from 1; of equal distances the earlier position is first.
        ties: Places of the whole ranking that are decided by position: items exactly as far away as the item ranked
            just before them. Items at an infinite distance are not ranked.
    """

    of: Positions
    ties: int


def ranks_at(distances: Doubles, positions: Positions) -> Ranks:
    """Rank the items at some positions.

    Args:
        distances: (n,) float64 of all items, no NaN; infinite for items that the ranking leaves out.
        positions: (m,) intp.
    """
    with np.errstate(over="ignore"):
        rounded = distances.astype(np.float32)
    rounded += np.float32(0.0)  # one zero, not two of unlike bits
    ordered = np.sort(rounded)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated) > len(distances) // _MANY:
        return _by_distances(distances, positions)
    ranks = ordered.searchsorted(rounded[positions]) + 1
    if not len(repeated):
        return Ranks(ranks, 0)
    near = _equal_to_any(rounded, repeated)
    exactly = np.argsort(distances[near], kind="stable")
    groups = rounded[near[exactly]]
    places = np.empty_like(near)
    places[exactly] = ordered.searchsorted(groups) + np.arange(len(near)) - groups.searchsorted(groups) + 1
    at = np.minimum(near.searchsorted(positions), len(near) - 1)
    return Ranks(np.where(near[at] == positions, places[at], ranks), _ties(distances[near[exactly]]))


def _equal_to_any(rounded: Singles, repeated: Singles) -> Positions:
    """Positions, ascending, of the values that are repeated; their last bits leave few others to look at."""
    marked: BoolArray = np.zeros(1 << _BITS, dtype=np.bool_)
    marked[repeated.view(np.uint32) & (len(marked) - 1)] = True
    some = np.flatnonzero(marked[rounded.view(np.uint32) & (len(marked) - 1)])
    at = np.minimum(repeated.searchsorted(rounded[some]), len(repeated) - 1)
    equal: Positions = some[repeated[at] == rounded[some]]
    return equal


def _by_distances(distances: Doubles, positions: Positions) -> Ranks:
    """The result of `ranks_at`, by a sort of the distances themselves."""
    ordered, found = np.sort(distances), distances[positions]
    ranks = ordered.searchsorted(found)
    tied = ordered.searchsorted(found, side="right") - ranks > 1
    for distance in np.unique(found[tied]):
        here = found == distance
        ranks[here] += np.flatnonzero(distances == distance).searchsorted(positions[here])
    return Ranks(ranks + 1, _ties(ordered))


def _ties(ordered: Doubles) -> int:
    """Sorted distances that are equal to the one before and finite."""
    return int(np.count_nonzero((ordered[1:] == ordered[:-1]) & np.isfinite(ordered[1:])))


def ranks_behind_ties(distances: Doubles, positions: Positions) -> Positions:
    """Ranks, ascending and from 1, of some items of one query, each behind all items at exactly its distance.

    So ties count against a query: of n items at one distance all have rank n.

    Args:
        distances: (n,) float64 of all items; infinite for items that the ranking leaves out.
        positions: (m,) intp, the items.
    """
    ranks: Positions = np.sort(np.sort(distances).searchsorted(distances[positions], side="right"))
    return ranks


def nearest_first(distances: Doubles) -> npt.NDArray[np.intp]:
    """Columns of each row by distance: (b, n) float64 -> (b, n).

    The same as a stable sort. NumPy has vector instructions for the sort that is not, and few rows have equal
    distances, so only those are sorted a second time.
    """
    order: npt.NDArray[np.intp] = distances.argsort(axis=1)
    ranked = np.take_along_axis(distances, order, axis=1)
    tied = np.flatnonzero(~(ranked[:, 1:] > ranked[:, :-1]).all(axis=1))
    order[tied] = distances[tied].argsort(axis=1, kind="stable")
    return order
