"""What finds the nearest of vectors in memory: the protocol, and what compares with all of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from compatstore.arrays import BoolArray, Digests, FloatArray, RowNumbers
from compatstore.in_memory.nearest import as_distances, load_faiss, metric_number, nearest_neighbours
from compatstore.versions import Metric

_BLOCK = 65_536  # vectors compared at a time, in float64
_TOGETHER = 16  # queries: for 20 and more FAISS computes squared distances from products, which rounds far worse


@dataclass(frozen=True, eq=False)
class Chosen:
    """The vectors that a search may return.

    Attributes:
        mask: (n,) bool, for each vector.
        ranks: (n,) numbers, by which those at one distance are ordered, lowest first.
    """

    mask: BoolArray
    ranks: Digests

    def __len__(self) -> int:
        return self._count

    @cached_property
    def _count(self) -> int:
        return int(np.count_nonzero(self.mask))

    @cached_property
    def places(self) -> RowNumbers:
        """(m,) places of those that may be returned, in the order of their ranks."""
        places = np.flatnonzero(self.mask)
        return places[np.argsort(self.ranks[places], kind="stable")]

    @cached_property
    def selector(self) -> Any:
        """The mask as FAISS reads it: a bit for each vector."""
        return load_faiss().IDSelectorBitmap(np.packbits(self.mask, bitorder="little"))


class VectorsInMemory(Protocol):
    """Vectors of one length, at places 0, 1, 2, ..., and how the nearest of them are found."""

    def __len__(self) -> int:
        """Vectors held."""

    @property
    def bytes(self) -> int:
        """Memory that is taken."""

    def vectors(self, places: RowNumbers) -> FloatArray:
        """Vectors at (n,) places: (n, dim) float32, of unit length under cosine."""

    def search(self, queries: FloatArray, k: int, among: Chosen | None = None) -> tuple[FloatArray, RowNumbers]:
        """Find the nearest vectors of each query.

        Args:
            queries: (q, dim) float32, of unit length under cosine.
            k: Vectors wanted.
            among: Those that count; None for all.

        Returns:
            (q, k) float32 distances as Lance gives them, and (q, k) int64 places, nearest first. k is the number of
            vectors that count, where that is less than what was asked for.
        """


class Flat:
    """Vectors that are all compared, in float32.

    Args:
        vectors: (n, dim) float32, of unit length under cosine.
        metric: "l2", "cosine" or "dot".
    """

    def __init__(self, vectors: FloatArray, metric: Metric) -> None:
        self._vectors, self._metric, self._number = vectors, metric, metric_number(metric)

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def bytes(self) -> int:
        """Memory that is taken, also where these are the last vectors of a larger array."""
        whole = self._vectors if self._vectors.base is None else self._vectors.base
        return int(whole.nbytes)

    def vectors(self, places: RowNumbers | slice) -> FloatArray:
        """Vectors at (n,) places: (n, dim) float32."""
        return self._vectors[places]

    def exact(self) -> Exact:
        """The same vectors, compared in float64."""
        return Exact(self._vectors, self._metric)

    def search(self, queries: FloatArray, k: int, among: Chosen | None = None) -> tuple[FloatArray, RowNumbers]:
        """Find the nearest vectors of each query; see the protocol."""
        vectors = self._vectors if among is None else self._vectors[among.places]
        wanted = min(k, len(vectors))
        if not wanted:
            return np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        blocks = [queries[start : start + _TOGETHER] for start in range(0, len(queries), _TOGETHER)]
        found = [load_faiss().knn(block, vectors, wanted, metric=self._number) for block in blocks]
        distances, rows = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        return as_distances(distances, self._metric), rows if among is None else among.places[rows]


class Exact(Flat):
    """Vectors that are all compared, in float64: of those at one distance the ones of the lower rank."""

    def search(self, queries: FloatArray, k: int, among: Chosen | None = None) -> tuple[FloatArray, RowNumbers]:
        """Find the nearest vectors of each query, block by block; see the protocol."""
        places = np.arange(len(self._vectors)) if among is None else among.places
        distances, ranks = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
        for start in range(0, len(places), _BLOCK):
            vectors = self._vectors[places[start : start + _BLOCK]]
            found = nearest_neighbours(queries, vectors, k, metric=self._metric, device="cpu")
            distances = np.concatenate([distances, found.distances], axis=1)
            ranks = np.concatenate([ranks, found.rows + start], axis=1)
            order = np.lexsort((ranks, distances), axis=-1)[:, :k]
            distances = np.take_along_axis(distances, order, axis=1)
            ranks = np.take_along_axis(ranks, order, axis=1)
        return distances, places[ranks]
