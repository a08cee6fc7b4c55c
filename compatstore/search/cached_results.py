"""Input and output of a cache's search: the rows of one table version, and the Arrow table made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowTable, FloatArray, RowNumbers
from compatstore.evaluation.distances import shrunk_distances
from compatstore.search.cached_rows import Among, CachedRows
from compatstore.search.parts import refused_condition
from compatstore.search.plan import SearchPlan
from compatstore.search.scan import result_columns, whole_columns, with_fields
from compatstore.search.shrinkage import added_by
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import rows_at
from compatstore.storage.moves import addresses
from compatstore.storage.registry import Registry
from compatstore.storage.shrinkage import kept_cosines
from compatstore.storage.snapshot import Snapshot

_COMPUTED = pa.schema([("_distance", pa.float32()), ("_version", pa.string()), ("_origin", pa.string())])
TABLE_VERSION = b"compatstore.table_version"  # metadata of a result: the table version that it holds for
CONDITIONS = 16  # whose rows are remembered while the table stays as it is


@dataclass(frozen=True, eq=False)
class CacheState:
    """Data that a search reads.

    Attributes:
        snapshot: The table version.
        version: Its number.
        registry: The gallery's registry in it.
        plan: The search plan.
        dim: Values of a query.
        held: The rows of each part of the plan.
        among: Condition -> the rows that fulfil it, in each part.
    """

    snapshot: Snapshot
    version: int
    registry: Registry
    plan: SearchPlan
    dim: int
    held: tuple[CachedRows, ...]
    among: dict[str, tuple[Among, ...]] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Memory that the rows take."""
        return sum(rows.bytes for rows in self.held)


class FoundRows(NamedTuple):
    """Results of a search: places of rows, by query.

    Attributes:
        parts: (q, k) int64, the part that each row is of.
        places: (q, k) int64, their places in it.
        distances: (q, k) float32.
    """

    parts: RowNumbers
    places: RowNumbers
    distances: FloatArray

    def take(self, state: CacheState, name: str) -> Any:
        """An array of `Rows`, of the rows that were found: (q, k)."""
        if len(state.held) == 1:
            return getattr(state.held[0].rows, name)[self.places]
        arrays = [getattr(held.rows, name) for held in state.held]
        taken = np.empty(self.places.shape, arrays[0].dtype)
        for number, array in enumerate(arrays):
            chosen = self.parts == number
            taken[chosen] = array[self.places[chosen]]
        return taken


def merge_parts(found: Sequence[tuple[FloatArray, RowNumbers]], plan: SearchPlan, k: int) -> FoundRows:
    """Rank the rows of all parts together, query by query, as `Gallery.search` does."""
    distances = [
        own if part.calibration is None else part.calibration.apply(own.astype(np.float64)).astype(np.float32)
        for part, (own, _) in zip(plan.parts, found, strict=True)
    ]
    by_rank = plan.merge == "reciprocal rank"
    ranked = [np.broadcast_to(np.arange(own.shape[1]), own.shape) if by_rank else own for own in distances]
    order = np.argsort(np.concatenate(ranked, axis=1), axis=1, kind="stable")[:, :k]
    numbers = np.repeat(np.arange(len(found)), [own.shape[1] for own in distances])
    places = np.concatenate([places for _, places in found], axis=1)
    return FoundRows(
        parts=numbers[order],
        places=np.take_along_axis(places, order, axis=1),
        distances=np.take_along_axis(np.concatenate(distances, axis=1), order, axis=1),
    )


def by_shrunk_distance(catalog: Catalog, state: CacheState, found: FoundRows, queries: FloatArray, k: int) -> FoundRows:
    """Rank candidates by their shrunk distances, as `rank_shrunk` does, and keep k of each query."""
    (rows,), places = state.held, found.places
    origins, metric = np.array(rows.reader.names, object)[rows.rows.origins[places]], rows.reader.part.metric
    factors = kept_cosines(catalog, origins.ravel(), rows.rows.sigma2[places].ravel()).reshape(places.shape)
    added = added_by(queries, metric)[:, None]
    distances = (shrunk_distances(found.distances - added, factors, metric) + added).astype(np.float32)
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    nearest = np.take_along_axis(places, order, axis=1)
    return FoundRows(found.parts[:, :k], nearest, np.take_along_axis(distances, order, axis=1))


def rows_among(state: CacheState, condition: str | None) -> tuple[Among, ...]:
    """The rows that a search may return, in each part."""
    if condition is None:
        return tuple(rows.everything for rows in state.held)
    if condition not in state.among:
        with refused_condition(f"search {state.plan.version}", condition):
            wanted = addresses(state.snapshot, condition)
        if len(state.among) >= CONDITIONS:
            state.among.clear()
        state.among[condition] = tuple(rows.at(wanted) for rows in state.held)
    return state.among[condition]


def as_table(state: CacheState, found: FoundRows, columns: Sequence[str] | None) -> ArrowTable:
    """The result of `Gallery.search`: columns and computed ones, the rows of all queries one after the other.

    Raises:
        InvalidInput: The table has no such column.
    """
    schema, id_column, (queries, k) = state.snapshot.schema, state.registry.id_column, found.places.shape
    names = whole_columns(result_columns(state.registry, schema, columns))
    rest = [name for name in names if name != id_column]
    read = rows_at(state.snapshot, found.take(state, "addresses").ravel(), rest) if rest else None
    ids = found.take(state, "ids").ravel().tolist() if id_column in names else []
    arrays = [pa.array(ids, schema.field(n).type) if read is None or n == id_column else read[n] for n in names]
    arrays += [pa.array(found.distances.ravel()), *_names(state, found)]
    fields = [*(pa.field(name, schema.field(name).type) for name in names), *_COMPUTED]
    if queries > 1:
        arrays.append(pa.array(np.repeat(np.arange(queries, dtype=np.int32), k)))
        fields.append(pa.field("_query", pa.int32()))
    metadata = {TABLE_VERSION: str(state.version)}
    return with_fields(pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata)), columns)


def _names(state: CacheState, found: FoundRows) -> tuple[ArrowArray, ArrowArray]:
    """Versions and origins of the n rows that were found: two arrays of n texts."""
    held, parts, codes = state.held, found.parts.ravel(), found.take(state, "origins").ravel()
    versions = _texts([rows.reader.part.version for rows in held], parts)
    starts = np.cumsum([0, *(len(rows.reader.names) for rows in held)])
    return versions, _texts([name for rows in held for name in rows.reader.names], codes + starts[parts])


def _texts(names: Sequence[str], codes: Any) -> ArrowArray:
    if len(codes) and (codes == codes[0]).all():
        return pa.repeat(names[codes[0]], len(codes))
    return pa.array(names, pa.string()).take(pa.array(codes.astype(np.int64)))
