"""Natives on their way into the table: each batch durable when it is stored, in the table at the latest after a fold.

There are two ways, by rows and by columns (`native_rows.py`, `native_columns.py`); `native_ways.py` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

from compatstore.arrays import Digests, FloatArray
from compatstore.storage.catalog import Catalog
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.backfilling.account import ledger_of
from compatstore.upgrade.backfilling.budget import Budget
from compatstore.upgrade.natives.native_columns import NativeColumns
from compatstore.upgrade.natives.native_rows import NativeRows
from compatstore.upgrade.natives.native_ways import plan_natives, require_way


@dataclass
class Natives:
    """Stores the native vectors of a run.

    A native whose item was changed after it was made is dropped; one whose item was deleted too. Batches may be stored
    by another thread than the one that folds.

    Args:
        catalog: The gallery.
        registry: Its state.
        run: The run that they belong to.
    """

    catalog: Catalog
    registry: Registry
    run: RunRecord

    def __post_init__(self) -> None:
        versions = self.catalog.store, self.registry, self.run.source, self.run.target
        self._columns = NativeColumns(*versions)
        self._rows = NativeRows(*versions)
        self._lock = Lock()

    def waiting(self) -> Any:
        """Arrow array of the ids whose natives are durable but not in the table yet."""
        return self._columns.waiting()

    def store(
        self, ids: Sequence[Any], vectors: FloatArray, input_hash: Digests, side: FloatArray | None = None
    ) -> int:
        """Make a batch durable; all of it or nothing.

        Args:
            ids: n ids.
            vectors: (n, dim) float32.
            input_hash: (n,) uint64, of the rows that the vectors were made from (see `VersionColumns.input_hashes`).
            side: (n, side_dim) float32 of side-information, NaN where an item has none; None for none at all.

        Returns:
            n.

        Raises:
            CommitConflict: Other writers were faster each time; nothing of the batch is stored.
        """
        with self._lock:
            return self._way.store(ids, vectors, input_hash, side)

    def fold(self) -> int:
        """Bring what waits into the table, and indexes up to date; does nothing where nothing was stored.

        Returns:
            Natives that came into the table since the last fold.
        """
        with self._lock:
            return self._columns.fold() + self._rows.fold()

    @cached_property
    def wave_rows(self) -> int:
        """How many natives may wait before a fold: all, as by columns it costs the same for few and many."""
        return max(self.catalog.store.count(), 1)

    @cached_property
    def _way(self) -> NativeRows | NativeColumns:
        """The way of this call. What an earlier one staged is to be folded anyway: then more of it costs little."""
        setting = require_way(self.run.natives)
        if setting == "auto" and len(self.waiting()):
            return self._columns
        snapshot, target = self.catalog.store.snapshot(), self.registry.columns(self.run.target)
        budget = Budget.of(self.run)
        todo = budget.share_left(snapshot.count_rows(), snapshot.count_rows(target.native))
        limit = budget.rows_left(ledger_of(self.catalog, self.registry, self.run).load()[0])
        chosen = plan_natives(snapshot, self.registry, target, setting, todo if limit is None else min(todo, limit))
        return self._rows if chosen.way == "rows" else self._columns
