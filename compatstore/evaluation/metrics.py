"""Retrieval quality: CMC, mean average precision, recall against exact search, and flips."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compatstore.boundary import checked, foreign
from compatstore.errors import InvalidInput
from compatstore.evaluation.ranking import Ranking, rank_queries
from compatstore.versions import Metric


@dataclass(frozen=True, kw_only=True)
class RetrievalMetrics:
    """Quality of one gallery for one set of queries, as shares between 0 and 1.

    Args:
        cmc: For each k the share of queries whose first correct item is among the k nearest.
        map: Mean average precision over the whole ranking.
        num_queries: Queries counted: those with a correct item in the gallery.
        num_skipped: Queries left out, as no item of the gallery is correct for them.
        num_ties: Places of all counted rankings that were decided by id and not by distance: items exactly as far
            away as the item ranked just before them.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> queries = np.array([[0.4], [5.4], [2.9]])
        >>> cs.evaluation.retrieval_metrics(queries[:2], stored, [0, 1], [0, 0, 1, 1]).cmc[1]
        1.0
    """

    cmc: dict[int, float]
    map: float
    num_queries: int
    num_skipped: int
    num_ties: int


@dataclass(frozen=True, kw_only=True)
class Flips:
    """Shares of queries that an upgrade mends and breaks, of the queries counted.

    Args:
        positive: Wrong before, right after.
        negative: Right before, wrong after.

    Examples:
        >>> cs.evaluation.Flips(positive=0.2, negative=0.05).negative
        0.05
    """

    positive: float
    negative: float


@checked
def retrieval_metrics(
    queries: npt.ArrayLike,
    gallery: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    ks: Sequence[int] = (1, 5),
    metric: Metric = "l2",
    *,
    block: int | None = None,
) -> RetrievalMetrics:
    """Measure retrieval exactly, over the whole ranked gallery.

    * CMC@k is the share of queries whose first correct item is among the k nearest. Average precision is the mean
      over a query's correct items of the precision at their ranks (`sklearn.metrics.average_precision_score` on
      data without ties), mAP its mean over queries.
    * An item is correct when its label equals the query's. Queries without a correct item are left out and counted.
    * With ids on both sides, a query never finds the item of its own id. Without, nothing is removed.
    * Items at one distance are ranked by id, ascending; without gallery ids by row. Equal gallery vectors are always at
      one distance. Distances are right to 2^-44 of the two vectors' lengths, and the same on every processor.

    Args:
        queries: (q, d) floats.
        gallery: (n, d) floats.
        query_labels: (q,) integers or strings.
        gallery_labels: (n,) of the same kind.
        query_ids: (q,) integers or strings, or None.
        gallery_ids: (n,) of the same kind, each once, or None.
        ks: The k of CMC@k.
        metric: "l2", "cosine" or "dot" (a larger product is nearer).
        block: Queries at a time; bounds memory and changes no figure. None keeps a block near 128 MiB.

    Raises:
        InvalidInput: Vectors of two lengths, or labels or ids that do not match their vectors in number. A vector holds
            NaN or infinite values. A gallery id occurs twice. An unknown metric, a k below 1, labels of two kinds, a
            zero vector under cosine, or no query with a correct item.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> queries = np.array([[0.4], [5.4], [2.9]])
        >>> found = cs.evaluation.retrieval_metrics(queries, stored, [0, 1, 1], [0, 0, 1, 1])
        >>> found.map > 0.8, found.num_queries
        (True, 3)
    """
    require_ranks(ks)
    labels, ids = (query_labels, gallery_labels), (query_ids, gallery_ids)
    return summarise(rank_queries(queries, gallery, *labels, *ids, metric, block=block), ks)


@checked
def summarise(ranking: Ranking, ks: Sequence[int] = (1, 5)) -> RetrievalMetrics:
    """Average the results of single queries.

    Raises:
        InvalidInput: No query has a correct item, or a k is below 1.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> queries = np.array([[0.4], [5.4], [2.9]])
        >>> ranking = cs.evaluation.rank_queries(queries[:2], stored, [0, 1], [0, 0, 1, 1])
        >>> cs.evaluation.summarise(ranking).map
        1.0
    """
    require_ranks(ks)
    counted = ranking.counted
    require_counted(counted)
    first = ranking.first_match[counted]
    return RetrievalMetrics(
        cmc={k: float(np.mean(first <= k)) for k in ks},
        map=float(ranking.average_precision[counted].mean()),
        num_queries=int(counted.sum()),
        num_skipped=int((~counted).sum()),
        num_ties=int(ranking.ties.sum()),
    )


@checked
def recall_at_k(
    found: Iterable[Collection[Hashable]] | npt.NDArray[np.generic],
    truth: Iterable[Collection[Hashable]] | npt.NDArray[np.generic],
) -> float:
    """Share of the true nearest neighbours that a search found, over all queries; order does not matter.

    Args:
        found: For each query the ids it found: (q, k) or lists, which may be shorter (a miss each).
        truth: For each query the ids of its k nearest by exact search.

    Returns:
        Found true neighbours divided by true neighbours.

    Raises:
        InvalidInput: Another number of queries on the two sides. No true neighbours.

    Examples:
        >>> cs.evaluation.recall_at_k([["a", "b"], ["c", "x"]], [["a", "b"], ["c", "d"]])
        0.75
    """
    with foreign("measure recall", "lists of ids, one for each query"):
        found_sets, true_sets = ([set(np.asarray(row).tolist()) for row in side] for side in (found, truth))
    if len(found_sets) != len(true_sets):
        raise InvalidInput("measure recall", expected=f"{len(true_sets)} queries", found=f"{len(found_sets)}")
    wanted = sum(map(len, true_sets))
    if not wanted:
        raise InvalidInput("measure recall", expected="true neighbours", found="none")
    return sum(len(f & t) for f, t in zip(found_sets, true_sets, strict=True)) / wanted


def require_counted(counted: npt.NDArray[np.bool_]) -> None:
    """Refuse to average over no query at all; (q,) bool, the queries that have a correct item.

    Raises:
        InvalidInput: There is none.
    """
    if not counted.any():
        raise InvalidInput(
            "average over queries",
            expected="a query with a correct item in the gallery",
            found=f"none among {len(counted)}",
            fix="Check that query and gallery labels name the same classes.",
        )


def require_ranks(ks: Sequence[int]) -> None:
    """Refuse ranks that are not counted from 1.

    Raises:
        InvalidInput: A k below 1, or no k.
    """
    if not ks or min(ks) < 1:
        raise InvalidInput("measure retrieval", expected="k >= 1", found=f"ks={tuple(ks)}")
