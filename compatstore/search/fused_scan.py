"""Candidates of many fused queries without an index, by one pass over both columns.

A fused distance is linear in the distances to an item's two vectors, and these are products, so two matrix products
compare a block of items with all queries. They are as exact as float32: rows within that error of the k-th are kept
too, and `fusion.py` compares the vectors of the kept ones exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowBatch, BoolArray, Doubles, FloatArray, Positions, RowNumbers
from compatstore.artifacts.runners import one_thread_each
from compatstore.search.parts import refused_condition
from compatstore.search.plan import Part, SearchPlan
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE
from compatstore.storage.ids import ADDRESS
from compatstore.storage.shrinkage import kept_cosines
from compatstore.storage.snapshot import READ_AHEAD, Snapshot
from compatstore.storage.vector_form import VectorForm, to_floats, to_matrix, to_strings

SCANNED_AT_ONCE = 1_024  # queries of one pass
_ROWS, _BYTES = 8_192, 8 << 20  # of a block at the most, and of its vectors of a column
_KEPT, _MORE = 4, 20_000  # rows at the most, for each result and in all: very many may be as near as the k-th
_ROUNDING = 2.0**-24  # of float32, relative
_ABOVE = np.float32(np.inf)


def scan_both(
    catalog: Catalog, snapshot: Snapshot, plan: SearchPlan, queries: Sequence[FloatArray], uncertainty: str | None
) -> list[RowNumbers] | None:
    """Addresses of the rows that may be among the k nearest of each query.

    Args:
        catalog: The gallery's.
        snapshot: The table version that the plan was made for.
        plan: Of a fused search.
        queries: (q, width) float32 of the source and of the target, as their parts need them.
        uncertainty: The column of sigma^2 if the target's distances are shrunk by it.

    Returns:
        q arrays; None if too many rows are as near as the k-th, or products are beyond float32.

    Raises:
        InvalidInput: The condition is no valid SQL for this table.
    """
    sides = [_Side.of(part, form) for part, form in zip(plan.parts, queries, strict=True)]
    columns = [part.columns.vector for part in plan.parts]
    columns += filter(None, [plan.parts[1].columns.origin, uncertainty])
    nearest = _Nearest(len(queries[0]), plan.k)
    with refused_condition(f"search {plan.version}", plan.where):
        at_once = max(min(_BYTES // (4 * max(part.columns.dim for part in plan.parts)), _ROWS), 1)
        batches = snapshot.scanner(
            columns=columns, filter=plan.where, with_row_address=True, batch_size=at_once, **READ_AHEAD
        ).to_batches()

        def compare(batch: ArrowBatch) -> _Found:
            return nearest.among(*_fused(catalog, plan, sides, batch, uncertainty))

        # Threads of BLAS wait for each other on blocks of this size.
        with one_thread_each() as threads, ThreadPoolExecutor(threads, "compatstore-scan") as pool:
            for found in _ahead(pool, compare, batches, threads + 1):
                nearest.take(found)
                if not nearest.finite or nearest.count > _KEPT * len(queries[0]) * plan.k + _MORE:
                    return None
    return nearest.rows()


def _ahead(
    pool: ThreadPoolExecutor, compare: Callable[[ArrowBatch], _Found], batches: Iterable[ArrowBatch], count: int
) -> Iterator[_Found]:
    """Results of batches in their order, `count` of which are read and compared ahead."""
    waiting = deque[Future[_Found]]()
    for batch in batches:
        waiting.append(pool.submit(compare, batch))
        if len(waiting) > count:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Side(NamedTuple):
    """Queries of one version as a product with its vectors takes them.

    Attributes:
        part: The version's part of the plan.
        left: (q, dim) float32: -2 q (l2), -q/|q| (cosine), -q (dot).
        lengths: (q,) float64, their lengths.
    """

    part: Part
    left: FloatArray
    lengths: Doubles

    @classmethod
    def of(cls, part: Part, queries: FloatArray) -> _Side:
        own = queries[:, : part.columns.dim].astype(np.float64)
        lengths = np.linalg.norm(own, axis=1)
        if part.metric == "cosine":
            own, lengths = own / lengths[:, None], np.ones(len(own))
        factor = 2.0 if part.metric == "l2" else 1.0
        return cls(part, (-factor * own).astype(np.float32), factor * lengths)

    def read(self, batch: ArrowBatch) -> tuple[FloatArray, BoolArray, Doubles]:
        """Vectors of a batch (n, dim), which of them a search finds, and their squared lengths, (n,) float64."""
        vectors, valid = to_matrix(batch[self.part.columns.vector], self.part.columns.dim)
        squares = np.einsum("nd,nd->n", vectors, vectors)
        if not (valid.all() and np.isfinite(squares).all() and squares.min(initial=1.0) > np.finfo(np.float32).tiny):
            valid = valid & VectorForm(self.part.columns.dtype, self.part.metric).searchable(vectors)
            vectors = np.where(valid[:, None], vectors, np.float32(1))
            squares = np.einsum("nd,nd->n", vectors, vectors)
        return vectors, valid, squares.astype(np.float64)

    def scaled(self, squares: Doubles) -> tuple[Doubles | float, Doubles | float]:
        """Factor of the products and what is added to them, of rows with these squared lengths."""
        if self.part.metric == "cosine":
            return 1.0 / np.sqrt(squares), 0.0
        return 1.0, squares if self.part.metric == "l2" else 0.0


def _fused(
    catalog: Catalog, plan: SearchPlan, sides: Sequence[_Side], batch: ArrowBatch, uncertainty: str | None
) -> tuple[RowNumbers, FloatArray, Doubles]:
    """Fused distances of all queries to the rows of a batch.

    Returns:
        (n,) addresses of the rows that a search finds, (q, n) float32 distances, and (q,) their largest errors.
    """
    fusion, target = plan.fusion, plan.parts[1]
    assert fusion is not None
    read = [side.read(batch) for side in sides]
    masks = [valid for _, valid, _ in read]
    origins = pa.array(target.columns.origins(batch))
    native = pc.equal(origins, NATIVE).fill_null(False).to_numpy(zero_copy_only=False)
    factors = None
    if uncertainty is not None:
        factors = kept_cosines(catalog, to_strings(origins), to_floats(batch[uncertainty]))

    def at(source: float, other: float) -> Doubles:
        ones = np.ones(len(native))
        return fusion.distances(source * ones, fusion.shrunk(other * ones, factors, target.metric), native, *masks)

    found = masks[0] | masks[1]
    with np.errstate(invalid="ignore"):  # rows without a vector are infinitely far, and are left out
        rest = at(0.0, 0.0)
        slopes = at(1.0, 0.0) - rest, at(0.0, 1.0) - rest
    distances, errors = np.zeros((len(sides[0].left), len(native)), np.float32), np.zeros(len(sides[0].left))
    for side, (vectors, _, squares), slope in zip(sides, read, slopes, strict=True):
        factor, added = side.scaled(squares)
        slope = np.where(found, slope, 0.0)
        rest = rest + slope * added
        with np.errstate(over="ignore", invalid="ignore"):
            products = side.left @ vectors.T
            products *= (slope * factor).astype(np.float32)
            distances += products
        terms = side.lengths * np.abs(slope * factor * np.sqrt(squares)).max(initial=0.0)
        errors += (vectors.shape[1] + 8) * (terms + np.abs(slope * added).max(initial=0.0))
    rest = np.where(found, rest, 0.0)
    distances += rest.astype(np.float32)
    errors = _ROUNDING * (errors + 8 * np.abs(rest).max(initial=0.0))
    rows = batch[ADDRESS].to_numpy().astype(np.int64)
    return (rows, distances, errors) if found.all() else (rows[found], distances[:, found], errors)


class _Found(NamedTuple):
    """Rows of a block that may be among the nearest: their queries, addresses and distances; and (q,) errors."""

    queries: Positions
    rows: RowNumbers
    distances: FloatArray
    errors: Doubles


class _Nearest:
    """The rows that may be among the k nearest of each query so far."""

    def __init__(self, queries: int, k: int) -> None:
        self._k, self._bounds = k, np.full(queries, np.inf)  # of the k-th distance of each query, as it was computed
        self._errors = np.zeros(queries)
        self._kept = _Found(np.empty(0, np.intp), np.empty(0, np.int64), np.empty(0, np.float32), self._errors)
        self._fresh = list[_Found]()

    @property
    def count(self) -> int:
        """Rows that are kept, of all queries."""
        return len(self._kept.rows) + sum(len(each.rows) for each in self._fresh)

    @property
    def finite(self) -> bool:
        """False if products were beyond float32."""
        return bool(np.isfinite(self._errors).all())

    def among(self, rows: RowNumbers, distances: FloatArray, errors: Doubles) -> _Found:
        """Those of a block that may be among the nearest: (n,) rows, (q, n) distances, (q,) errors; threads may."""
        bounds, k = self._bounds, self._k
        if not np.isfinite(bounds).all() and len(rows) >= k:
            bounds = np.minimum(bounds, np.partition(distances, k - 1, axis=1)[:, k - 1])
        # Float32 rounds the bound: one step up is above it.
        with np.errstate(over="ignore", invalid="ignore"):
            limits = np.nextafter((bounds + 2.0 * np.maximum(self._errors, errors)).astype(np.float32), _ABOVE)
        flat = np.flatnonzero(distances <= limits[:, None])
        queries, places = np.divmod(flat, max(len(rows), 1))
        return _Found(queries, rows[places], distances.reshape(-1)[flat], errors)

    def take(self, found: _Found) -> None:
        """Keep the rows of a block."""
        self._errors = np.maximum(self._errors, found.errors)
        self._fresh.append(found)
        if sum(len(each.rows) for each in self._fresh) >= len(self._bounds) * self._k // 2:
            self._settle()

    def _settle(self) -> None:
        """Let go of rows that are behind the k-th of their query."""
        parts = list(zip(self._kept, *self._fresh, strict=True))[:3]
        queries, rows, distances = (np.concatenate(part) for part in parts)
        order = np.lexsort((distances, queries))
        queries, rows, distances = queries[order], rows[order], distances[order]
        last = np.arange(len(order)) - np.searchsorted(queries, queries) == self._k - 1
        bounds = self._bounds.copy()  # threads read the former ones
        bounds[queries[last]] = distances[last]
        near = distances <= (bounds + 2.0 * self._errors)[queries]
        self._kept = _Found(queries[near], rows[near], distances[near], self._errors)
        self._bounds, self._fresh = bounds, []

    def rows(self) -> list[RowNumbers]:
        """The rows of each query."""
        self._settle()
        return np.split(self._kept.rows, np.searchsorted(self._kept.queries, np.arange(1, len(self._bounds))))
