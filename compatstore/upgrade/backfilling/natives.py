"""Native vectors on their way into the table: a batch is durable when it is stored, and in the table after a fold.

There are two write modes (`write_modes.py`). `plan_natives` chooses: columns are rewritten where that writes little, as
no row moves then, and else whatever writes less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Literal

from compatstore.arrays import ArrowArray, Digests, FloatArray, Id
from compatstore.errors import InvalidInput
from compatstore.storage.arrow_values import vector_bytes
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fragments import field_ids, list_fragments
from compatstore.storage.moves import row_bytes, unmovable
from compatstore.storage.snapshot import Snapshot
from compatstore.upgrade.backfilling.write_modes import NativeColumns, NativeRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.indexing import IndexKeeper
from compatstore.upgrade.requests.backfill import Budget, write_mode_of

ChosenMode = Literal["move_rows", "rewrite_columns"]

LITTLE = 3.0  # times the vectors' own bytes
BATCH_ROWS = 1024  # that a backfill stores at once: each commit writes all marks of deleted rows


@dataclass(frozen=True)
class NativesPlan:
    """How the natives of an upgrade will be stored.

    Attributes:
        mode: "move_rows": each batch moves its rows, with the natives in them. "rewrite_columns": natives are staged
            beside the table and folded into the target's columns at the end, and no row moves.
        rows_bytes: What storing them by rows writes, about.
        columns_bytes: What storing them by columns writes, about.
        why: Why this mode, for messages.
    """

    mode: ChosenMode
    rows_bytes: int
    columns_bytes: int
    why: str

    @property
    def bytes(self) -> int:
        """What will be written, about."""
        return self.rows_bytes if self.mode == "move_rows" else self.columns_bytes

    def __str__(self) -> str:
        stored, other, written = "columns", "rows", self.rows_bytes
        if self.mode == "move_rows":
            stored, other, written = "rows", "columns", self.columns_bytes
        against = f", against {_megabytes(written)} by {other}" if written else ""
        return f"stored by {stored} ({self.why}), {_megabytes(self.bytes)}{against}"


def plan_natives(context: UpgradeContext, target: VersionColumns, natives: int) -> NativesPlan:
    """Choose a write mode, and say what each would write; read-only.

    Rows that move leave marks behind them, which slow searches down until the table is compacted. So they move only
    where leaving them writes more than `LITTLE`. In an adopted table they stay unless the user says otherwise: its app
    knows them by their addresses and keeps an index of its own on them.

    Args:
        context: The upgrade; its run says what the user asked for.
        target: Columns of the version that is upgraded to; they need not be in the table yet.
        natives: How many vectors there will be.

    Raises:
        InvalidInput: Rows were asked for, and rows of this table cannot be moved.
    """
    snapshot, setting = context.snapshot, write_mode_of(context.run)
    obstacle = unmovable(snapshot)
    rows = 0 if obstacle else _bytes_by_rows(snapshot, target, natives)
    columns = _bytes_by_columns(snapshot, target, natives)
    if setting == "move_rows" and obstacle:
        raise InvalidInput(
            "store natives by rows",
            expected="a table whose rows can move",
            found=obstacle,
            fix="Rewrite columns instead: Backfill(write_mode='rewrite_columns') (--write-mode rewrite_columns).",
        )
    if setting != "auto":
        return NativesPlan(setting, rows, columns, "as asked")
    if obstacle:
        return NativesPlan("rewrite_columns", rows, columns, obstacle)
    if context.registry.adopted:
        return NativesPlan("rewrite_columns", rows, columns, "the app's rows stay where they are")
    own = natives * vector_bytes(target.dim, target.dtype)
    if columns <= max(rows, LITTLE * own):
        return NativesPlan("rewrite_columns", rows, columns, "no row moves")
    return NativesPlan("move_rows", rows, columns, "it writes less")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"


def _bytes_by_rows(snapshot: Snapshot, target: VersionColumns, natives: int) -> int:
    """A row's width for each, and the marks of deleted rows: four bytes or a bit for each row, whichever is less."""
    field = field_ids(snapshot).get(target.vector)
    hopped = any(field in fragment.fields for fragment in list_fragments(snapshot))
    width = row_bytes(snapshot) + (0 if hopped else target.row_bytes)
    marks = min(4 * natives / 2, snapshot.count_rows() / 8) * -(-natives // BATCH_ROWS)
    return int(natives * width + marks)


def _bytes_by_columns(snapshot: Snapshot, target: VersionColumns, natives: int) -> int:
    """Each vector once beside the table, and the target's columns of all fragments that one of them is expected in."""
    fragments = list_fragments(snapshot)
    others = 1 - natives / max(sum(fragment.rows for fragment in fragments), natives, 1)
    touched = sum(fragment.rows * (1 - others**fragment.rows) for fragment in fragments)
    return int(natives * (4 * target.dim + 8) + touched * target.row_bytes)


@dataclass
class Natives:
    """Stores the native vectors of a run.

    A native whose item was changed after it was made is dropped; one whose item was deleted too. Batches may be stored
    by another thread than the one that folds.

    Args:
        context: The upgrade that they belong to.
    """

    context: UpgradeContext

    def __post_init__(self) -> None:
        self._columns = NativeColumns(self.context)
        self._rows = NativeRows(self.context)
        self._indexes = IndexKeeper(self.context)
        self._lock = Lock()

    def waiting(self) -> ArrowArray:
        """Arrow array of the ids whose natives are durable but not in the table yet."""
        return self._columns.waiting()

    def store(self, ids: Sequence[Id], vectors: FloatArray, input_hash: Digests, side: FloatArray | None = None) -> int:
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
            stored = self._way.store(ids, vectors, input_hash, side)
            self._indexes.stored(stored)
            return stored

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
        return max(self.context.count(), 1)

    @cached_property
    def _way(self) -> NativeRows | NativeColumns:
        """The way of this call. What an earlier one staged is to be folded anyway: then more of it costs little."""
        context, budget = self.context, Budget.of(self.context.run)
        if write_mode_of(context.run) == "auto" and len(self.waiting()):
            return self._columns
        todo = budget.share_left(context.count(), context.count(context.target.native))
        limit = budget.rows_left(context.ledger.load()[0])
        chosen = plan_natives(context, context.target, todo if limit is None else min(todo, limit))
        return self._rows if chosen.mode == "move_rows" else self._columns
