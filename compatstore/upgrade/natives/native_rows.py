"""Natives by rows: each batch is a commit that writes its items' rows anew, with the native vectors in them.

So a batch is durable and visible at once, and costs a row's width for each native however the natives lie. The rows
move: indexes and the app's row addresses lose them. A gallery's indexes are brought up to date as the rows add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from compatstore.arrays import Digests, FloatArray, RowNumbers
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.columns import VersionColumns
from compatstore.storage.index_deltas import update_index
from compatstore.storage.moves import Move, commit_move, read_rows, write_rows
from compatstore.storage.registry import Registry
from compatstore.storage.store import Store
from compatstore.upgrade.natives.native_batch import NativeBatch, put_natives

# Lance finds moved rows by a scan until its indexes have them; so many make an indexed search half as slow again.
UNINDEXED_ROWS = 5_000


class NativeRows:
    """Moves rows to where their native vectors are.

    Args:
        store: The table.
        registry: Its state.
        source: Version that the upgrade reads.
        target: Version upgraded to.
        unindexed_rows: So many moved rows wait before the indexes take them in.
    """

    def __init__(
        self, store: Store, registry: Registry, source: str, target: str, *, unindexed_rows: int = UNINDEXED_ROWS
    ) -> None:
        self._store = store
        self._registry = registry
        self._source: VersionColumns = registry.columns(source)
        self._target: VersionColumns = registry.columns(target)
        self._unindexed_rows = unindexed_rows
        self._moved = 0
        self._unindexed = 0

    def store(
        self, ids: Sequence[Any], vectors: FloatArray, input_hash: Digests, side: FloatArray | None = None
    ) -> int:
        """Write a batch into the table, in one commit; items that were changed or deleted meanwhile are left out."""
        batch = NativeBatch.of(pa.array(list(ids), id_arrow_type(self._registry)), input_hash, vectors, side)
        moved = self._move(batch)
        self._moved += moved
        self._unindexed += moved
        if self._unindexed >= self._unindexed_rows:
            self._refresh()
        return len(ids)

    def _move(self, batch: NativeBatch) -> int:
        """Move a batch's rows; what was written once is committed again after a lost race, while its rows stay."""
        store = self._store
        move: Move | None = None

        def commit() -> int:
            nonlocal move
            snapshot = store.snapshot()
            if move is None or not commit_move(store, snapshot, move):
                rows = self._rows_of(snapshot, batch)
                if not rows.num_rows:
                    return 0
                move = write_rows(store, snapshot, rows)
                commit_move(store, snapshot, move)
            return move.rows

        moved: int = store.retry("store natives", commit)
        return moved

    def fold(self) -> int:
        """Bring the indexes up to date.

        Returns:
            Rows that were moved since the last fold.
        """
        if self._unindexed:
            self._refresh()
        moved, self._moved = self._moved, 0
        return moved

    def _refresh(self) -> None:
        update_index(self._store)
        self._unindexed = 0

    def _rows_of(self, snapshot: Any, batch: NativeBatch) -> Any:
        """Whole rows of a batch with the native vectors in them, as an Arrow table with their addresses."""
        rows = read_rows(snapshot, self._registry.id_column, batch.ids.to_pylist())
        ids = rows[self._registry.id_column].combine_chunks()
        positions = batch.positions(ids, self._source.input_hashes(rows, self._registry.source_column))
        chosen = np.flatnonzero(positions >= 0)
        return self._with_natives(rows.take(pa.array(chosen)), batch, positions[chosen])

    def _with_natives(self, rows: Any, batch: NativeBatch, positions: RowNumbers) -> Any:
        target = self._target.decode(rows)
        put_natives(target, np.arange(len(positions)), batch, positions)
        for name, array in self._target.encode(target).items():
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), array)
        return rows
