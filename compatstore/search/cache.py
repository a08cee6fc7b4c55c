"""A version of a gallery in memory, for serving: nearly all of the nearest items in a fraction of a millisecond.

Each search first checks the table's latest version. If it is newer than the cache's, the cache is updated first: it
reads only the changed fragments. So a search answers for one table version, which is the latest at the start of the
search or a later one, and items that were deleted or changed before are not returned in their former state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from compatstore.arrays import ArrowTable, FloatArray
from compatstore.boundary import bare, checked, fitted
from compatstore.errors import CompatStoreError, InvalidInput
from compatstore.in_memory.nearest import load_faiss
from compatstore.search.cached_reading import (
    CachedIds,
    Reader,
    in_mebibytes,
    query_as_compared,
    size_of,
)
from compatstore.search.cached_results import (
    CacheState,
    FoundRows,
    as_table,
    by_shrunk_distance,
    merge_parts,
    rows_among,
)
from compatstore.search.cached_rows import CachedRows
from compatstore.search.condition import joined
from compatstore.search.execute import as_queries
from compatstore.search.plan import plan_search
from compatstore.search.scan import require_count
from compatstore.search.serving import require_fingerprints
from compatstore.search.shrinkage import FIRST, with_shrinkage
from compatstore.storage.app_columns import refuse_distance
from compatstore.storage.catalog import Catalog
from compatstore.storage.failures import answering, answers
from compatstore.storage.snapshot import Snapshot

AT_ONCE = 512  # vectors that are put into a graph while searches wait


class Nearest(NamedTuple):
    """The nearest items of each query.

    Attributes:
        ids: (q, k) ids, nearest first: int64, or NumPy's texts.
        distances: (q, k) float32, as `Gallery.search` gives them.
        table_version: Table version that they hold for.

    Examples:
        >>> found = gallery.cache().nearest([[0.1, 1.2], [3.0, 0.0]], k=1)
        >>> found.ids.tolist(), found.distances.shape
        ([['a'], ['e']], (2, 1))
    """

    ids: CachedIds
    distances: FloatArray
    table_version: int


@checked
@answers
class Cache:
    """A version of a gallery in memory, kept in step with the table; made by `Gallery.cache`.

    Threads may share it; it belongs to one process. Searches of several threads run side by side.

    Examples:
        >>> with gallery.cache() as cache:
        ...     cache.search([0.1, 1.2], k=1, columns=["id"])["id"].to_pylist()
        ['a']
    """

    def __init__(self, catalog: Catalog, version: str, max_bytes: int | None) -> None:
        load_faiss()
        self._catalog, self._version, self._max_bytes = catalog, version, max_bytes
        self._following = threading.Lock()
        self._searching = _SharedLock()
        self._state: CacheState | None = self._read(None, catalog.store.snapshot())

    def __repr__(self) -> str:
        state = self._state
        what = "closed" if state is None else f"{len(self)} items, table version {state.version}"
        return f"<Cache of {self._version} in {self._catalog.store.location.name}: {what}>"

    # ---- searching

    def search(
        self,
        query: Any,
        k: int = 10,
        where: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        *,
        exact: bool = False,
        fingerprint: str | None = None,
    ) -> ArrowTable:
        """Find the nearest items, as `Gallery.search` does with queries of the cache's version.

        Ids come from memory. Other columns are read from the table, which takes milliseconds: pass
        `columns=["id"]` if ids are enough.

        Args:
            query: (d,) or (q, d) vectors, or one source to embed (path, text, image).
            k: Results per query.
            where: Condition on the gallery's columns, in SQL, or several that must all hold. Lance finds the items that
                fulfil it, once for each table version.
            columns: Columns to return; id, source and metadata by default. Computed columns are always included.
            exact: Compare with all items, not only with candidates of the graph.
            fingerprint: Fingerprint of the model that made the query; refused unless it is the version's.

        Returns:
            Arrow table, nearest first, with `_distance`, `_version`, `_origin`; `_query` too for several queries. With
            `exact`, items at one distance are in the order of the table. The schema's metadata has
            `compatstore.table_version`.

        Raises:
            InvalidInput: The query has another length. NaN or infinite values. k < 1, a condition is no valid SQL, or
                the cache would take more than `max_bytes`.
            Incompatible: The query is another model's.
            NotFound: The version was retired.

        Examples:
            >>> cache = gallery.cache()
            >>> gallery.delete(["a"])
            1
            >>> cache.search([0.1, 1.2], k=1, columns=["id"])["id"].to_pylist()
            ['d']
        """
        queries = self._queries(query, k, fingerprint)
        state = self._enter()
        try:
            return as_table(state, self._find(state, queries, k, where, exact=exact), columns)
        finally:
            self._searching.leave()

    @bare
    def nearest(self, query: Any, k: int = 10, where: str | Sequence[str] | None = None) -> Nearest:
        """CachedIds and distances alone, as NumPy arrays: the fastest way, as the table is not read.

        Args:
            query: As for `search`.
            k: Results per query.
            where: As for `search`.

        Raises:
            InvalidInput: As for `search`, with its other errors.

        Examples:
            >>> gallery.cache().nearest([0.1, 1.2], k=2).ids.tolist()
            [['a', 'd']]
        """
        try:
            if type(k) is not int or where is not None:
                k, where = fitted(Cache.nearest, k=k, where=where)
            queries = self._queries(query, k, None)
            state = self._enter()
            try:
                found = self._find(state, queries, k, where, exact=False)
                return Nearest(found.take(state, "ids"), found.distances, state.version)
            finally:
                self._searching.leave()
        except CompatStoreError:
            raise
        except BaseException as error:
            with answering("find the nearest in", self._catalog.store.location):
                raise error

    def _queries(self, query: Any, k: int, fingerprint: str | None) -> FloatArray:
        """Read a query, before the table's version is checked: to embed a source may take long."""
        require_count(k)
        state = self._open()
        if fingerprint is not None:
            require_fingerprints(state.registry, state.plan.versions, fingerprint)
        plain = type(query) is np.ndarray and query.dtype == np.float32 and query.shape[-1:] == (state.dim,)
        if (
            plain and query.ndim <= 2 and len(query)
        ):  # nothing to convert; values that are not finite are found when compared
            matrix: FloatArray = query if query.ndim == 2 else query[None]
            return matrix
        return as_queries(self._catalog, state.registry, self._version, query)

    def _find(
        self, state: CacheState, queries: FloatArray, k: int, where: str | Sequence[str] | None, *, exact: bool
    ) -> FoundRows:
        if not state.plan.shrinkage:
            return self._nearest(state, queries, k, where, exact=exact)
        found = self._nearest(state, queries, max(k, FIRST), where, exact=exact)
        return by_shrunk_distance(self._catalog, state, found, queries, k)

    def _nearest(
        self, state: CacheState, queries: FloatArray, k: int, where: str | Sequence[str] | None, *, exact: bool
    ) -> FoundRows:
        if where is None and not exact and len(state.held) == 1 and state.held[0].in_graph:
            rows = state.held[0]
            distances, places = rows.graph.search(query_as_compared(self._catalog, rows.reader, queries), k)
            return FoundRows(np.zeros_like(places), places, distances)
        among = rows_among(state, None if where is None else joined(where, f"search {self._version}"))
        found = []
        for rows, counted in zip(state.held, among, strict=True):
            form = query_as_compared(self._catalog, rows.reader, queries)
            found.append(rows.search(form, k, counted, exact=exact))
        return merge_parts(found, state.plan, k)

    # ---- following the table

    def sync(self) -> int:
        """Update the cache, and add new items to the graph.

        Each search updates the cache by itself; new items are then compared one by one, until `sync`
        adds them to the graph: call it from time to time, from a thread of its own. Searches go on meanwhile, but for
        moments of about 0.1 s. If more than half of the graph are removed items, it is built again.

        Returns:
            The table version of the cache.

        Examples:
            >>> cache = gallery.cache()
            >>> gallery.add({"id": ["g"], "vector": [[4.0, 4.0]]}).rows
            1
            >>> cache.sync() == cache.table_version
            True
        """
        self._follow()
        with self._following:
            state = self._open()
            for number in range(len(state.held)):
                self._take_in(number)
            return self._open().version

    def _take_in(self, number: int) -> None:
        """Put the tail of a part into its graph, some rows at a time, while there is memory for it."""
        state = self._open()
        rows = state.held[number]
        if len(rows.rows) > 2 * rows.count:
            self._put(number, rows.rebuilt())
        while len(self._open().held[number].tail):
            state = self._open()
            rows = state.held[number]
            taken = min(len(rows.tail), AT_ONCE)
            grown = state.bytes - rows.graph.bytes + rows.graph.bytes_with(taken)
            if self._max_bytes is not None and grown > self._max_bytes:
                return
            with self._searching.alone():
                self._put(number, rows.taking_in(taken))

    def _put(self, number: int, rows: CachedRows) -> None:
        state = self._open()
        held = (*state.held[:number], rows, *state.held[number + 1 :])
        self._state = replace(state, held=held, among={})

    def _follow(self) -> None:
        """Bring the state to the latest table version."""
        state, snapshot = self._open(), self._catalog.store.snapshot()
        if snapshot is state.snapshot:
            return
        with self._following:
            snapshot = self._catalog.store.snapshot()
            state = self._open()
            if snapshot is not state.snapshot:
                self._state = self._read(state, snapshot)

    def _read(self, state: CacheState | None, snapshot: Snapshot) -> CacheState:
        """The state of a table version, from that of an earlier one if it can be."""
        registry = self._catalog.recorded(snapshot)
        plan = with_shrinkage(self._catalog, registry, plan_search(registry, self._version, 1, None))
        self._catalog.require(snapshot, *(part.version for part in plan.parts))
        refuse_distance(snapshot.schema.names, self._catalog.store.location)
        earlier = {} if state is None else {rows.reader.kept(): rows for rows in state.held}
        held: list[CachedRows] = []
        for part in plan.parts:
            reader = Reader(part, registry.id_column)
            rows, others = earlier.get(reader.kept()), sum(rows.bytes for rows in held)
            if rows is None:
                size = size_of(reader, snapshot)
                self._require(others, size.total)
                held.append(CachedRows.read(reader, snapshot, size.rows))
            else:
                held.append(rows.following(snapshot, partial(self._require, others)))
        return CacheState(
            snapshot=snapshot,
            version=int(snapshot.version),
            registry=registry,
            plan=plan,
            dim=registry.record(self._version).dim,
            held=tuple(held),
        )

    def _require(self, others: int, more: int) -> None:
        """Refuse to take more memory than was allowed, for some parts and one more."""
        needed = others + more
        if self._max_bytes is not None and needed > self._max_bytes:
            raise InvalidInput(
                f"keep {self._version} in memory",
                expected=f"at most max_bytes={self._max_bytes} ({in_mebibytes(self._max_bytes)})",
                found=f"{needed} ({in_mebibytes(needed)})",
                fix="Give it more memory, or search with Gallery.search.",
            )

    # ---- properties

    @property
    def version(self) -> str:
        """Version whose queries it answers."""
        return self._version

    @property
    def table_version(self) -> int:
        """Table version that it is at."""
        return self._open().version

    @property
    def bytes(self) -> int:
        """Memory that it takes; while a graph is built again, up to twice as much."""
        return self._open().bytes

    @property
    def waiting(self) -> int:
        """Items that are compared one by one, until `sync` puts them into the graph."""
        return sum(len(rows.tail) for rows in self._open().held)

    @property
    def recall(self) -> float:
        """Share of the 10 nearest that searches find, as measured when the graph was built, in [0, 1].

        The queries were items of the gallery.
        """
        return min(rows.graph.recall for rows in self._open().held)

    @property
    def ef_search(self) -> int:
        """Candidates of a search: the fewest that were measured to find enough."""
        return max(rows.graph.breadth for rows in self._open().held)

    def __len__(self) -> int:
        return sum(rows.count for rows in self._open().held)

    def close(self) -> None:
        """Give the memory back; searches are refused from now on."""
        self._state = None

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> CacheState:
        state = self._state
        if state is None:
            operation = f"search the cache of {self._version}"
            raise InvalidInput(
                operation, expected="an open cache", found="a closed one", fix="Make another: Gallery.cache."
            )
        return state

    def _enter(self) -> CacheState:
        """The state that a search answers from, in step with the table; the search must leave `_searching`."""
        if self._catalog.store.snapshot() is not self._open().snapshot:
            self._follow()
        self._searching.enter()
        try:
            return self._open()
        except InvalidInput:
            self._searching.leave()
            raise


class _SharedLock:
    """Held by many that search, or by one alone; who wants it alone comes before those that come later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._holders = self._alone = 0

    def enter(self) -> None:
        with self._lock:
            while self._alone:
                self._changed.wait()
            self._holders += 1

    def leave(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._alone and not self._holders:
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._lock:
            self._alone = 1
            while self._holders:
                self._changed.wait()
        try:
            yield
        finally:
            with self._lock:
                self._alone = 0
                self._changed.notify_all()
