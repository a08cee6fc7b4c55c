"""The two modes of writing native vectors into the table.

`move_rows`: a commit writes the items' rows a second time, with the native vectors in them. That costs a row's width
for each vector, wherever the rows are, and a file of marks for each fragment that they come from. The rows move:
indexes and the app's row addresses lose them.

`rewrite_columns`: the target's columns of every fragment that holds one of the items are rewritten, a few fragments in
one commit. No row moves: an app that owns the table finds its rows, its index and its row addresses as they were. The
items of a backfill are spread over the whole gallery, so that few vectors cost nearly as much as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowBatch, ArrowTable, Digests, FloatArray, Id, RowNumbers
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.columns import NATIVE, VersionValues
from compatstore.storage.compaction import LARGEST_ROWS, SMALL_ROWS
from compatstore.storage.fragments import (
    WAVE_ROWS,
    Fragment,
    commit_columns,
    find_fragment,
    in_waves,
    list_fragments,
    read_physical,
    write_columns,
)
from compatstore.storage.ids import read_rows
from compatstore.storage.indexes import names_on, update_index
from compatstore.storage.moves import Move, commit_move, read_fragments, row_bytes, write_rows
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.staging import NativeBatch
from compatstore.upgrade.context import UpgradeContext

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
    native = VersionValues(
        vectors=vectors,
        valid=np.ones(k, bool),
        origin=np.full(k, NATIVE, object),
        uncertainty=np.full(k, np.nan, np.float32),
        input_hash=natives.input_hash[positions],
        side=side,
        side_valid=side_valid,
    )
    target.put(rows, native)


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

    def store(
        self,
        ids: Sequence[Id],
        vectors: FloatArray,
        input_hash: Digests,
        side: FloatArray | None = None,
        addresses: RowNumbers | None = None,
    ) -> int:
        """Write a batch into the table, in one commit; items that were changed or deleted meanwhile are left out."""
        named = pa.array(list(ids), id_arrow_type(self._registry))
        batch = NativeBatch.of(named, input_hash, vectors, side, addresses)
        self._moved += self._move(batch)
        return len(ids)

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
