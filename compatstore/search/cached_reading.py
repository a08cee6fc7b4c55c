"""Rows of one part of a search plan, read for a cache, and the memory of a cache before it is built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, BoolArray, Digests, FloatArray, RowNumbers
from compatstore.in_memory.graph import graph_bytes
from compatstore.in_memory.nearest import as_compared
from compatstore.search.execute import query_of_part
from compatstore.search.plan import Part, plan_search
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import ADDRESS
from compatstore.storage.moves import read_fragments
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import VectorForm, to_floats, to_matrix

CachedIds = npt.NDArray[Any]  # (n,) int64 or NumPy's texts of variable length
OriginCodes = npt.NDArray[np.uint16]
# Bytes of a row: address (8), sigma^2 (4), origin (2), validity (1), and a bit that FAISS reads.
BESIDE = 16
_ARRAYS = ("ids", "addresses", "origins", "sigma2")
_TINY = float(np.finfo(np.float32).tiny)
TEXT, INLINE = 16, 15  # bytes of a text in NumPy's array, and the longest that fits into them


@dataclass(frozen=True, eq=False)
class Rows:
    """N rows.

    Attributes:
        ids: (n,) their ids.
        addresses: (n,) uint64, their row addresses in the table.
        origins: (n,) uint16, numbers of their vectors' origins.
        sigma2: (n,) float32, sigma^2 of transformed vectors, NaN of the others.
        id_bytes: Memory of the ids.
    """

    ids: CachedIds
    addresses: Digests
    origins: OriginCodes
    sigma2: FloatArray
    id_bytes: int

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def bytes(self) -> int:
        """Memory that they take."""
        return len(self) * BESIDE + self.id_bytes

    def take(self, rows: BoolArray | RowNumbers) -> Rows:
        """Some of them."""
        arrays = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return Rows(**arrays, id_bytes=self.id_bytes * len(arrays["ids"]) // max(len(self), 1))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Several, one after the other."""
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
        return cls(**arrays, id_bytes=sum(part.id_bytes for part in parts))


@dataclass(frozen=True)
class Reader:
    """Reads the rows of a part: those that its search can return.

    Attributes:
        part: Of the search plan.
        id_column: Column of the ids.
        names: Origins that were met; a row's code is the number of its origin here.
    """

    part: Part
    id_column: str
    names: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """Columns that decide which data are read."""
        part, columns = self.part, self.part.columns
        names = (self.id_column, columns.vector, columns.origin, columns.uncertainty, part.excluded_column)
        return list(dict.fromkeys(name for name in names if name))

    @property
    def condition(self) -> str:
        """SQL condition: the row belongs to the part."""
        return " AND ".join(filter(None, (self.part.columns.present, self.part.condition)))

    def kept(self) -> tuple[Part, str]:
        """Key of the read rows: they serve every plan with an equal key."""
        return replace(self.part, settings=type(self.part.settings)(), calibration=None), self.id_column

    def read(self, snapshot: Snapshot, fragments: Sequence[int]) -> Iterator[tuple[Rows, FloatArray]]:
        """The rows of some fragments that a search can find, and their vectors as compared, a batch at a time."""
        columns, uncertainty = self.part.columns, self.part.columns.uncertainty
        form = VectorForm(columns.dtype, self.part.metric)
        wanted = [name for name in self.columns if name != self.part.excluded_column]
        for batch in read_fragments(snapshot, fragments, wanted, self.condition):
            vectors, valid = to_matrix(batch[columns.vector], columns.dim)
            found = valid & form.searchable(vectors)
            rows = Rows(
                ids=as_ids(batch[self.id_column]),
                addresses=batch[ADDRESS].to_numpy(),
                origins=self._codes(columns.origins(batch)),
                sigma2=to_floats(batch[uncertainty]) if uncertainty else np.full(batch.num_rows, np.nan, np.float32),
                id_bytes=id_bytes(batch[self.id_column]),
            )
            whole, compared = found.all(), as_compared(vectors, self.part.metric)
            yield (rows, compared) if whole else (rows.take(found), compared[found])

    def _codes(self, origins: ArrowArray) -> OriginCodes:
        encoded = origins.dictionary_encode()
        met = encoded.dictionary.to_pylist()
        self.names.extend(name for name in met if name not in self.names)
        codes = np.array([self.names.index(name) for name in met] or [0], np.uint16)
        found: OriginCodes = codes[encoded.indices.to_numpy(zero_copy_only=False)]
        return found


