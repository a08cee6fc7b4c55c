"""The hop of one fragment, as a job that any process can do: read, transform, write the file that is to replace.

What is to be done is found in the fragment itself. Nothing is committed here: the driver does that (`hop.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compatstore.arrays import ArrowArray, ArrowBatch, BoolArray
from compatstore.storage.columns import NATIVE, VersionColumns, VersionValues
from compatstore.storage.fragments import (
    Fragment,
    WrittenColumns,
    field_ids,
    find_fragment,
    new_file,
    read_physical,
    write_columns,
)
from compatstore.storage.row_digests import InputHashes
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store, storage_errors
from compatstore.upgrade.engines.engine import Advance
from compatstore.upgrade.transform import Transformer


@dataclass(frozen=True)
class Pending:
    """Rows of a fragment that ask for work.

    Attributes:
        live: Those that are there.
        deleted: Those that are deleted.
    """

    live: int
    deleted: int


@dataclass(frozen=True)
class HopRecipe:
    """What a hop makes of rows, whichever they are; it pickles.

    Args:
        source: Columns that are read.
        target: Columns that are written.
        source_column: Column of the items' sources, part of the input hash, or None.
        transformer: What is applied, or None: then stale vectors are only cleared.
    """

    source: VersionColumns
    target: VersionColumns
    source_column: str | None
    transformer: Transformer | None

    def pending(self, snapshot: Snapshot, fragment: Fragment) -> Pending:
        """Rows of a fragment whose target vector would be made, remade or cleared."""
        live = deleted = 0
        for batch in self._read(snapshot, fragment):
            todo, lives = self._todo(batch), _live(batch)
            live, deleted = live + int((todo & lives).sum()), deleted + int((todo & ~lives).sum())
        return Pending(live, deleted)

    def holds_target(self, snapshot: Snapshot, fragment: Fragment) -> bool:
        """Whether a fragment has the target's columns; what never had them is not read to find out what it lacks."""
        return field_ids(snapshot)[self.target.vector] in fragment.fields

    def would_change(self, snapshot: Snapshot, fragment: Fragment) -> bool:
        """Whether any live row would get, lose or change its vector: not where a transform gives nothing of use."""
        return any(self._would_change(batch) for batch in self._read(snapshot, fragment))

    def rewrite(self, snapshot: Snapshot, fragment: Fragment, advance: Advance) -> Iterator[dict[str, ArrowArray]]:
        """The target's columns of a fragment; batches are transformed while the one before is written.

        Args:
            snapshot: The table version.
            fragment: The fragment.
            advance: Told how many live rows of a batch were made, remade or cleared.
        """
        batches = self._read(snapshot, fragment)
        # In bfloat16 products are so fast that what is done beside them shows: two batches at a time fill each
        # other's gaps, and what is derived takes one core. In float32 the products of one batch keep all cores busy.
        transformer = self.transformer
        at_once = 2 if transformer is not None and (transformer.exact or transformer.precision != "float32") else 1
        for batch, (columns, todo) in ahead(self._remake, batches, at_once):
            yield columns
            advance(int((todo & _live(batch)).sum()))

    def _would_change(self, batch: ArrowBatch) -> bool:
        source, target = self._read_source(batch), self.target.decode(batch)
        todo = self._split(source, target, self._input_hashes(batch, source))[0] & _live(batch)
        if (todo & target.valid).any() or self.transformer is None or not todo.any():
            return bool(todo.any())
        return bool(self.transformer.apply(source.take(todo)).valid.any())

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
        return self._split(source, self.target.decode(batch), self._input_hashes(batch, source))[0]

    def _split(self, source: VersionValues, target: VersionValues, now: InputHashes) -> tuple[BoolArray, BoolArray]:
        """Which rows need work, and which of them can be transformed."""
        stale = target.valid & ~now.fit(target.input_hash, target.origin == NATIVE)
        if self.transformer is None:
            return stale, np.zeros(len(stale), bool)
        corrected = target.valid & (target.origin != NATIVE) & (target.origin != self.transformer.origins(source))
        make = self.transformer.possible(source) & (stale | corrected | ~target.valid)
        return make | stale, make

    def _input_hashes(self, batch: ArrowBatch, source: VersionValues) -> InputHashes:
        return InputHashes.of(source.vectors, source.valid, batch[self.source_column] if self.source_column else None)

    def _remake(self, batch: ArrowBatch) -> tuple[dict[str, ArrowArray], BoolArray]:
        """The target's columns of a batch, and which rows were made, remade or cleared.

        A row of which the transform gives nothing that a search could find is left without a vector.
        """
        source, target = self._read_source(batch), self.target.decode(batch)
        now = self._input_hashes(batch, source)
        todo, make = self._split(source, target, now)
        before = target.valid.copy()
        target.clear(todo)
        if make.any() and self.transformer is not None:
            target.put(make, self.transformer.apply(source.take(make)))
            target.input_hash[make] = now.transformed[make]
        return self.target.encode(target), todo & (before | target.valid)


@dataclass(frozen=True)
class HopJob:
    """One fragment to bring up to date.

    Args:
        fragment: As the driver last saw it.
        pending: Live rows of it that ask for work, where that is known.
        file: Name of the file that is written; each try has one of its own, so that the driver can remove what a lost
            worker left.
    """

    fragment: Fragment
    pending: int | None
    file: str = field(default_factory=new_file)

    @property
    def rows(self) -> int:
        """Physical rows of the fragment."""
        return self.fragment.rows


@dataclass(frozen=True)
class HopOutcome:
    """What a job found and made.

    Attributes:
        fragment: As it was read; None where it is gone.
        written: What waits for its commit, or None where there is nothing to commit.
        pending: Rows that ask for work, where they were counted and nothing was written. It is 0 where the transform
            gives nothing of use for those that do.
        rows: Live rows that were made, remade or cleared.
    """

    fragment: Fragment | None
    written: WrittenColumns | None = None
    pending: Pending | None = None
    rows: int = 0


def hop_fragment(store: Store, recipe: HopRecipe, job: HopJob, advance: Advance) -> HopOutcome:
    """Bring one fragment up to date, all but the commit.

    Args:
        store: The table; its latest version is read.
        recipe: What is made of rows.
        job: Which fragment.
        advance: Told the rows that are done, batch by batch.

    Raises:
        StorageError: The table cannot be read or written.
    """
    with storage_errors(f"hop in {store.location.name}", store.location):
        snapshot = store.snapshot()
        fragment = find_fragment(snapshot, job.fragment.id)
        if fragment is None:
            return HopOutcome(None)
        settled = _settled(snapshot, recipe, job, fragment)
        if settled is not None:
            return HopOutcome(fragment, pending=settled)
        rows = 0

        def count(made: int) -> None:
            nonlocal rows
            rows += made
            advance(made)

        batches = recipe.rewrite(snapshot, fragment, count)
        written = write_columns(store, snapshot, fragment, recipe.target, batches, job.file)
    return HopOutcome(fragment, written, rows=rows)


def _settled(snapshot: Snapshot, recipe: HopRecipe, job: HopJob, fragment: Fragment) -> Pending | None:
    """That nothing is to be done in a fragment, or None where there is."""
    if not recipe.holds_target(snapshot, fragment):
        return Pending(0, 1) if recipe.transformer is None else None
    known = job.pending if fragment == job.fragment else None
    if known is None:
        pending = recipe.pending(snapshot, fragment)
        if not pending.live:
            return pending
    return None if recipe.would_change(snapshot, fragment) else Pending(0, 1)


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
