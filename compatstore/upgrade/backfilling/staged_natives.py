"""Natives that are durable in a table beside the gallery, and come into the gallery many at once, by a fold.

A commit of the gallery costs much more than an append to that table: by rows a file of marks for each fragment that
rows come from, by columns the columns of these fragments. What is staged is not found by searches yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compatstore.arrays import ArrowArray, Digests, FloatArray, Id, RowNumbers
from compatstore.errors import StorageError
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.lease_files import Fence
from compatstore.storage.registry import Registry, edit
from compatstore.storage.staging import Staging
from compatstore.upgrade.backfilling.write_modes import NativeBatch
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.states import require_open


class StagedNatives:
    """The staged natives of an upgrade.

    Args:
        context: The upgrade.
    """

    def __init__(self, context: UpgradeContext) -> None:
        run, columns, self._store = context.run, context.target, context.store
        self._fence = self._store.fence_of(run.target)
        ids, since = id_arrow_type(context.registry), context.registry.runs[run.target].lease
        location = self._store.location
        self._staging = Staging(location, run.target, columns.dim, ids, columns.side_dim, self._fence, since)

    def read(self) -> NativeBatch:
        """All of them; their vectors when they are asked for."""
        staged = self._staging.read()
        return NativeBatch(staged.ids, staged.input_hash, staged.read, staged.addresses)

    def waiting(self) -> ArrowArray:
        """Arrow array of the ids whose natives are staged."""
        return self.read().ids

    def __len__(self) -> int:
        """How many are staged; they are counted, not read."""
        return len(self._staging)

    def store(
        self,
        ids: Sequence[Id],
        vectors: FloatArray,
        input_hash: Digests,
        side: FloatArray | None = None,
        addresses: RowNumbers | None = None,
    ) -> int:
        """Stage a batch; durable when it returns."""
        self._staging.append(ids, vectors, input_hash, side, addresses)
        return len(ids)

    def fold(self, put: Callable[[NativeBatch], int]) -> int:
        """Write all of them into the table, and remove them here.

        Args:
            put: Writes natives into the table, and returns how many came into it.
        """
        while True:
            tables = self._staging.tables()
            try:
                return self._fold(put)
            except StorageError:
                # A manager that lost its lease may just remove what it staged and had folded by then.
                if self._staging.tables() == tables:
                    raise

    def _fold(self, put: Callable[[NativeBatch], int]) -> int:
        staged = self.read()
        if not len(staged.ids):
            return 0
        folded = put(staged)
        if self._fence is not None:
            self._forget_predecessors(self._fence)
        self._staging.clear()
        return folded

    def _forget_predecessors(self, fence: Fence) -> None:
        """From here on nothing counts that a manager stages which lost its lease before, should it wake up."""

        def change(state: Registry) -> Registry:
            return state.with_run(replace(require_open(state, fence.target), lease=fence.number))

        edit(self._store, change)
