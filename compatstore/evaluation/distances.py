"""Distances of queries to a gallery, block by block, exact enough for ties and ranks.

Every metric is written as one product of vectors whose entries order as the distances do:

    l2      -2 q . g + |g|^2   the squared distance without the query's own squared length
    cosine  -q/|q| . g/|g|
    dot     -q . g

The products are summed without rounding (`exact_products`): they are the same on every processor. Equal vectors have
equal distances, and so have vectors of whole numbers, codes and half-precision values that are equally far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.boundary import foreign, refuse_masked
from compatstore.errors import InvalidInput, first_offenders
from compatstore.evaluation.exact_products import Slices, cut, multiply
from compatstore.versions import METRICS, Metric

_BLOCK_BYTES = 128 * 2**20
_FEWEST = 32  # minimum queries of a default block: fewer leave the matrix product waiting for memory


@dataclass(frozen=True, kw_only=True, eq=False)
class Distances:
    """Queries and a gallery, ready to be compared.

    Args:
        left: The q queries as the product wants them.
        right: The n vectors of the gallery, as `left`.
        added: (n,) float64, added to the products with each of them; None for nothing.
        factors: (n,) float64, factors of these products, applied before that; None for none.
        block: Queries compared at a time; bounds memory, decides nothing else.
        offsets: (q,) float64, added to a query's entries to make them distances as Lance gives them:
            squared (l2), 1 - cosine, 1 - product (dot). Needed only if distances of two spaces are merged.
        lost: (q,) bool, queries that find nothing: they are infinitely far from every item. None for none.
        hidden: (n,) bool, items that no query finds. None for none.
    """

    left: Slices
    right: Slices
    added: Doubles | None
    block: int
    offsets: Doubles
    factors: Doubles | None = None
    lost: BoolArray | None = None
    hidden: BoolArray | None = None

    def of(self, queries: Positions) -> Distances:
        """The same gallery, and some of the queries."""
        lost = None if self.lost is None else self.lost[queries]
        return replace(self, left=self.left[queries], offsets=self.offsets[queries], lost=lost)

    def by(self, block: int) -> Distances:
        """The same, with other blocks."""
        return replace(self, block=max(block, 1))

    def blocks(self) -> Iterator[tuple[int, Doubles]]:
        """Yield the index of a block's first query and its distances, (b, n) float64, in memory that is reused."""
        memory = np.empty((2, min(self.block, len(self.left)), len(self.right)))
        for start in range(0, len(self.left), self.block):
            found = multiply(self.left[start : start + self.block], self.right, memory)
            if self.factors is not None:
                found *= self.factors
            if self.added is not None:
                found += self.added
            if self.lost is not None:
                found[self.lost[start : start + self.block]] = np.inf
            if self.hidden is not None:
                found[:, self.hidden] = np.inf
            yield start, found

    def whole(self) -> Doubles:
        """All distances, (q, n) float64."""
        return np.concatenate([block.copy() for _, block in self.blocks()])


@dataclass(frozen=True, eq=False)
class KeptDistances:
    """Distances that were measured before, of some queries.

    Args:
        distances: (queries, n) float64, of all queries.
        queries: (q,) indices of those that are compared.
        block: Queries at a time.
        chosen: (n,) bool, items whose distances these are; None for all.
        others: (queries, n) float64, distances of the other items.
    """

    distances: Doubles
    queries: Positions
    block: int
    chosen: BoolArray | None = None
    others: Doubles | None = None

    def blocks(self) -> Iterator[tuple[int, Doubles]]:
        """As `Distances.blocks`."""
        for start in range(0, len(self.queries), self.block):
            rows = self.queries[start : start + self.block]
            found = self.distances[rows]
            if self.others is not None and self.chosen is not None:
                found = np.where(self.chosen, found, self.others[rows])
            yield start, found


Blocks: TypeAlias = Distances | KeptDistances


