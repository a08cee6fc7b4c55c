"""What a cache takes in memory, before it is built."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.in_memory.graph import CacheSettings, graph_bytes
from compatstore.search.cached_reading import BESIDE, Reader, id_bytes
from compatstore.search.plan import plan_search
from compatstore.storage.catalog import Catalog
from compatstore.storage.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class CacheSize:
    """What a cache takes in memory.

    Attributes:
        rows: Items.
        vectors: Bytes of the vectors, as float32.
        graph: Bytes of the graph.
        ids: Bytes of the ids.
        beside: Bytes of where the items lie in the table, and of what searches with conditions or doubts need.

    Examples:
        >>> print(cs.CacheSize(rows=1000, vectors=512_000, graph=144_267, ids=16_000, beside=16_000))
        1000 items in 0.7 MiB: vectors 0.5 MiB, graph 0.1 MiB, ids 0.0 MiB, beside 0.0 MiB
    """

    rows: int
    vectors: int
    graph: int
    ids: int
    beside: int

    @property
    def total(self) -> int:
        """Bytes of all of it."""
        return self.vectors + self.graph + self.ids + self.beside

    def __str__(self) -> str:
        parts = ", ".join(
            f"{name} {in_mebibytes(getattr(self, name))}" for name in ("vectors", "graph", "ids", "beside")
        )
        return f"{self.rows} items in {in_mebibytes(self.total)}: {parts}"


def cache_size(catalog: Catalog, version: str, settings: CacheSettings) -> CacheSize:
    """What a cache of a version would take; reads the ids of the items, no vectors.

    Raises:
        NotFound: There is no such version, or nothing to search with its queries.
    """
    snapshot = catalog.store.snapshot()
    registry = catalog.recorded(snapshot)
    plan = plan_search(registry, version, 1, None)
    catalog.require(snapshot, *(part.version for part in plan.parts))
    sizes = [size_of(Reader(part, registry.id_column), snapshot, settings) for part in plan.parts]
    names = ("rows", "vectors", "graph", "ids", "beside")
    return CacheSize(**{name: sum(getattr(size, name) for size in sizes) for name in names})


def size_of(reader: Reader, snapshot: Snapshot, settings: CacheSettings) -> CacheSize:
    """What the rows of one part would take."""
    rows = ids = 0
    for batch in snapshot.to_batches(columns=[reader.id_column], filter=reader.condition):
        rows, ids = rows + batch.num_rows, ids + id_bytes(batch[reader.id_column])
    dim = reader.part.columns.dim
    return CacheSize(
        rows=rows, vectors=4 * dim * rows, graph=graph_bytes(rows, dim, settings), ids=ids, beside=BESIDE * rows
    )


def in_mebibytes(size: int) -> str:
    """Bytes for a message."""
    return f"{size / 2**20:.1f} MiB"
