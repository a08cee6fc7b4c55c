"""Native vectors on their way into the table: a batch is durable when it is stored, and in the table after a fold.

There are two write modes (`write_modes.py`). `plan_natives` chooses: columns are rewritten where that writes little, as
no row moves then, and else whatever writes less. By columns, and in galleries of many fragments, batches are staged
beside the table first (`Staging`); else a batch's rows move at once. A commit of the gallery costs much more than
an append to that table: by rows a file of marks for each fragment that rows come from, by columns the columns of these
fragments. Searches do not find staged vectors yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Literal

from compatstore import next_step
from compatstore.arrays import ArrowArray, Digests, FloatArray, Id, RowNumbers
from compatstore.errors import InvalidInput, StorageError
from compatstore.storage.columns import VersionColumns
from compatstore.storage.compaction import FEWEST
from compatstore.storage.fragments import field_ids, list_fragments
from compatstore.storage.moves import row_bytes, unmovable
from compatstore.storage.registry import Registry, edit
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.staging import Staging
from compatstore.storage.store import Fence
from compatstore.storage.vector_form import vector_bytes
from compatstore.upgrade.backfilling.write_modes import NativeColumns, NativeRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.indexing import IndexKeeper
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.states import require_open

ChosenMode = Literal["move_rows", "rewrite_columns"]

LITTLE = 3.0  # times the vectors' own bytes
BATCH_ROWS = 1024  # that a backfill stores at once, where the encoder is fast
# A commit writes a file of marks for each fragment that rows come from: with 64 of them in a tenth of a second, 2 % of
# the time that a batch takes at 200 items/s. Staging takes some milliseconds, and the bytes of the vectors once more.
MARKED = 64


@dataclass(frozen=True)
class NativesPlan:
    """Storage of an upgrade's natives.

    Attributes:
        mode: "move_rows": rows are written again, with the natives in them. "rewrite_columns": the target's columns
            are, once at the end, and no row moves.
        natives: Number of native vectors after the backfill.
        rows_bytes: Approximate bytes written when storing by rows.
        columns_bytes: Approximate bytes written when storing by columns.
        why: Why this mode, for messages.
    """

    mode: ChosenMode
    natives: int
    rows_bytes: int
    columns_bytes: int
    why: str

    @property
    def bytes(self) -> int:
        """Bytes that will be written, about."""
        return self.rows_bytes if self.mode == "move_rows" else self.columns_bytes

    def __str__(self) -> str:
        costs = [("columns", self.columns_bytes), ("rows", self.rows_bytes)]
        (stored, written), (other, instead) = reversed(costs) if self.mode == "move_rows" else costs
        against = f", against {instead / 1e6:,.1f} MB by {other}" if instead else ""
        return f"stored by {stored} ({self.why}), {written / 1e6:,.1f} MB{against}"


def plan_natives(context: UpgradeContext, target: VersionColumns, natives: int) -> NativesPlan:
    """Choose a write mode, and estimate the bytes written by each; read-only.

    Rows that move leave marks behind them, which slow searches down until the table is compacted. So they move only
    where leaving them writes more than `LITTLE`. In an adopted table they stay unless the user sets the mode: its app
    may hold their addresses and keeps an index of its own on them.

    Args:
        context: The upgrade; its run has the mode that the user requested.
        target: Columns of the version that is upgraded to; they need not be in the table yet.
        natives: Expected number of vectors.

    Raises:
        InvalidInput: Rows were requested, and rows of this table cannot be moved.
    """
    snapshot, setting = context.snapshot, context.run.write_mode
    obstacle = unmovable(snapshot)
    rows = 0 if obstacle else _bytes_by_rows(snapshot, target, natives)
    columns = _bytes_by_columns(snapshot, target, natives)
    if setting == "move_rows" and obstacle:
        raise InvalidInput(
            "store natives by rows",
            expected="a table whose rows can move",
            found=obstacle,
            fix=f"Rewrite columns instead: {next_step.option('write_mode', 'rewrite_columns', within='Backfill')}.",
        )
    mode: ChosenMode = "rewrite_columns"
    if setting != "auto":
        mode, why = setting, "as requested"
    elif obstacle:
        why = obstacle
    elif context.registry.adopted:
        why = "the app's rows stay where they are"
    elif columns <= max(rows, LITTLE * natives * vector_bytes(target.dim, target.dtype)):
        why = "no row moves"
    else:
        mode, why = "move_rows", "it writes less"
    return NativesPlan(mode, natives, rows, columns, why)


def _bytes_by_rows(snapshot: Snapshot, target: VersionColumns, natives: int) -> int:
    """A row's width for each, and each vector once more where they are staged."""
    field = field_ids(snapshot).get(target.vector)
    hopped = any(field in fragment.fields for fragment in list_fragments(snapshot))
    width = row_bytes(snapshot) + (0 if hopped else target.row_bytes)
    staged = _bytes_staged(target, natives) if _in_waves(snapshot, natives, BATCH_ROWS) else 0
    return int(natives * width) + staged