def measure(
    queries: npt.ArrayLike,
    gallery: npt.ArrayLike,
    metric: Metric = "l2",
    *,
    block: int | None = None,
    undirected: Literal["refuse", "lose"] = "refuse",
    factors: Doubles | None = None,
) -> Distances:
    """Check queries and gallery and get them ready.

    Args:
        queries: (q, d) floats.
        gallery: (n, d) floats.
        metric: "l2", "cosine" or "dot".
        block: Queries at a time; None keeps a block near 128 MiB.
        undirected: Treatment of zero vectors under cosine: "refuse" all, or "lose" them, as a search does: such a
            query finds nothing, and such an item is not found. For vectors that were cut or transformed, not given.
        factors: (n,) float64, of each item: distances are then those of `shrunk_distances`. None for 1.

    Raises:
        InvalidInput: Not two tables of vectors of one length. A value is NaN or infinite, or so large that its square
            is. An unknown metric, no vectors at all, a block below 1, or a zero vector under cosine.
    """
    if metric not in METRICS:
        raise InvalidInput("measure distances", expected=f"metric of {METRICS}", found=repr(metric))
    if block is not None and block < 1:
        raise InvalidInput("measure distances", expected="block >= 1", found=str(block))
    left, right = checked_vectors(queries, "queries"), checked_vectors(gallery, "gallery")
    if left.shape[1] != right.shape[1]:
        raise InvalidInput(
            "compare queries with a gallery",
            expected=f"queries of {right.shape[1]} values",
            found=f"{left.shape[1]}",
            fix="Embed both with one model, or transform one side first.",
        )
    if block is None:
        block = max(_BLOCK_BYTES // (16 * len(right)), _FEWEST)  # a block is computed in two parts
    lost, hidden = None, None
    if metric == "cosine":
        if undirected == "lose":
            (left, lost), (right, hidden) = _replaced(left), _replaced(right)
        left, right = _directions(left), _directions(right)
    query_slices, found, l2 = cut(left), cut(right), metric == "l2"
    lengths = found.squared_lengths() if l2 else None
    return Distances(
        left=query_slices.times(-2.0 if l2 else -1.0),
        right=found,
        added=lengths if lengths is None or factors is None else shrunk_distances(lengths, factors, metric),
        block=block,
        offsets=query_slices.squared_lengths() if l2 else np.ones(len(left)),
        factors=factors,
        lost=lost,
        hidden=hidden,
    )


def shrunk_distances(distances: Doubles, factors: Doubles | float, metric: str) -> Doubles:
    """Distances, as `measure` defines them, to unit vectors whose products with the queries are multiplied by factors.

    Args:
        distances: (..., n) float64.
        factors: (n,) float64 or one, 0 or more.
        metric: Metric of the distances.

    Returns:
        (..., n) float64.
    """
    scaled: Doubles = factors * distances
    return scaled + (1.0 - factors) if metric == "l2" else scaled


def fit_length(vectors: FloatArray, dim: int) -> FloatArray:
    """Cut vectors (n, d) to `dim` values, or fill them up with zeros: the effect of a naive swap of models."""
    first = vectors[:, :dim]
    return np.pad(first, ((0, 0), (0, dim - first.shape[1])))


def checked_vectors(vectors: npt.ArrayLike, name: str) -> Doubles:
    """Return vectors as (n, d) float64, refusing vectors that cannot be ranked.

    Raises:
        InvalidInput: The shape is not (n, d). A row holds NaN or infinite values, or values whose squares overflow.
            There are no rows or no values.
    """
    refuse_masked(vectors, f"read {name}")
    with foreign(f"read {name}", "an array of numbers"):
        doubles = np.asarray(vectors, dtype=np.float64)
    if doubles.ndim != 2:
        raise InvalidInput(f"read {name}", expected="vectors of shape (n, d)", found=f"{doubles.shape}")
    if not doubles.size:
        raise InvalidInput(f"read {name}", expected="at least one vector of one value", found=f"{doubles.shape}")
    with np.errstate(over="ignore"):
        # A squared distance is up to four times a vector's squared length; no intermediate result overflows.
        offenders = np.flatnonzero(~np.isfinite(16.0 * np.einsum("nd,nd->n", doubles, doubles)))
    if offenders.size:
        raise InvalidInput(
            f"read {name}",
            expected="finite values",
            found=f"NaN, infinite or overflowing values in rows {first_offenders(offenders.tolist())}",
            fix="Leave these rows out or embed them again; sorting NaN would report a perfect score.",
        )
    return doubles


def _replaced(vectors: Doubles) -> tuple[Doubles, BoolArray | None]:
    """Vectors with any direction in place of those without one, and which these are; None for none.

    As in a search, a vector has a direction if float32 can distinguish its length from 0.
    """
    zeros = np.einsum("nd,nd->n", vectors, vectors) <= np.finfo(np.float32).tiny
    if not zeros.any():
        return vectors, None
    return np.where(zeros[:, None], 1.0, vectors), zeros


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
    directions: Doubles = scaled / np.sqrt(cut(scaled).squared_lengths())[:, None]
    return directions
