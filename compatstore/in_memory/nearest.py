"""FAISS, imported where it is needed, and the exact nearest neighbours of large batches of queries.

FAISS compares by matrix products in float32, whose rounding can exchange vectors that are nearly as far. So it finds
some more candidates than are wanted; these are compared in float64, and a bound of the rounding shows if any other
vector can be as near. If one can, more candidates are fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles, FloatArray, RowNumbers
from compatstore.boundary import array_of, checked
from compatstore.errors import InvalidInput, MissingExtra, first_offenders, load_extra
from compatstore.versions import Metric

Device = Literal["auto", "cpu", "gpu"]


@cache
def load_faiss() -> Any:
    """The module `faiss`, of `faiss-cpu` or of `faiss-gpu`.

    Raises:
        MissingExtra: Neither is installed.
    """
    return load_extra("faiss", "faiss")


def uses_gpu(device: Device) -> bool:
    """True if a GPU computes: "auto" takes one if FAISS has one.

    Raises:
        MissingExtra: FAISS is not installed, or a GPU is requested and FAISS was built without support for it.
        InvalidInput: A GPU is requested, and this machine has none.
    """
    faiss = load_faiss()
    built = hasattr(faiss, "StandardGpuResources")
    found = faiss.get_num_gpus() if built else 0
    if device == "gpu" and not built:
        raise MissingExtra("faiss with support for GPUs", "gpu")
    if device == "gpu" and not found:
        raise InvalidInput("compute on a GPU", expected="a GPU that FAISS can use", found="none", fix='Use "cpu".')
    return device != "cpu" and found > 0


def metric_number(metric: Metric) -> int:
    """FAISS's number of the metric that orders vectors, as `as_compared` gives them, as `metric` does."""
    faiss = load_faiss()
    return int(faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT)


def as_compared(vectors: FloatArray, metric: Metric) -> FloatArray:
    """Vectors as FAISS compares them: (n, dim) float32 -> (n, dim) float32, scaled to unit length under cosine."""
    if metric != "cosine":
        return np.ascontiguousarray(vectors)
    doubles = vectors.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", doubles, doubles))
    return np.ascontiguousarray(doubles / np.where(lengths > 0, lengths, 1)[:, None], np.float32)


def as_distances(found: FloatArray, metric: Metric) -> FloatArray:
    """Convert values of FAISS to distances of Lance: squared (l2), 1 - cosine, 1 - product (dot)."""
    return found if metric == "l2" else np.float32(1) - found


SPARE = 16  # candidates beyond those wanted
MOST_ON_GPU = 2048  # candidates of a query that FAISS selects on a GPU
_GPU_BYTES = 2**31  # of vectors, and of queries, on a GPU at a time
_BLOCK_VALUES = 2**22  # values in float64 at a time: 32 MiB
_ROUNDING = 2.0**-24  # of float32


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactNeighbours:
    """The nearest vectors of each query.

    Attributes:
        rows: (q, k) int64, numbers of the vectors, nearest first; of vectors at one distance the lower number is first.
        distances: (q, k) float32, as Lance gives them: squared (l2), 1 - cosine, 1 - product (dot).

    Examples:
        >>> cs.nearest_neighbours([[0.0]], [[2.0], [1.0]], k=2).distances.tolist()
        [[1.0, 4.0]]
    """

    rows: RowNumbers
    distances: FloatArray


@checked
def nearest_neighbours(
    queries: npt.ArrayLike, vectors: npt.ArrayLike, k: int = 10, *, metric: Metric = "l2", device: Device = "auto"
) -> ExactNeighbours:
    """Find the nearest vectors of each query, exactly, for thousands of queries.

    Distances are computed in float64 and rounded to float32; equal ones are ordered by the vectors' numbers. These are
    the neighbours that Lance finds without an index, but for pairs whose distances differ by less than Lance's own
    rounding. Needs `faiss-cpu` (`pip install "compatstore[faiss]"`) or `faiss-gpu` (`"compatstore[gpu]"`).

    Args:
        queries: (q, dim) floats.
        vectors: (n, dim) floats.
        k: Neighbours of a query, >= 1; all n if there are fewer.
        metric: "l2", "cosine" or "dot".
        device: "cpu", "gpu", or "auto" for a GPU if FAISS has one.

    Raises:
        InvalidInput: Not two tables of vectors of one length. Values are NaN, infinite or beyond float32. k < 1, no
            such metric, a vector of length 0 under cosine, or a GPU that is not there.
        MissingExtra: FAISS is not installed.

    Examples:
        >>> found = cs.nearest_neighbours([[0.1], [2.9]], [[0.0], [1.0], [3.0], [1.0]], k=2)
        >>> found.rows.tolist()
        [[0, 1], [2, 1]]
    """
    operation = "find the nearest neighbours"
    left, right = _read(queries, "queries", metric), _read(vectors, "vectors", metric)
    if left.shape[1] != right.shape[1]:
        raise InvalidInput(operation, expected=f"queries of {right.shape[1]} values", found=f"{left.shape[1]}")
    if k < 1:
        raise InvalidInput(operation, expected="k >= 1", found=f"{k}")
    k, gpu = min(k, len(right)), uses_gpu(device)
    rows, distances = np.zeros((len(left), k), np.int64), np.zeros((len(left), k), np.float32)
    if k and len(left):
        _fill(_Compared(left, right, metric, gpu), k, rows, distances)
    return ExactNeighbours(rows=rows, distances=distances)


