"""Vectors in memory: all compared, or in a graph (HNSW, Malkov and Yashunin 2018) as FAISS builds and searches it.

FAISS cannot take a vector out of a graph. So vectors stay, and a search names those that it may return: it walks over
the others and does not return them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from compatstore.arrays import BoolArray, Digests, FloatArray, RowNumbers
from compatstore.in_memory.nearest import as_distances, load_faiss, metric_number, nearest_neighbours
from compatstore.versions import Metric

_BLOCK = 65_536  # vectors compared at a time, in float64
_TOGETHER = 16  # queries: for 20 and more FAISS computes squared distances from products, which rounds far worse
NEIGHBOURS = 16  # of a vector in the graph, twice as many in its lowest layer: `m` in the paper
BUILDING_BREADTH = 80  # candidates for these neighbours: `ef_construction` in the paper
BREADTHS = (24, 32, 64, 128, 256, 512, 1024)  # the first is enough for 10 neighbours and the query itself
# Compared with all that count, if these are few, or few of all: the graph would walk over many that do not count.
FEW, FEW_OF = 2_048, 20


def graph_bytes(rows: int) -> int:
    """Approximate memory of the graph of that many vectors, without the vectors themselves."""
    links = 2 * NEIGHBOURS + NEIGHBOURS / (NEIGHBOURS - 1)  # each layer has 1/m of the vectors of the one below it
    return int(rows * (4 * links + 4 + 8))  # and of each vector its highest layer, and where its links begin


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
        """Memory that is taken, also if these are the last vectors of a larger array."""
        whole = self._vectors if self._vectors.base is None else self._vectors.base
        return int(whole.nbytes)

    def vectors(self, places: RowNumbers | slice) -> FloatArray:
        """Vectors at (n,) places: (n, dim) float32."""
        return self._vectors[places]

    def exact(self) -> Exact:
        """The same vectors, compared in float64."""
        return Exact(self._vectors, self._metric)

    def search(self, queries: FloatArray, k: int, among: Chosen | None = None) -> tuple[FloatArray, RowNumbers]:
        """Find the nearest vectors of each query.

        Args:
            queries: (q, dim) float32, of unit length under cosine.
            k: Vectors wanted.
            among: Those that count; None for all.

        Returns:
            (q, k) float32 distances as Lance gives them, and (q, k) int64 places, nearest first. k is the number of
            vectors that count, if that is less than requested.
        """
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
        """Find the nearest vectors of each query, block by block; as `Flat.search`."""
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


class Graph:
    """Vectors in a graph.

    Args:
        dim: Values of a vector.
        metric: "l2", "cosine" or "dot".
        rows: Vectors that memory is taken for at once; if more are added, FAISS doubles its memory.

    Attributes:
        recall: Share of the nearest vectors that `search` finds, as `measure` has seen it, in [0, 1].
    """

    def __init__(self, dim: int, metric: Metric, rows: int) -> None:
        faiss: Any = load_faiss()
        self._dim, self._metric, self._capacity = dim, metric, rows
        self._faiss, self._count = faiss, 0
        self._index: Any = faiss.IndexHNSWFlat(dim, NEIGHBOURS, metric_number(metric))
        self._index.hnsw.efConstruction = BUILDING_BREADTH
        self._stored: Any = faiss.downcast_index(self._index.storage)
        links = graph_bytes(rows) // 4 - 3 * rows
        for memory, size in ((self._stored.codes, 4 * dim * rows), (self._index.hnsw.neighbors, links)):
            memory.resize(size)  # an empty vector of C++ takes exactly the requested size, and keeps it
            memory.resize(0)
        self.breadth = BREADTHS[0]
        self.recall = 1.0

    def __len__(self) -> int:
        return self._count

    @property
    def breadth(self) -> int:
        """Candidates of a search: `ef_search`."""
        return self._breadth

    @breadth.setter
    def breadth(self, value: int) -> None:
        self._breadth = value
        self._plain = self._faiss.SearchParametersHNSW(efSearch=value)

    @property
    def bytes(self) -> int:
        """Memory that is taken."""
        return self._bytes_of(self._capacity)

    def bytes_with(self, more: int) -> int:
        """Memory that is taken once that many vectors are added."""
        return self._bytes_of(self._capacity_with(more))

    def add(self, vectors: FloatArray) -> None:
        """Put (n, dim) float32, of unit length under cosine, at the places behind the last one; nothing may search."""
        self._capacity = self._capacity_with(len(vectors))
        self._index.add(np.ascontiguousarray(vectors))
        self._count += len(vectors)

    def vectors(self, places: RowNumbers | slice) -> FloatArray:
        """Vectors at (n,) places: (n, dim) float32, of unit length under cosine."""
        return self._all()[places]

    def flat(self) -> Flat:
        """The same vectors, all of which are compared in float32; until the next `add`."""
        return Flat(self._all(), self._metric)

    def exact(self) -> Exact:
        """The same vectors, all of which are compared in float64; until the next `add`."""
        return Exact(self._all(), self._metric)

    def search(self, queries: FloatArray, k: int, among: Chosen | None = None) -> tuple[FloatArray, RowNumbers]:
        """Find nearly all of the nearest vectors of each query, always k of them; as `Flat.search`."""
        n = len(self)
        count = n if among is None else len(among)
        if count <= max(8 * k, FEW, n // FEW_OF):
            return self.flat().search(queries, k, among)
        params = self._plain
        if among is not None or 2 * k > self._breadth:
            breadth = max(self._breadth, 2 * k) * n // count
            params = self._faiss.SearchParametersHNSW(efSearch=breadth, sel=None if among is None else among.selector)
        distances, places = self._index.search(queries, k, params=params)
        distances = as_distances(distances, self._metric)
        if (places[0, -1] if len(places) == 1 else places[:, -1].min()) < 0:
            short = places[:, -1] < 0  # the graph leads to fewer: of equal vectors only some are neighbours of others
            distances[short], places[short] = self.flat().search(queries[short], k, among)
        return distances, places

    def measure(self, sample: int, neighbours: int, goal: float) -> None:
        """Measure the recall of searches, and take the least breadth with a sufficient one.

        Args:
            sample: Vectors drawn at random, which are the queries.
            neighbours: The nearest others of each that are to be found.
            goal: Share of them that is enough, in [0, 1].
        """
        places = np.random.default_rng(0).choice(len(self), sample, replace=False)
        if sample < 2:
            return
        queries = self._all()[places]
        truth = _others(self.exact().search(queries, neighbours + 1)[1], places, neighbours)
        for breadth in BREADTHS:
            self.breadth = breadth
            found = _others(self.search(queries, neighbours + 1)[1], places, neighbours)
            hits = sum(len(mine & exact) for mine, exact in zip(found, truth, strict=True))
            self.recall = hits / sum(map(len, truth))
            if self.recall >= goal:
                return

    def _all(self) -> FloatArray:
        if not len(self):
            return np.zeros((0, self._dim), np.float32)
        values: FloatArray = self._faiss.rev_swig_ptr(self._stored.get_xb(), len(self) * self._dim)
        return values.reshape(len(self), self._dim)

    def _capacity_with(self, more: int) -> int:
        needed = len(self) + more
        return self._capacity if needed <= self._capacity else max(2 * self._capacity, needed)

    def _bytes_of(self, rows: int) -> int:
        return 4 * self._dim * rows + graph_bytes(rows)


def _others(found: RowNumbers, own: RowNumbers, neighbours: int) -> list[frozenset[int]]:
    """The neighbours of each vector but itself."""
    return [
        frozenset([place for place in near if place != mine][:neighbours])
        for near, mine in zip(found.tolist(), own.tolist(), strict=True)
    ]
