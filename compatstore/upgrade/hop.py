"""The hop: apply a forward transform to every item whose target vector is missing, stale or made by another transform.

A first hop and the catch-up of rows that came or changed meanwhile are the same thing: what has to be done is read
from the table, fragment by fragment, and each fragment is one commit (of small ones, a few). So a killed hop goes on
where it was, and a finished one does nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from compatstore.arrays import ArrowArray, ArrowBatch, BoolArray, Digests
from compatstore.storage.columns import NATIVE, VersionColumns, VersionValues
from compatstore.storage.fragment_counts import FragmentCounts
from compatstore.storage.fragments import (
    Fragment,
    WrittenColumns,
    commit_columns,
    field_ids,
    find_fragment,
    in_waves,
    list_fragments,
    read_physical,
    write_columns,
)
from compatstore.storage.row_digests import input_hashes
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.transform import Transformer

# An app that adds item by item makes a fragment each time; one commit for each of them would not keep up with it.
WAVE_ROWS = 1024


@dataclass
class Hop:
    """Brings the target's columns up to date with the source's.

    Args:
        store: The table.
        source: Columns that are read.
        target: Columns that are written.
        source_column: Column of the items' sources, part of the input hash, or None.
        transformer: What is applied, or None: then stale vectors are only cleared.
        counts: What is known of fragments that did not change since they were looked at.
    """

    store: Store
    source: VersionColumns
    target: VersionColumns
    source_column: str | None
    transformer: Transformer | None
    counts: FragmentCounts

    @classmethod
    def of(cls, context: UpgradeContext, transformer: Transformer | None) -> Hop:
        """The hop of an upgrade whose versions both have columns."""
        counts, sources = context.counts, context.registry.source_column
        assert counts is not None
        return cls(context.store, context.source, context.target, sources, transformer, counts)

    def run(self, monitor: Monitor) -> int:
        """Go over all fragments once.

        Returns:
            Rows whose target vector was made, remade or cleared.

        Raises:
            Interrupted: A stop was asked for; finished fragments stay.
        """
        changed = 0
        dirty = [fragment for fragment in list_fragments(self.store.snapshot()) if not self._is_clean(fragment)]
        for wave in in_waves(dirty, WAVE_ROWS):
            monitor.check()
            changed += self.store.retry("hop", lambda: self._refresh(wave, monitor))  # noqa: B023
        return changed

    def pending(self, snapshot: Snapshot) -> int:
        """Live rows of a table version whose target vector would be made, remade or cleared; read-only."""
        return sum(self._count(snapshot, fragment) for fragment in list_fragments(snapshot))

    def _count(self, snapshot: Snapshot, fragment: Fragment) -> int:
        """Live rows of a fragment that need work."""
        known = self.counts.known(self._question, fragment)
        if known is not None:
            return known
        live = deleted = 0
        for batch in self._read(snapshot, fragment):
            todo, lives = self._todo(batch), _live(batch)
            live, deleted = live + int((todo & lives).sum()), deleted + int((todo & ~lives).sum())
        self.counts.note(self._question, fragment, live, whatever_is_deleted=not live and not deleted)
        return live

    @property
    def _question(self) -> str:
        """What is counted: rows that need this very transform."""
        return "hop" if self.transformer is None else f"hop by {self.transformer.origin}"

    def _refresh(self, wave: list[Fragment], monitor: Monitor) -> int:
        """Bring some fragments up to date in one commit; 0 when they are gone or have nothing to do."""
        snapshot = self.store.snapshot()
        current = [find_fragment(snapshot, fragment.id) for fragment in wave]
        dirty = [fragment for fragment in current if fragment is not None and self._is_dirty(snapshot, fragment)]
        if not dirty:
            return 0
        before = monitor.done
        written = [
            write_columns(self.store, snapshot, fragment, self.target, self._rewrite(snapshot, fragment, monitor))
            for fragment in dirty
        ]
        commit_columns(self.store, snapshot, written)
        self._remember(written)
        return monitor.done - before

    def _is_clean(self, fragment: Fragment) -> bool:
        return self.counts.known(self._question, fragment) == 0

    def _is_dirty(self, snapshot: Snapshot, fragment: Fragment) -> bool:
        """Whether any live row needs work; a fragment that never had the target's columns is not read to find out."""
        if not self._holds_target(snapshot, fragment):
            return self.transformer is not None
        if not self._count(snapshot, fragment):
            return False
        if any(self._would_change(batch) for batch in self._read(snapshot, fragment)):
            return True
        self.counts.note(self._question, fragment, 0)
        return False

    def _would_change(self, batch: ArrowBatch) -> bool:
        """Whether any live row would get, lose or change its vector: not where a transform gives nothing of use."""
        source, target = self._read_source(batch), self.target.decode(batch)
        todo = self._split(source, target, self._input_hash(batch, source))[0] & _live(batch)
        if (todo & target.valid).any() or self.transformer is None or not todo.any():
            return bool(todo.any())
        return bool(self.transformer.apply(source.take(todo)).valid.any())

    def _remember(self, written: list[WrittenColumns]) -> None:
        """Note which fragments need not be read again: no other writer changed them, and deleted rows are done too."""
        snapshot = self.store.snapshot()
        for columns in written:
            now = find_fragment(snapshot, columns.fragment.id)
            if now is not None and now.only_gained(columns.fragment, columns.name):
                self.counts.note(self._question, now, 0, whatever_is_deleted=True)

    def _holds_target(self, snapshot: Snapshot, fragment: Fragment) -> bool:
        return field_ids(snapshot)[self.target.vector] in fragment.fields

    def _read(self, snapshot: Snapshot, fragment: Fragment) -> Iterator[ArrowBatch]:
        return read_physical(snapshot, fragment, self._columns)

    @property
    def _columns(self) -> list[str]:
        extra = [self.source_column] if self.source_column else []
        origins = [self.source.origin] if self.source.origin and self._carries_origins else []
        return [*self.source.item_names, *origins, *extra, *self.target.names]

    @property
    def _carries_origins(self) -> bool:
        """Whether what made a source vector says what made the target's."""
        return self.transformer is not None and self.transformer.exact

    def _read_source(self, batch: ArrowBatch) -> VersionValues:
        return self.source.read_items(batch, origins=self._carries_origins)

    def _todo(self, batch: ArrowBatch) -> BoolArray:
        """Rows whose target vector must be made, remade or cleared."""
        source = self._read_source(batch)
        return self._split(source, self.target.decode(batch), self._input_hash(batch, source))[0]

    def _split(self, source: VersionValues, target: VersionValues, input_hash: Digests) -> tuple[BoolArray, BoolArray]:
        """Which rows need work, and which of them can be transformed."""
        stale = target.valid & (target.input_hash != input_hash)
        if self.transformer is None:
            return stale, np.zeros(len(stale), bool)
        corrected = target.valid & (target.origin != NATIVE) & (target.origin != self.transformer.origins(source))
        make = self.transformer.possible(source) & (stale | corrected | ~target.valid)
        return make | stale, make

    def _input_hash(self, batch: ArrowBatch, source: VersionValues) -> Digests:
        return input_hashes(source.vectors, source.valid, batch[self.source_column] if self.source_column else None)

    def _rewrite(self, snapshot: Snapshot, fragment: Fragment, monitor: Monitor) -> Iterator[dict[str, ArrowArray]]:
        """The target's columns of a fragment; batches are transformed while the one before is written."""
        batches = self._read(snapshot, fragment)
        # In bfloat16 products are so fast that what is done beside them shows: two batches at a time fill each other's
        # gaps, and what is derived takes one core. In float32 the products of one batch keep all cores busy.
        transformer = self.transformer
        at_once = 2 if transformer is not None and (transformer.exact or transformer.precision == "bfloat16") else 1
        for batch, (columns, todo) in ahead(self._remake, batches, at_once):
            yield columns
            monitor.advance(int((todo & _live(batch)).sum()))

    def _remake(self, batch: ArrowBatch) -> tuple[dict[str, ArrowArray], BoolArray]:
        """The target's columns of a batch, and which rows were made, remade or cleared.

        A row of which the transform gives nothing that a search could find is left without a vector.
        """
        source, target = self._read_source(batch), self.target.decode(batch)
        input_hash = self._input_hash(batch, source)
        todo, make = self._split(source, target, input_hash)
        before = target.valid.copy()
        target.clear(todo)
        if make.any() and self.transformer is not None:
            target.put(make, self.transformer.apply(source.take(make)))
            target.input_hash[make] = input_hash[make]
        return self.target.encode(target), todo & (before | target.valid)


def ahead(function: Callable[[Any], Any], items: Iterable[Any], at_once: int = 1) -> Iterator[tuple[Any, Any]]:
    """Give each item with its result, in order, computed in other threads while the caller is busy with the one before.

    Args:
        function: What to compute.
        items: Of what; they are taken one after the other, as threads become free.
        at_once: Threads.
    """
    with ThreadPoolExecutor(at_once) as workers:
        waiting: deque[tuple[Any, Future[Any]]] = deque()
        for item in items:
            waiting.append((item, workers.submit(function, item)))
            if len(waiting) > at_once:
                first, made = waiting.popleft()
                yield first, made.result()
        for first, made in waiting:
            yield first, made.result()


def _live(batch: ArrowBatch) -> BoolArray:
    """Rows that are not deleted: (n,) bool."""
    live: BoolArray = batch["_rowid"].is_valid().to_numpy(zero_copy_only=False)
    return live
