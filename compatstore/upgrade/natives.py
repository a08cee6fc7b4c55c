"""Natives on their way into the table: each batch durable at once, folded into the target's columns in waves.

A wave is folded fragment by fragment, each in one commit; a native whose item changed meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.encoders import FloatArray
from compatstore.storage.basis import Digests, row_basis
from compatstore.storage.catalog import Catalog, id_arrow_type
from compatstore.storage.columns import NATIVE, VersionColumns, VersionValues
from compatstore.storage.fragments import Fragment, list_fragments, read_physical, replace_columns
from compatstore.storage.registry import Registry, RunRecord
from compatstore.storage.staging import Staging
from compatstore.upgrade.hop import read_source


@dataclass
class Natives:
    """Stores the native vectors of a run.

    Args:
        catalog: The gallery.
        registry: Its state.
        run: The run that they belong to.
    """

    catalog: Catalog
    registry: Registry
    run: RunRecord

    def __post_init__(self) -> None:
        self._source: VersionColumns = self.registry.columns(self.run.source)
        self._target: VersionColumns = self.registry.columns(self.run.target)
        self._staging = Staging(
            self.catalog.store.location, self.run.target, self._target.dim, id_arrow_type(self.registry)
        )

    def waiting(self) -> set[Any]:
        """Ids whose natives are durable but not in the table yet."""
        return set(self._staging.load()[0])

    def store(self, ids: Sequence[Any], vectors: FloatArray, basis: Digests) -> int:
        """Make a batch durable.

        Args:
            ids: n ids.
            vectors: (n, dim) float32.
            basis: (n,) uint64, of the rows that the vectors were made from.

        Returns:
            n.
        """
        self._staging.append(ids, vectors, basis)
        return len(ids)

    def fold(self) -> int:
        """Write all staged vectors into the target's columns, one commit a fragment, and empty the staging."""
        ids, vectors, basis = self._staging.load()
        if not ids:
            return 0
        wave = _Wave(pa.array(ids, id_arrow_type(self.registry)), vectors, basis)
        store = self.catalog.store
        folded = 0
        for fragment_id in [fragment.id for fragment in list_fragments(store.snapshot())]:
            folded += store.retry("fold natives", lambda: self._fold_fragment(fragment_id, wave))  # noqa: B023
        self._staging.clear()
        return folded

    def basis(self, rows: Any) -> Digests:
        """(n,) uint64: what natives of these rows belong to, an Arrow table or batch with source vector and source."""
        source = read_source(self._source, rows)
        sources = rows[self.registry.source_column] if self.registry.source_column else None
        return row_basis(source.vectors, source.valid, sources)

    def _fold_fragment(self, fragment_id: int, wave: _Wave) -> int:
        store = self.catalog.store
        snapshot = store.snapshot()
        fragment = next((f for f in list_fragments(snapshot) if f.id == fragment_id), None)
        if fragment is None or not self._holds_any(snapshot, fragment, wave):
            return 0
        counter = [0]
        replace_columns(store, snapshot, fragment, self._target, self._rewrite(snapshot, fragment, wave, counter))
        return counter[0]

    def _holds_any(self, snapshot: Any, fragment: Fragment, wave: _Wave) -> bool:
        batches = read_physical(snapshot, fragment, [self.registry.id_column])
        return any((wave.positions(batch) >= 0).any() for batch in batches)

    def _rewrite(self, snapshot: Any, fragment: Fragment, wave: _Wave, counter: list[int]) -> Iterator[dict[str, Any]]:
        source_column = [self.registry.source_column] if self.registry.source_column else []
        side = [self._source.side] if self._source.side else []
        columns = [self.registry.id_column, self._source.vector, *side, *source_column, *self._target.names]
        for batch in read_physical(snapshot, fragment, columns):
            target, basis = self._target.decode(batch), self.basis(batch)
            positions = wave.positions(batch)
            rows = np.flatnonzero((positions >= 0) & (wave.basis[positions] == basis))
            if len(rows):
                target.put(rows, _native(wave.vectors[positions[rows]], basis[rows], target, rows))
                counter[0] += len(rows)
            yield self._target.encode(target)


@dataclass(frozen=True)
class _Wave:
    """Staged rows of one fold: Arrow ids, (n, dim) float32, (n,) uint64."""

    ids: Any
    vectors: FloatArray
    basis: Digests

    def positions(self, batch: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where each live row of a batch is in the wave, -1 where it is not: (rows,) int64."""
        found = pc.index_in(batch.column(0), value_set=self.ids).fill_null(-1).to_numpy(zero_copy_only=False)
        live = batch["_rowid"].is_valid().to_numpy(zero_copy_only=False)
        positions: np.ndarray[Any, np.dtype[np.int64]] = np.where(live, found, -1).astype(np.int64)
        return positions


def _native(vectors: FloatArray, basis: Digests, before: VersionValues, rows: Any) -> VersionValues:
    """Values of native vectors; side-information that a hop made stays."""
    n = len(vectors)
    return VersionValues(
        vectors=vectors,
        valid=np.ones(n, bool),
        origin=np.full(n, NATIVE, object),
        uncertainty=np.full(n, np.nan, np.float32),
        basis=basis,
        side=None if before.side is None else before.side[rows],
        side_valid=before.side_valid[rows],
    )