class _Compared:
    """Queries and vectors, as they were given and as FAISS compares them."""

    def __init__(self, queries: FloatArray, vectors: FloatArray, metric: Metric, gpu: bool) -> None:
        self.queries, self.vectors, self.metric, self.gpu = queries, vectors, metric, gpu
        self.left, self.right = as_compared(queries, metric), as_compared(vectors, metric)

    def candidates(self, chosen: RowNumbers, fetched: int) -> tuple[FloatArray, RowNumbers]:
        """The nearest vectors of some queries by float32: (c, fetched) distances and numbers."""
        faiss: Any = load_faiss()
        operands, number = (self.left[chosen], self.right, fetched), metric_number(self.metric)
        if self.gpu and fetched <= MOST_ON_GPU:
            limits = {"vectorsMemoryLimit": _GPU_BYTES, "queriesMemoryLimit": _GPU_BYTES}
            found, rows = faiss.knn_gpu(faiss.StandardGpuResources(), *operands, metric=number, **limits)
        else:
            found, rows = faiss.knn(*operands, metric=number)
        return as_distances(found, self.metric), rows.astype(np.int64)

    def exact(self, chosen: RowNumbers, rows: RowNumbers) -> FloatArray:
        """Distances of c queries to f vectors each, (c, f) numbers: computed in float64, (c, f) float32."""
        query_rows, among = self.queries[chosen].astype(np.float64), self.vectors[rows].astype(np.float64)
        if self.metric == "l2":
            among -= query_rows[:, None]
            found: Doubles = np.einsum("cfd,cfd->cf", among, among)
        else:
            found = np.einsum("cfd,cd->cf", among, query_rows)
            if self.metric == "cosine":
                lengths = np.sqrt(np.einsum("cfd,cfd->cf", among, among))
                found /= lengths * np.sqrt(np.einsum("cd,cd->c", query_rows, query_rows))[:, None]
            found = 1 - found
        with np.errstate(over="ignore"):
            return found.astype(np.float32)

    def slack(self) -> Doubles:
        """(q,) float64: largest error of a distance by float32; infinite if float32 overflows."""
        longest = _lengths(self.right).max()
        lengths = _lengths(self.left)
        largest = (lengths + longest) ** 2 if self.metric == "l2" else 1 + lengths * longest
        slack = 2 * (self.left.shape[1] + 8) * _ROUNDING * largest
        return np.where(largest < np.finfo(np.float32).max / 4, slack, np.inf)


def _fill(compared: _Compared, k: int, rows: RowNumbers, distances: FloatArray) -> None:
    """Find the neighbours of all queries; of those that lack candidates again, with four times as many."""
    n, slack = len(compared.right), compared.slack()
    waiting, fetched = np.flatnonzero(np.isfinite(slack)), k + max(SPARE, k // 4)
    left_over = [np.flatnonzero(np.isinf(slack))]
    while len(waiting) and 2 * fetched < n:
        bounds, candidates = compared.candidates(waiting, fetched)
        size = max(1, _BLOCK_VALUES // (fetched * compared.right.shape[1]))
        for start in range(0, len(waiting), size):
            block, found = waiting[start : start + size], candidates[start : start + size]
            exact = compared.exact(block, found)
            order = np.lexsort((found, exact), axis=-1)[:, :k]
            rows[block], distances[block] = (np.take_along_axis(values, order, axis=1) for values in (found, exact))
        # A vector that was not fetched is at the bound or beyond, less what float32 has rounded.
        waiting = waiting[distances[waiting, -1] + slack[waiting] >= bounds[:, -1]]
        fetched *= 4
    left_over.append(waiting)
    _fill_by_all(compared, np.concatenate(left_over), rows, distances)


def _fill_by_all(compared: _Compared, chosen: RowNumbers, rows: RowNumbers, distances: FloatArray) -> None:
    """Compare queries with every vector in float64."""
    n, size = len(compared.right), max(1, _BLOCK_VALUES // compared.right.shape[1])
    blocks = [np.arange(start, min(start + size, n))[None] for start in range(0, n, size)]
    for query in chosen:
        exact = np.concatenate([compared.exact(query[None], block) for block in blocks], axis=1)[0]
        order = np.argsort(exact, kind="stable")[: rows.shape[1]]
        rows[query], distances[query] = order, exact[order]


def _lengths(vectors: FloatArray) -> Doubles:
    lengths: Doubles = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    return lengths


def _read(values: npt.ArrayLike, name: str, metric: Metric) -> FloatArray:
    operation = f"read {name}"
    with np.errstate(over="ignore"):
        vectors: FloatArray = array_of(values, operation, name, ndim=2, dtype=np.float32)
    if not vectors.shape[1]:
        raise InvalidInput(operation, expected="vectors of one value or more", found=f"{vectors.shape}")
    wrong = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(wrong):
        found = f"NaN, infinite or larger values in rows {first_offenders(wrong.tolist())}"
        raise InvalidInput(operation, expected="finite values of float32", found=found)
    zeros = np.flatnonzero(_lengths(vectors) == 0).tolist() if metric == "cosine" else []
    if zeros:
        found = f"zero vectors in rows {first_offenders(zeros)}"
        raise InvalidInput(operation, expected="vectors that have a direction", found=found)
    return vectors
