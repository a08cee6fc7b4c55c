"""Distances of queries to a gallery: exact enough to rank by, and block by block.

Every metric is written as one matrix product whose entries order as the distances do, in double precision:

    l2      [-2 q, 1] . [g, |g|^2]   the squared distance without the query's own squared length
    cosine  -q/|q| . g/|g|
    dot     -q . g

A product of two float32 values is exact in double precision, so whole numbers, codes and half-precision vectors
that are equally far really tie, and rows that differ are not merged by rounding to single precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compatstore.errors import DimensionMismatch, InvalidInput, NonFiniteVectors, first_offenders
from compatstore.versions import METRICS, Metric

Doubles = npt.NDArray[np.float64]
Positions = npt.NDArray[np.intp]

# A matrix product may add up its last few rows in another order than the others. Whole tiles of this many queries
# keep that from happening, so a distance does not depend on how many queries share a block.
_TILE = 64
_BLOCK_BYTES = 128 * 2**20


@dataclass(frozen=True, kw_only=True, eq=False)
class Distances:
    """Queries and a gallery, ready to be compared.

    Args:
        left: (q, d') float64, the queries as the matrix product wants them.
        right: (n, d') float64, the gallery likewise.
        block: Queries compared at a time, a multiple of 64; bounds memory, decides nothing else.
        offsets: (q,) float64, what is to be added to a query's entries to make them distances as Lance gives them:
            squared (l2), 1 - cosine, 1 - product (dot). Needed only where distances of two spaces are merged.
    """

    left: Doubles
    right: Doubles
    block: int
    offsets: Doubles

    def blocks(self) -> Iterator[tuple[int, Doubles]]:
        """Yield the index of a block's first query and its distances, (b, n) float64, in memory that is reused."""
        memory = np.empty((self.block, len(self.right)))
        for start in range(0, len(self.left), self.block):
            rows = self.left[start : start + self.block]
            tiles = np.zeros((-(-len(rows) // _TILE) * _TILE, rows.shape[1]))
            tiles[: len(rows)] = rows
            found = np.matmul(tiles, self.right.T, out=memory[: len(tiles)])
            yield start, found[: len(rows)]

    def first_equal_rows(self) -> Positions:
        """For each gallery row the first row that is equal to it bit by bit, (n,) intp.

        Who reads distances through this makes equal vectors tie exactly, wherever they stand.
        """
        seen: dict[bytes, int] = {}
        firsts = (seen.setdefault(row.tobytes(), position) for position, row in enumerate(self.right))
        return np.fromiter(firsts, dtype=np.intp, count=len(self.right))


def measure(
    queries: npt.ArrayLike, gallery: npt.ArrayLike, metric: Metric = "l2", *, block: int | None = None
) -> Distances:
    """Check queries and gallery and get them ready.

    Args:
        queries: (q, d) floats.
        gallery: (n, d) floats.
        metric: "l2", "cosine" or "dot".
        block: Queries at a time, rounded up to a multiple of 64; None keeps a block near 128 MiB.

    Raises:
        DimensionMismatch: Not two tables of vectors of one length.
        NonFiniteVectors: A value is NaN or infinite, or so large that its square is.
        InvalidInput: An unknown metric, no vectors at all, a block below 1, or a zero vector under cosine.
    """
    if metric not in METRICS:
        raise InvalidInput("measure distances", expected=f"metric of {METRICS}", found=repr(metric))
    if block is not None and block < 1:
        raise InvalidInput("measure distances", expected="block >= 1", found=str(block))
    left, right = checked_vectors(queries, "queries"), checked_vectors(gallery, "gallery")
    if left.shape[1] != right.shape[1]:
        raise DimensionMismatch(
            "compare queries with a gallery",
            expected=f"queries of {right.shape[1]} values",
            found=f"{left.shape[1]}",
            fix="Embed both with one model, or transform one side first.",
        )
    if block is None:
        block = min(_BLOCK_BYTES // (8 * len(right)), len(left))
    offsets = _squared_lengths(left) if metric == "l2" else np.ones(len(left))
    left, right = _factors(left, right, metric)
    return Distances(left=left, right=right, block=max(-(-block // _TILE), 1) * _TILE, offsets=offsets)


def checked_vectors(vectors: npt.ArrayLike, name: str) -> Doubles:
    """Return vectors as (n, d) float64, refusing what cannot be ranked.

    Raises:
        DimensionMismatch: The shape is not (n, d).
        NonFiniteVectors: A row holds NaN or infinite values, or values whose squares overflow.
        InvalidInput: There are no rows or no values.
    """
    try:
        # Adding zero turns -0.0 into 0.0, so that vectors with equal values have equal bits.
        doubles = np.asarray(vectors, dtype=np.float64) + 0.0
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"read {name}", expected="an array of numbers", found=str(error)) from error
    if doubles.ndim != 2:
        raise DimensionMismatch(f"read {name}", expected="vectors of shape (n, d)", found=f"{doubles.shape}")
    if not doubles.size:
        raise InvalidInput(f"read {name}", expected="at least one vector of one value", found=f"{doubles.shape}")
    with np.errstate(over="ignore"):
        offenders = np.flatnonzero(~np.isfinite(_squared_lengths(doubles)))
    if offenders.size:
        raise NonFiniteVectors(
            f"read {name}",
            expected="finite values",
            found=f"NaN, infinite or overflowing values in rows {first_offenders(offenders.tolist())}",
            fix="Leave these rows out or embed them again; sorting NaN would report a perfect score.",
        )
    return doubles


def _squared_lengths(vectors: Doubles) -> Doubles:
    lengths: Doubles = np.einsum("nd,nd->n", vectors, vectors)
    return lengths


def _directions(vectors: Doubles) -> Doubles:
    # Scaling by the largest value first keeps tiny vectors from underflowing to length zero.
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    zeros = np.flatnonzero(largest == 0)
    if zeros.size:
        raise InvalidInput(
            "measure cosine distances",
            expected="vectors that have a direction",
            found=f"zero vectors in rows {first_offenders(zeros.tolist())}",
        )
    scaled = vectors / largest
    directions: Doubles = scaled / np.sqrt(_squared_lengths(scaled))[:, None]
    return directions


def _with_column(vectors: Doubles, column: Doubles) -> Doubles:
    return np.concatenate([vectors, column[:, None]], axis=1)


def _factors(queries: Doubles, gallery: Doubles, metric: Metric) -> tuple[Doubles, Doubles]:
    """The two sides of the matrix product whose entries order as the distances do."""
    if metric == "l2":
        ones = np.ones(len(queries))
        return _with_column(-2.0 * queries, ones), _with_column(gallery, _squared_lengths(gallery))
    if metric == "cosine":
        return -_directions(queries), _directions(gallery)
    return -queries, gallery
