"""CMC and average precision of each query, which need the ranks of its correct items alone.

The rank of an item is the number of distances below its own, read from the sorted distances, plus the items before it
among those at exactly its distance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.boundary import checked
from compatstore.evaluation.distances import Distances, measure
from compatstore.evaluation.relevance import Relevance, leave_out, relevance_from_labels
from compatstore.versions import Metric

UNFOUND = np.iinfo(np.int64).max  # the rank of items that a query does not find
_PART = 8  # queries that a thread ranks at a time
_ALONE = 8_192  # items at most that one thread ranks: more threads would wait for each other


@dataclass(frozen=True, kw_only=True, eq=False)
class Ranking:
    """Results of each query in one gallery: per query, for confidence intervals and flips.

    Args:
        first_match: (q,) int64, rank of the first correct item, from 1; 0 for a query that has none, and behind every
            rank (`UNFOUND`) for one that finds none of those that it has.
        average_precision: (q,) float64, over the whole ranking; NaN for a query that has no correct item.
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
    counts = len(distances.left), len(distances.right)
    relevance = relevance_from_labels(query_labels, gallery_labels, query_ids, gallery_ids, counts)
    return rank_galleries(distances, relevance, [np.arange(counts[1])])[0]


def rank_galleries(distances: Distances, relevance: Relevance, galleries: Sequence[Positions]) -> list[Ranking]:
    """Rank several galleries of n items each whose vectors are rows of one table; distances are computed once.

    Args:
        distances: Queries against all rows of the table.
        relevance: The correct items, for galleries of n items.
        galleries: For each gallery (n,) intp, the row of the table that holds each item's vector.

    Returns:
        One ranking per gallery.
    """
    columns = [rows[relevance.order] for rows in galleries]
    return rank_blocks(distances.blocks(), len(distances.left), relevance, columns)


def rank_blocks(
    blocks: Iterable[tuple[int, Doubles]], queries: int, relevance: Relevance, columns: Sequence[Positions]
) -> list[Ranking]:
    """Rank several galleries of n items each from distances that come block by block.

    Args:
        blocks: Index of a block's first query, and (b, m) float64 distances of its queries.
        queries: Number of all queries.
        relevance: The correct items, for galleries of n items.
        columns: For each gallery (n,) intp, the column of a block that holds each item, in `relevance.order`.

    Returns:
        One ranking per gallery.
    """
    rankings = [
        Ranking(
            first_match=np.zeros(queries, np.int64),
            average_precision=np.full(queries, np.nan),
            ties=np.zeros(queries, np.int64),
        )
        for _ in columns
    ]

    def record(gallery: int, query: int, there: BoolArray, ranks: Ranks) -> None:
        ranking, in_order = rankings[gallery], np.sort(ranks.of)
        ranking.first_match[query] = in_order[0] if len(in_order) else UNFOUND
        ranking.average_precision[query] = average_precision(in_order, len(there))
        ranking.ties[query] = ranks.ties

    rank_each(blocks, relevance, columns, record)
    return rankings


def rank_each(
    blocks: Iterable[tuple[int, Doubles]],
    relevance: Relevance,
    columns: Sequence[Positions],
    record: Callable[[int, int, BoolArray, Ranks], None],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Rank the correct items of each query in several galleries, by threads that share the queries.

    Args:
        blocks: As of `rank_blocks`.
        relevance: As there.
        columns: As there.
        record: Called with the number of a gallery, a query that has correct items, which of these can be found, (m,)
            bool, and the ranks of those.
        progress: Called with the rankings that were made since its last call: one for each query and gallery.
    """

    def rank(block: Doubles, start: int, rows: range) -> int:
        row = np.empty(len(relevance.order))
        for query in (start + place for place in rows):
            positions, itself = relevance.of(query), relevance.itself[query]
            for gallery, places in enumerate(columns if positions.size else ()):
                np.take(block[query - start], places, out=row, mode="clip")  # "clip" writes to `out` without a copy
                if itself >= 0:
                    row[itself] = np.inf
                there = np.isfinite(row[positions])
                record(gallery, query, there, ranks_at(row, positions[there]))
        return len(rows) * len(columns)

    with ThreadPoolExecutor(_cores()) as pool:
        spread = pool.map if len(relevance.order) > _ALONE else map
        for start, block in blocks:
            parts = [range(at, min(at + _PART, len(block))) for at in range(0, len(block), _PART)]
            for made in spread(partial(rank, block, start), parts):
                if progress is not None:
                    progress(made)


def average_precision(ranks: Positions, correct: int) -> float:
    """Mean over correct items of the precision at the rank of each, 0 for one not found: (m,) ascending, from 1."""
    return float((np.arange(1, len(ranks) + 1) / ranks).sum() / correct)


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


def _cores() -> int:
    """Cores this process may use, which in a container are often fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
    ordered, found = np.sort(distances), distances[positions]
    ranks, repeated = ordered.searchsorted(found), ordered[1:][ordered[1:] == ordered[:-1]]
    if len(repeated):
        tied = ordered.searchsorted(found, side="right") - ranks > 1
        for distance in np.unique(found[tied]):
            here = found == distance
            ranks[here] += np.flatnonzero(distances == distance).searchsorted(positions[here])
    return Ranks(ranks + 1, int(np.isfinite(repeated).sum()))


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