def _bytes_by_columns(snapshot: Snapshot, target: VersionColumns, natives: int) -> int:
    """Each vector once beside the table, and the target's columns of all fragments that one of them is expected in."""
    fragments = list_fragments(snapshot)
    others = 1 - natives / max(sum(fragment.rows for fragment in fragments), natives, 1)
    touched = sum(fragment.rows * (1 - others**fragment.rows) for fragment in fragments)
    return _bytes_staged(target, natives) + int(touched * target.row_bytes)


def _in_waves(snapshot: Snapshot, natives: int, batch_rows: int) -> bool:
    """True if rows move many batches at a time, and not a batch at a time."""
    return natives >= FEWEST * batch_rows and len(snapshot.get_fragments()) > MARKED


def _bytes_staged(target: VersionColumns, natives: int) -> int:
    return natives * (4 * target.dim + 8)


def staging_of(context: UpgradeContext) -> Staging:
    """The staging of an upgrade's natives."""
    run = context.registry.runs[context.run.target]
    return Staging.of(context.store, context.registry, run.target, run)


@dataclass
class Natives:
    """Stores the native vectors of a run.

    A native whose item was changed after it was made is dropped; one whose item was deleted too. Batches may be stored
    by another thread than the one that folds.

    Args:
        context: The upgrade that they belong to.
        batch_rows: Approximate number of rows of the stored batches.
    """

    context: UpgradeContext
    batch_rows: int = BATCH_ROWS

    def __post_init__(self) -> None:
        self._store, self._fence = self.context.store, self.context.store.fence_of(self.context.run.target)
        self._staged = staging_of(self.context)
        self._columns, self._rows = NativeColumns(self.context), NativeRows(self.context)
        self._indexes = IndexKeeper(self.context)
        self._lock = Lock()

    def waiting(self) -> ArrowArray:
        """Arrow array of the ids whose natives are durable but not in the table yet."""
        return self._staged.read().ids

    def store(
        self,
        ids: Sequence[Id],
        vectors: FloatArray,
        input_hash: Digests,
        side: FloatArray | None = None,
        addresses: RowNumbers | None = None,
    ) -> int:
        """Make a batch durable; all of it or nothing.

        Args:
            ids: n ids.
            vectors: (n, dim) float32.
            input_hash: (n,) uint64, of the rows that the vectors were made from (see `VersionColumns.input_hashes`).
            side: (n, side_dim) float32 of side-information, NaN where an item has none; None for none at all.
            addresses: (n,) int64, row addresses when the rows were read; None if unknown.

        Returns:
            n.

        Raises:
            StorageError: Other writers were faster each time; nothing of the batch is stored.
        """
        with self._lock:
            way = self._rows if self._at_once else self._staged
            stored = way.store(ids, vectors, input_hash, side, addresses)
            self._indexes.stored(stored if self._at_once else 0)
            return stored

    def fold(self) -> int:
        """Fold staged vectors into the table and update its indexes; does nothing if nothing was stored.

        Returns:
            Natives that came into the table since the last fold.
        """
        with self._lock:
            folded = self._fold_staged()
            if folded:
                self._indexes.stored(folded)
            return folded + self._rows.fold()

    @property
    def wave_rows(self) -> int:
        """Number of natives that may wait before a fold: all, if that costs the same for few and many."""
        by_waves = self._by_rows and not self._at_once
        return self._rows.wave_rows if by_waves else max(self.context.count(), 1)

    def _fold_staged(self) -> int:
        """Write all staged natives into the table, and remove them beside it."""
        while True:
            tables = self._staged.tables()
            try:
                staged = self._staged.read()
                if not len(staged.ids):
                    return 0
                folded = self._rows.put(staged) if self._by_rows else self._columns.put(staged)
                if self._fence is not None:
                    self._forget_predecessors(self._fence)
                self._staged.clear()
                return folded
            except StorageError:
                # A manager that lost its lease may just remove files that it staged and had folded by then.
                if self._staged.tables() == tables:
                    raise

    def _forget_predecessors(self, fence: Fence) -> None:
        """From here on nothing counts that a manager stages which lost its lease before, should it wake up."""

        def change(state: Registry) -> Registry:
            return state.with_run(replace(require_open(state, fence.target), lease=fence.number))

        edit(self._store, change)

    @property
    def _by_rows(self) -> bool:
        return self._plan.mode == "move_rows"

    @cached_property
    def _at_once(self) -> bool:
        return self._by_rows and not _in_waves(self.context.snapshot, self._plan.natives, self.batch_rows)

    @cached_property
    def _plan(self) -> NativesPlan:
        """The plan of this call for natives; those that earlier calls staged count, as they are folded with its own."""
        context, budget = self.context, Budget.of(self.context.run)
        todo = budget.share_left(context.count(), context.count(context.target.native))
        limit = budget.rows_left(context.ledger.load()[0])
        todo = todo if limit is None else min(todo, limit)
        return plan_natives(context, context.target, max(todo, len(self._staged)))
