"""Natives by columns: durable in a table beside the gallery, and folded into the target's columns all at once.

A fold rewrites the target's columns of every fragment that holds one of the natives, a few in one commit, and leaves
every row where it is: an app that owns the table finds its rows, its index and its row addresses as they were. Natives
lie all over a gallery, so a fold costs nearly the whole column however few they are; that is paid once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from compatstore.arrays import Digests, FloatArray
from compatstore.errors import StorageError
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fence import Fence
from compatstore.storage.fragments import (
    Fragment,
    commit_columns,
    find_fragment,
    in_waves,
    list_fragments,
    read_physical,
    write_columns,
)
from compatstore.storage.index_deltas import names_on, update_index
from compatstore.storage.registry import Registry, edit
from compatstore.storage.staging import Staged, Staging
from compatstore.storage.store import Store
from compatstore.upgrade.hop import WAVE_ROWS
from compatstore.upgrade.natives.native_batch import NativeBatch, put_natives
from compatstore.upgrade.states import require_open


class NativeColumns:
    """Stages natives and folds them into the target's columns.

    Args:
        store: The table.
        registry: Its state.
        source: Version that the upgrade reads.
        target: Version upgraded to.
    """

    def __init__(self, store: Store, registry: Registry, source: str, target: str) -> None:
        self._store = store
        self._registry = registry
        self._source: VersionColumns = registry.columns(source)
        self._target: VersionColumns = registry.columns(target)
        side_dim = self._target.side_dim
        self._fence, since = store.fence_of(target), registry.runs[target].lease
        ids = id_arrow_type(registry)
        self._staging = Staging(store.location, target, self._target.dim, ids, side_dim, self._fence, since)

    def waiting(self) -> Any:
        """Arrow array of the ids whose natives are staged."""
        return self._staging.read().ids

    def store(
        self, ids: Sequence[Any], vectors: FloatArray, input_hash: Digests, side: FloatArray | None = None
    ) -> int:
        """Stage a batch; durable when it returns."""
        self._staging.append(ids, vectors, input_hash, side)
        return len(ids)

    def fold(self) -> int:
        """Write all staged vectors into the target's columns, a few fragments a commit, and empty the staging."""
        while True:
            tables = self._staging.tables()
            try:
                return self._fold(self._staging.read())
            except StorageError:
                # A manager that lost its lease may just remove what it staged and had folded by then.
                if self._staging.tables() == tables:
                    raise

    def _fold(self, staged: Staged) -> int:
        if not len(staged.ids):
            return 0
        natives = NativeBatch(staged.ids, staged.input_hash, staged.vectors, staged.side)
        folded = 0
        for wave in in_waves(list_fragments(self._store.snapshot()), WAVE_ROWS):
            folded += self._store.retry("fold natives", lambda: self._fold_wave(wave, natives))  # noqa: B023
        if self._fence is not None:
            self._forget_predecessors(self._fence)
        self._staging.clear()
        update_index(self._store, names_on(self._store, self._target.vector))
        return folded

    def _forget_predecessors(self, fence: Fence) -> None:
        """From here on nothing counts that a manager stages which lost its lease before, should it wake up."""

        def change(state: Registry) -> Registry:
            return state.with_run(replace(require_open(state, fence.target), lease=fence.number))

        edit(self._store, change)

    def _fold_wave(self, wave: Sequence[Fragment], natives: NativeBatch) -> int:
        """Fold into some fragments, in one commit; 0 when they are gone or hold none of the items."""
        snapshot = self._store.snapshot()
        current = [find_fragment(snapshot, fragment.id) for fragment in wave]
        counts = [(fragment, self._count(snapshot, fragment, natives)) for fragment in current if fragment is not None]
        written = [
            write_columns(self._store, snapshot, fragment, self._target, self._rewrite(snapshot, fragment, natives))
            for fragment, count in counts
            if count
        ]
        if written:
            commit_columns(self._store, snapshot, written)
        return sum(count for _, count in counts)

    def _count(self, snapshot: Any, fragment: Fragment, natives: NativeBatch) -> int:
        return sum(len(rows) for _, _, rows in self._read(snapshot, fragment, natives, []))

    def _rewrite(self, snapshot: Any, fragment: Fragment, natives: NativeBatch) -> Iterator[dict[str, Any]]:
        for batch, positions, rows in self._read(snapshot, fragment, natives, self._target.names):
            target = self._target.decode(batch)
            if len(rows):
                put_natives(target, rows, natives, positions[rows])
            yield self._target.encode(target)

    def _read(self, snapshot: Any, fragment: Fragment, natives: NativeBatch, more: list[str]) -> Iterator[Any]:
        """Each batch of a fragment, where its natives are, and which rows have one."""
        sources = self._registry.source_column
        columns = [self._registry.id_column, *self._source.hashed_names(sources), *more]
        for batch in read_physical(snapshot, fragment, columns):
            positions = natives.positions(batch.column(0), self._source.input_hashes(batch, sources))
            live = batch["_rowid"].is_valid().to_numpy(zero_copy_only=False)
            yield batch, positions, np.flatnonzero((positions >= 0) & live)