def query_as_compared(catalog: Catalog, reader: Reader, queries: FloatArray) -> FloatArray:
    """The queries as a part's vectors are compared with them.

    Args:
        catalog: The gallery.
        reader: Of the part.
        queries: (q, dim) float32 in the plan's version.

    Returns:
        (q, dim) float32: adapted, rounded as the column is, of unit length under cosine.

    Raises:
        InvalidInput: A query holds NaN or infinite values, or an artifact makes them of it. A query has length 0, under
            cosine.
    """
    part = reader.part
    if part.artifact is None and part.columns.dtype == "float32":
        if len(queries) == 1:  # NumPy's way for many takes longer, and warns if squares overflow
            fit = bool(_TINY < np.vdot(queries, queries) < np.inf)
        else:
            squares = np.einsum("qd,qd->q", queries, queries)
            fit = bool(((squares > _TINY) & (squares < np.inf)).all())
        if fit:  # nothing that `query_of_part` would refuse or change
            return as_compared(queries, part.metric)
    form = query_of_part(catalog, part, queries)[:, : part.columns.dim]
    return as_compared(VectorForm(part.columns.dtype, part.metric).stored(form), part.metric)


def as_ids(column: ArrowArray) -> CachedIds:
    """Ids of items as a NumPy array: int64, or texts of variable length."""
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_integer(column.type):
        return np.array(column.to_pylist(), object)
    return np.array(column.to_pylist(), np.dtypes.StringDType(na_object=None))


def id_bytes(column: ArrowArray) -> int:
    """Memory that the ids of a column will take, as `as_ids` gives them."""
    if pa.types.is_integer(column.type):
        return 8 * len(column)
    lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return int(TEXT * len(column) + lengths[lengths > INLINE].sum())


@dataclass(frozen=True, kw_only=True)
class CacheSize:
    """The memory of a cache.

    Attributes:
        rows: Items.
        vectors: Bytes of the vectors, as float32.
        graph: Bytes of the graph.
        ids: Bytes of the ids.
        beside: Bytes of row addresses, and of data for searches with conditions or shrinkage.

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


def cache_size(catalog: Catalog, version: str) -> CacheSize:
    """The memory that a cache of a version needs; reads the ids of the items, no vectors.

    Raises:
        NotFound: There is no such version, or nothing to search with its queries.
    """
    snapshot = catalog.store.snapshot()
    registry = catalog.recorded(snapshot)
    plan = plan_search(registry, version, 1, None)
    catalog.require(snapshot, *(part.version for part in plan.parts))
    sizes = [size_of(Reader(part, registry.id_column), snapshot) for part in plan.parts]
    names = ("rows", "vectors", "graph", "ids", "beside")
    return CacheSize(**{name: sum(getattr(size, name) for size in sizes) for name in names})


def size_of(reader: Reader, snapshot: Snapshot) -> CacheSize:
    """The memory that the rows of one part need."""
    rows = ids = 0
    for batch in snapshot.to_batches(columns=[reader.id_column], filter=reader.condition):
        rows, ids = rows + batch.num_rows, ids + id_bytes(batch[reader.id_column])
    dim = reader.part.columns.dim
    return CacheSize(rows=rows, vectors=4 * dim * rows, graph=graph_bytes(rows), ids=ids, beside=BESIDE * rows)


def in_mebibytes(size: int) -> str:
    """Bytes for a message."""
    return f"{size / 2**20:.1f} MiB"
