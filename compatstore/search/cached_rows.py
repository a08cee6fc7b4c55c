"""The rows of one part of a search plan, in memory, and their updates from the table.

Rows have places 0, 1, 2, ...: first those in the graph, then later ones, which are all compared. When
the table changes, the places of removed or changed rows become invalid, and new rows are appended. A row that was only
moved (a merge of fragments, a backfill) keeps its place in the graph: its id and its vector are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from compatstore.arrays import BoolArray, Digests, FloatArray, RowNumbers
from compatstore.in_memory.graph import Chosen, Flat, Graph
from compatstore.search.cached_reading import Reader, Rows, as_ids
from compatstore.storage.fragments import Fragment, list_fragments
from compatstore.storage.moves import ChangedFragments, addresses
from compatstore.storage.recall import GOAL, QUERIES
from compatstore.storage.records import NEIGHBOURS
from compatstore.storage.snapshot import Snapshot

_AT_ONCE = 8192  # vectors that are copied at a time
_MOVING = ("addresses", "origins", "sigma2")  # new of a row that was moved


@dataclass(frozen=True, eq=False)
class Among:
    """The rows that a search may return: those in the graph, and those behind them; None if all of them count."""

    graph: Chosen | None
    tail: Chosen | None


@dataclass(frozen=True, eq=False)
class CachedRows:
    """The rows of a part as of one table version; updates return a new object.

    Attributes:
        reader: Reads them.
        fragments: State of each fragment when it was read.
        rows: All n, with the former address of those that are invalid.
        live: (n,) bool, True for valid rows.
        graph: The first g vectors.
        tail: The other n - g vectors, all of valid rows.
    """

    reader: Reader
    fragments: Sequence[Fragment]
    rows: Rows
    live: BoolArray
    graph: Graph
    tail: Flat

    @classmethod
    def read(cls, reader: Reader, snapshot: Snapshot, rows: int) -> CachedRows:
        """Read the rows of a table version into a graph, and measure its recall.

        Args:
            reader: Reads them.
            snapshot: The table version.
            rows: Rows that the graph gets memory for.
        """
        dim, metric = reader.part.columns.dim, reader.part.metric
        fragments, graph = list_fragments(snapshot, reader.columns), Graph(dim, metric, rows)
        none = pa.array([], snapshot.schema.field(reader.id_column).type)
        empty = np.zeros(0, np.uint64), np.zeros(0, np.uint16), np.zeros(0, np.float32)
        read = [Rows(as_ids(none), *empty, id_bytes=0)]
        for part, vectors in reader.read(snapshot, [fragment.id for fragment in fragments]):
            graph.add(vectors)
            read.append(part)
        graph.measure(min(QUERIES, len(graph)), NEIGHBOURS, GOAL)
        everything, tail = Rows.joined(read), Flat(np.zeros((0, dim), np.float32), metric)
        return cls(reader, fragments, everything, np.ones(len(everything), bool), graph, tail)

    @property
    def bytes(self) -> int:
        """Memory that is taken."""
        return self.graph.bytes + self.tail.bytes + self.rows.bytes

    @property
    def count(self) -> int:
        """Number of valid rows."""
        return int(np.count_nonzero(self.live))

    @cached_property
    def everything(self) -> Among:
        """The mask of all valid rows."""
        return Among(None, None) if self.live.all() else self.among(self.live)

    @cached_property
    def in_graph(self) -> bool:
        """True if all rows are valid and in the graph, which then answers alone."""
        return len(self.tail) == 0 and self.everything.graph is None

    def at(self, wanted: Digests) -> Among:
        """The rows at some addresses that count."""
        return self.among(self.live & np.isin(self.rows.addresses, wanted))

    def among(self, mask: BoolArray) -> Among:
        """The rows of a mask."""
        g, addresses = len(self.graph), self.rows.addresses
        return Among(Chosen(mask[:g], addresses[:g]), Chosen(mask[g:], addresses[g:]))

    def search(
        self, queries: FloatArray, k: int, among: Among, *, exact: bool = False
    ) -> tuple[FloatArray, RowNumbers]:
        """Find the nearest rows.

        Args:
            queries: (q, dim) float32, as they are compared.
            k: Rows wanted.
            among: Rows that count.
            exact: Compare with all of them.

        Returns:
            (q, k) float32 distances and (q, k) int64 places, nearest first, of rows at one distance, if all are
            compared, the one that lies first in the table; k is the number of rows that count if there are fewer.
        """
        among = self.among(self.live) if exact and among.graph is None else among  # in the order of the table
        graph, tail = (self.graph.exact(), self.tail.exact()) if exact else (self.graph, self.tail)
        distances, places = graph.search(queries, k, among.graph)
        if len(self.tail):
            more, behind = tail.search(queries, k, among.tail)
            distances = np.concatenate([distances, more], axis=1)
            places = np.concatenate([places, behind + len(self.graph)], axis=1)
        elif not exact:
            return distances, places
        order = np.lexsort((self.rows.addresses[places], distances), axis=-1)[:, :k]
        return np.take_along_axis(distances, order, axis=1), np.take_along_axis(places, order, axis=1)

    def following(self, snapshot: Snapshot, require: Callable[[int], None]) -> CachedRows:
        """The same as of a later table version.

        Args:
            snapshot: That version.
            require: Called with the memory that is needed; raises if that is too much.
        """
        now = list_fragments(snapshot, self.reader.columns)
        changed = ChangedFragments.between(self.fragments, now)
        if not (changed.left or changed.shrunk or changed.fresh):
            return replace(self, fragments=now)
        live = self.live & ~self._gone(snapshot, changed)
        gone = np.flatnonzero(self.live & ~live)
        moved = dict(zip(self.rows.ids[gone].tolist(), gone.tolist(), strict=True))
        rows = replace(self.rows, **{name: getattr(self.rows, name).copy() for name in _MOVING})
        fresh, needed = list[tuple[Rows, FloatArray]](), self.bytes
        for read, vectors in self.reader.read(snapshot, changed.fresh):
            places = np.array([moved.pop(item, -1) for item in read.ids.tolist()], np.int64)
            kept = places >= 0
            kept[kept] = (self._vectors(places[kept]) == vectors[kept]).all(axis=1)
            live[places[kept]] = True
            for name in _MOVING:
                getattr(rows, name)[places[kept]] = getattr(read, name)[kept]
            fresh.append((read.take(~kept), vectors[~kept]))
            needed += fresh[-1][1].nbytes + fresh[-1][0].bytes
            require(needed)
        stays = live.copy()
        stays[: len(self.graph)] = True
        tail = self._vectors(np.flatnonzero(stays[len(self.graph) :]) + len(self.graph))
        return replace(
            self,
            fragments=now,
            rows=Rows.joined([rows.take(stays), *(new for new, _ in fresh)]),
            live=np.concatenate([live[stays], *(np.ones(len(new), bool) for new, _ in fresh)]),
            tail=Flat(np.concatenate([tail, *(vectors for _, vectors in fresh)]), self.reader.part.metric),
        )

    def _gone(self, snapshot: Snapshot, changed: ChangedFragments) -> BoolArray:
        """Mask of rows that have left their address, or whose fragment has to be read again."""
        fragments = self.rows.addresses >> np.uint64(32)
        gone = np.isin(fragments, np.array(changed.left, np.uint64))
        if changed.shrunk:
            there = addresses(snapshot, numbers=changed.shrunk)
            gone |= np.isin(fragments, np.array(changed.shrunk, np.uint64)) & ~np.isin(self.rows.addresses, there)
        return gone

    def _vectors(self, places: RowNumbers) -> FloatArray:
        """Vectors at places: (n, dim) float32."""
        g = len(self.graph)
        found = np.empty((len(places), self.reader.part.columns.dim), np.float32)
        behind = places >= g
        found[~behind], found[behind] = self.graph.vectors(places[~behind]), self.tail.vectors(places[behind] - g)
        return found

    def taking_in(self, rows: int) -> CachedRows:
        """The same with the first rows of the tail in the graph; nothing may search meanwhile."""
        count = min(rows, len(self.tail))
        self.graph.add(self.tail.vectors(slice(count)))
        left = self.tail.vectors(slice(count, None))
        return replace(self, tail=Flat(left if len(left) else left.copy(), self.reader.part.metric))

    def rebuilt(self) -> CachedRows:
        """The same in a graph of its own that holds nothing but the rows that count."""
        places = np.flatnonzero(self.live)
        graph = Graph(self.reader.part.columns.dim, self.reader.part.metric, len(places))
        graph.breadth, graph.recall = self.graph.breadth, self.graph.recall
        for start in range(0, len(places), _AT_ONCE):
            graph.add(self._vectors(places[start : start + _AT_ONCE]))
        return replace(
            self,
            rows=self.rows.take(places),
            live=self.live[places],
            graph=graph,
            tail=Flat(self.tail.vectors(slice(0)).copy(), self.reader.part.metric),
        )
