"""The backfilling curve: quality of a gallery while its transformed vectors are replaced by native ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, Positions
from compatstore.boundary import array_of, checked
from compatstore.errors import InvalidInput
from compatstore.evaluation.distances import measure
from compatstore.evaluation.metrics import Flips, require_ranks, summarise
from compatstore.evaluation.ranking import Ranking, rank_galleries
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.versions import Metric

MOST_ALPHAS = 10_001


@dataclass(frozen=True, kw_only=True, eq=False)
class BackfillCurve:
    """Quality at each share of native vectors, as shares between 0 and 1.

    Args:
        alphas: (a,) float64, shares of the gallery that are native, ascending from 0 to 1.
        cmc: For each k the curve of CMC@k, (a,) float64.
        map: (a,) float64, the curve of mAP.
        area: The mean of each curve over alpha in [0, 1] ("cmc@1", ..., "map"), by the trapezoid rule: the area
            under the backfilling curve (FastFill, section 5.1).
        num_queries: Queries counted, the same at every alpha.
        num_skipped: Queries left out, as no item of the gallery is correct for them.
        rankings: Results of each query at each alpha, a of them; for flips, subgroups and intervals.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> queries = np.array([[0.4], [5.4], [2.9]])
        >>> labels = {"query_labels": [0, 1], "gallery_labels": [0, 0, 1, 1]}
        >>> curve = cs.evaluation.backfill_curve(queries[:2], stored[::-1], stored, order=range(4), alphas=3, **labels)
        >>> sorted(curve.area)
        ['cmc@1', 'cmc@5', 'map']
    """

    alphas: Doubles
    cmc: dict[int, Doubles]
    map: Doubles
    area: dict[str, float]
    num_queries: int
    num_skipped: int
    rankings: tuple[Ranking, ...] = field(default=(), repr=False)


@checked
def backfill_curve(
    queries: npt.ArrayLike,
    transformed: npt.ArrayLike,
    native: npt.ArrayLike,
    query_labels: npt.ArrayLike,
    gallery_labels: npt.ArrayLike,
    order: npt.ArrayLike,
    alphas: int | Sequence[float] = 11,
    query_ids: npt.ArrayLike | None = None,
    gallery_ids: npt.ArrayLike | None = None,
    ks: Sequence[int] = (1, 5),
    metric: Metric = "l2",
    *,
    block: int | None = None,
) -> BackfillCurve:
    """Measure the gallery at each step of a backfill: the first floor(alpha n) items of `order` are native.

    Args:
        queries: (q, d) floats, embedded with the target model.
        transformed: (n, d) floats, the gallery after a hop.
        native: (n, d) floats, the gallery embedded with the target model.
        query_labels: (q,) integers or strings.
        gallery_labels: (n,) of the same kind.
        order: (n,) integers, a permutation of the gallery's rows: which are backfilled first.
        alphas: Number of equal steps including 0 and 1, from 2 to 10,001, or the shares themselves; 0 and 1 are added
            if missing.
        query_ids: (q,) integers or strings, or None.
        gallery_ids: (n,) of the same kind, each once, or None.
        ks: The k of CMC@k.
        metric: "l2", "cosine" or "dot".
        block: Queries at a time; bounds memory and changes no figure.

    Raises:
        InvalidInput: Transformed and native vectors differ in shape, or something does not match in number. `order` is
            not a permutation, an alpha lies outside [0, 1], and as `retrieval_metrics`.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> queries = np.array([[0.4], [5.4], [2.9]])
        >>> labels = {"query_labels": [0, 1], "gallery_labels": [0, 0, 1, 1]}
        >>> curve = cs.evaluation.backfill_curve(queries[:2], stored[::-1], stored, order=range(4), alphas=3, **labels)
        >>> curve.alphas.tolist(), float(curve.map[-1])
        ([0.0, 0.5, 1.0], 1.0)
    """
    require_ranks(ks)
    shares = _shares(alphas)
    operation = "measure a backfill"
    before, after = (array_of(x, operation, "vectors", ndim=2) for x in (transformed, native))
    if before.shape != after.shape:
        raise InvalidInput(
            "measure a backfill", expected=f"native vectors of shape {before.shape}", found=f"{after.shape}"
        )
    distances = measure(queries, np.concatenate([before, after]), metric, block=block)
    counts = len(distances.left), len(before)
    relevance = relevance_from_labels(query_labels, gallery_labels, query_ids, gallery_ids, counts)
    rankings = rank_galleries(distances, relevance, mixed_galleries(as_permutation(order, len(before)), shares))
    return _curve(shares, rankings, ks)


@checked
def flips(before: Ranking, after: Ranking, k: int = 1) -> Flips:
    """Compare two rankings of the same queries: right means a correct item among the k nearest.

    Queries without a correct item are left out.

    Raises:
        InvalidInput: The rankings are of different numbers of queries. No query has a correct item in both, or k is
            below 1.

    Examples:
        >>> stored = np.array([[0.0], [1.0], [5.0], [6.0]])
        >>> queries = np.array([[0.4], [5.4], [2.9]])
        >>> labels = {"query_labels": [0, 1], "gallery_labels": [0, 0, 1, 1]}
        >>> curve = cs.evaluation.backfill_curve(queries[:2], stored[::-1], stored, order=range(4), alphas=3, **labels)
        >>> curve.alphas.tolist(), float(curve.map[-1])
        ([0.0, 0.5, 1.0], 1.0)
    """
    require_ranks([k])
    if len(before.first_match) != len(after.first_match):
        raise InvalidInput(
            "count flips", expected=f"{len(before.first_match)} queries", found=f"{len(after.first_match)}"
        )
    counted = before.counted & after.counted
    if not counted.any():
        raise InvalidInput("count flips", expected="a query with a correct item in both rankings", found="none")
    was, now = before.first_match[counted] <= k, after.first_match[counted] <= k
    return Flips(positive=float(np.mean(~was & now)), negative=float(np.mean(was & ~now)))


def mixed_galleries(order: Positions, shares: Doubles) -> list[Positions]:
    """For each share the rows of the table [transformed; native] that make up the gallery: each (n,) intp."""
    rows = np.arange(len(order))
    return [np.where(native_rows(order, share), rows + len(order), rows) for share in shares]


def _shares(alphas: int | Sequence[float]) -> Doubles:
    if isinstance(alphas, int):
        if not 2 <= alphas <= MOST_ALPHAS:
            expected = f"from 2 to {MOST_ALPHAS} alphas"
            raise InvalidInput("measure a backfill", expected=expected, found=str(alphas))
        return np.linspace(0.0, 1.0, alphas)
    shares = np.unique([0.0, *alphas, 1.0])
    if not (shares[0] == 0.0 and shares[-1] == 1.0):  # NaN sorts last
        raise InvalidInput("measure a backfill", expected="alphas between 0 and 1", found=f"{list(alphas)}")
    return shares


def _curve(shares: Doubles, rankings: Sequence[Ranking], ks: Sequence[int]) -> BackfillCurve:
    steps = [summarise(ranking, ks) for ranking in rankings]
    cmc = {k: np.array([step.cmc[k] for step in steps]) for k in steps[0].cmc}
    mean_precision = np.array([step.map for step in steps])
    curves = {**{f"cmc@{k}": curve for k, curve in cmc.items()}, "map": mean_precision}
    return BackfillCurve(
        alphas=shares,
        cmc=cmc,
        map=mean_precision,
        area={name: _mean_over(shares, curve) for name, curve in curves.items()},
        num_queries=steps[0].num_queries,
        num_skipped=steps[0].num_skipped,
        rankings=tuple(rankings),
    )


def _mean_over(shares: Doubles, curve: Doubles) -> float:
    return float(np.sum(np.diff(shares) * (curve[1:] + curve[:-1]) / 2))


def native_rows(order: Positions, alpha: float) -> npt.NDArray[np.bool_]:
    """Which rows are native at a share: the first floor(alpha n) of the order; (n,) bool."""
    native = np.zeros(len(order), dtype=bool)
    native[order[: native_count(alpha, len(order))]] = True
    return native


def native_count(alpha: float, items: int) -> int:
    """Items that are native at a share: floor(alpha n), where 0.29 of 100 is 29 although 0.29 * 100 < 29."""
    return math.floor(round(alpha * items, 6))


def as_permutation(order: npt.ArrayLike, items: int) -> Positions:
    """Return the order of a backfill as (items,) intp.

    Raises:
        InvalidInput: It is not a permutation of the gallery's rows.
    """
    rows = array_of(order, "order a backfill", "rows", ndim=1)
    if rows.dtype.kind not in "iu" or not np.array_equal(np.sort(rows), np.arange(items)):
        raise InvalidInput(
            "order a backfill",
            expected=f"each row of 0 to {items - 1} once",
            found=f"{rows.size} values of type {rows.dtype}",
        )
    return rows.astype(np.intp)
