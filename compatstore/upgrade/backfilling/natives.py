"""Native vectors on their way into the table: a batch is durable when it is stored, and in the table after a fold.

There are two write modes. `move_rows`: a commit writes the items' rows a second time, with the native vectors in them.
That costs a row's width for each vector, wherever the rows are, and a file of marks for each fragment that they come
from. The rows move: indexes and the app's row addresses lose them. `rewrite_columns`: the target's columns of every
fragment that holds one of the items are rewritten, a few fragments in one commit. No row moves: an app that owns the
table finds its rows, its index and its row addresses as they were. The items of a backfill are spread over the whole
gallery, so that few vectors cost nearly as much as many.

`plan_natives` chooses: columns are rewritten where that writes little, as no row moves then, and else whatever writes
less. By columns, and in galleries of many fragments, batches are staged beside the table first (`Staging`); else a
batch's rows move at once. A commit of the gallery costs much more than an append to that table. Searches do not find
staged vectors yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Literal

import numpy as np
import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowBatch, ArrowTable, RowNumbers
from compatstore.errors import InvalidInput, StorageError
from compatstore.storage.columns import NATIVE, VersionColumns, VersionValues
from compatstore.storage.compaction import FEWEST, LARGEST_ROWS, SMALL_ROWS
from compatstore.storage.fragments import (
    WAVE_ROWS,
    Fragment,
    commit_columns,
    field_ids,
    find_fragment,
    in_waves,
    list_fragments,
    read_physical,
    write_columns,
)
from compatstore.storage.ids import read_rows
from compatstore.storage.indexes import names_on, update_index
from compatstore.storage.moves import Move, commit_move, read_fragments, row_bytes, unmovable, write_rows
from compatstore.storage.registry import Registry, edit
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.staging import NativeBatch, Staging
from compatstore.storage.store import Fence
from compatstore.storage.vector_form import vector_bytes
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.indexing import IndexKeeper
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.states import require_open

MOST_NATIVES = 1024  # that are read at once for the fragments of a wave
WAVE_BYTES = 1 << 27  # of rows that are moved by one commit, which are in memory at once


def put_natives(target: VersionValues, rows: RowNumbers, natives: NativeBatch, positions: RowNumbers) -> None:
    """Make some rows' vectors native, in place; side-information that a hop made stays where a native brings none.

    Args:
        target: The target's values of a table or batch.
        rows: (k,) rows of it.
        natives: Storage of their vectors.
        positions: (k,) positions in it.
    """
    k = len(rows)
    side, side_valid = None if target.side is None else target.side[rows], target.side_valid[rows]
    vectors, brought = natives.read(positions)
    if brought is not None:
        known = np.asarray(np.isfinite(brought).all(axis=1))
        side = np.where(known[:, None], brought, np.float32(0) if side is None else side)
        side_valid = side_valid | known
    hashes = natives.input_hash[positions]
    target.put(rows, VersionValues.of(vectors, np.ones(k, bool), input_hash=hashes, side=side, side_valid=side_valid))


class NativeRows:
    """Moves rows to where their native vectors are; `IndexKeeper` looks after the indexes meanwhile.

    Args:
        context: The upgrade.
    """

    def __init__(self, context: UpgradeContext) -> None:
        self._store, self._registry = context.store, context.registry
        self._source, self._target = context.source, context.target
        self._moved, self._unindexed = 0, False

    @cached_property
    def wave_rows(self) -> int:
        """Rows of one commit at most: as many as no merge takes along, and as fit into memory."""
        fitting = int(WAVE_BYTES / max(row_bytes(self._store.snapshot()), 1))
        return min(max(fitting, SMALL_ROWS), LARGEST_ROWS // 2)

    def store(self, batch: NativeBatch) -> int:
        """Write n natives into the table, in one commit; those whose item was changed or deleted are left out.

        Returns:
            n.
        """
        self._moved += self._move(batch)
        return len(batch.ids)

    def put(self, natives: NativeBatch) -> int:
        """Write natives into the table, a wave of them in one commit; those that are in it already are left out.

        Returns:
            Rows that were moved.
        """
        moved = 0
        for start in range(0, len(natives.ids), self.wave_rows):
            moved += self._move(natives.slice(start, self.wave_rows), again=True)
        return moved

    def _move(self, batch: NativeBatch, *, again: bool = False) -> int:
        """Move a batch's rows; written files are committed again after a lost race, while the rows stay.

        Args:
            batch: The natives.
            again: Whether some may have been moved before, by a process that was killed then.
        """
        store = self._store
        move: Move | None = None

        def commit() -> int:
            nonlocal move
            snapshot = store.snapshot()
            if move is None or not commit_move(store, snapshot, move):
                rows = self._rows_of(snapshot, batch, again)
                if not rows.num_rows:
                    return 0
                move = write_rows(store, snapshot, rows)
                commit_move(store, snapshot, move)
            return move.rows

        moved: int = store.retry("store natives", commit)
        self._unindexed |= moved > 0
        return moved

    def fold(self) -> int:
        """Bring the indexes up to date.

        Returns:
            Rows of batches that were stored since the last fold.
        """
        if self._unindexed:
            update_index(self._store)
        moved, self._moved, self._unindexed = self._moved, 0, False
        return moved

    def _rows_of(self, snapshot: Snapshot, batch: NativeBatch, again: bool) -> ArrowTable:
        """Whole rows of a batch with the native vectors in them, as an Arrow table with their addresses."""
        rows = read_rows(snapshot, self._registry.id_column, batch.ids.to_pylist(), batch.addresses)
        ids = rows[self._registry.id_column].combine_chunks()
        positions = batch.positions(ids, self._source.input_hashes(rows, self._registry.source_column).native)
        if again:
            there = self._target.decode(rows)
            positions[(there.origin == NATIVE) & (there.input_hash == batch.input_hash[positions])] = -1
        chosen = np.flatnonzero(positions >= 0)
        rows = rows.take(pa.array(chosen))
        target = self._target.decode(rows)
        put_natives(target, np.arange(len(chosen)), batch, positions[chosen])
        for name, array in self._target.encode(target).items():
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), array)
        return rows


class NativeColumns:
    """Writes natives into the target's columns.

    Args:
        context: The upgrade.
    """

    def __init__(self, context: UpgradeContext) -> None:
        self._store, self._registry = context.store, context.registry
        self._source, self._target = context.source, context.target

    def put(self, natives: NativeBatch) -> int:
        """Write natives into the table, a few fragments in one commit.

        Returns:
            Rows that have theirs now.
        """
        folded = 0
        for wave in in_waves(list_fragments(self._store.snapshot()), WAVE_ROWS):
            folded += self._store.retry("fold natives", lambda: self._fold_wave(wave, natives))  # noqa: B023
        update_index(self._store, names_on(self._store, self._target.vector))
        return folded

    def _fold_wave(self, wave: Sequence[Fragment], natives: NativeBatch) -> int:
        """Fold into some fragments, in one commit; 0 when they are gone or hold none of the items."""
        snapshot = self._store.snapshot()
        current = [found for fragment in wave if (found := find_fragment(snapshot, fragment.id)) is not None]
        counts, positions = self._find(snapshot, current, natives)
        if len(positions) <= MOST_NATIVES:  # else batch by batch: one large fragment may have a native for every row
            natives = natives.in_memory(positions)
        written = [
            write_columns(self._store, snapshot, fragment, self._target, self._rewrite(snapshot, fragment, natives))
            for fragment in current
            if counts[fragment.id]
        ]
        if written:
            commit_columns(self._store, written)
        return counts.total()

    def _find(
        self, snapshot: Snapshot, fragments: Sequence[Fragment], natives: NativeBatch
    ) -> tuple[Counter[int], RowNumbers]:
        """Number of rows with a native by the fragment's number, and the positions of these natives."""
        found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        for batch in read_fragments(snapshot, [fragment.id for fragment in fragments], self._keys):
            positions = self._positions(batch, natives)
            there = positions >= 0
            found.append((batch["_rowaddr"].to_numpy()[there].astype(np.int64) >> 32, positions[there]))
        numbers, positions = map(np.concatenate, zip(*found, strict=True))
        return Counter(numbers.tolist()), np.unique(positions)

    def _rewrite(self, snapshot: Snapshot, fragment: Fragment, natives: NativeBatch) -> Iterator[dict[str, ArrowArray]]:
        for batch in read_physical(snapshot, fragment, [*self._keys, *self._target.names]):
            positions = self._positions(batch, natives)
            live = batch["_rowid"].is_valid().to_numpy(zero_copy_only=False)
            rows = np.flatnonzero((positions >= 0) & live)
            target = self._target.decode(batch)
            if len(rows):
                put_natives(target, rows, natives, positions[rows])
            yield self._target.encode(target)

    @property
    def _keys(self) -> list[str]:
        """Columns by which a row finds its native."""
        return [self._registry.id_column, *self._source.hashed_names(self._registry.source_column)]

    def _positions(self, batch: ArrowBatch, natives: NativeBatch) -> RowNumbers:
        return natives.positions(batch.column(0), self._source.input_hashes(batch, self._registry.source_column).native)


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
        fix = f"Rewrite columns instead: {next_step.option('write_mode', 'rewrite_columns', within='Backfill')}."
        raise InvalidInput("store natives by rows", expected="a table whose rows can move", found=obstacle, fix=fix)
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

    def store(self, batch: NativeBatch) -> int:
        """Make n natives durable; all of them or nothing.

        Returns:
            n.

        Raises:
            StorageError: Other writers were faster each time; nothing of the batch is stored.
        """
        with self._lock:
            stored = (self._rows if self._at_once else self._staged).store(batch)
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
