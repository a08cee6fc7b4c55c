"""Expand and hop: the target's empty columns are added, and filled by a forward transform of the source's vectors.

A first hop and the catch-up of new or changed rows are the same operation: the pending rows are read
from the table, fragment by fragment, as a job that any process can do: read, transform, write the file that is to
replace. Nothing is committed there: the driver does that, as fragments come back from the engine. So a killed hop goes
on where it was, and a finished one does nothing.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowBatch, BoolArray
from compatstore.errors import Interrupted
from compatstore.storage.columns import NATIVE, InputHashes, VersionColumns, VersionValues, widths
from compatstore.storage.failures import lost_to_others
from compatstore.storage.fragments import (
    Fragment,
    WrittenColumns,
    commit_columns,
    discard,
    field_ids,
    find_fragment,
    list_fragments,
    new_file,
    only_lost_rows,
    read_physical,
    write_columns,
)
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import ATTEMPTS, Conflict, Store, storage_errors
from compatstore.upgrade.context import FragmentCounts, UpgradeContext
from compatstore.upgrade.engines.engine import LOSSES, Advance, Engine, lost_again_and_again
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.states import HOP, set_run
from compatstore.upgrade.transform import Transformer


@dataclass(frozen=True)
class Pending:
    """Rows of a fragment that need work.

    Attributes:
        live: Those that are there.
        deleted: Those that are deleted.
    """

    live: int
    deleted: int


@dataclass(frozen=True)
class HopRecipe:
    """Transformation of rows, independent of the fragment; it pickles.

    Args:
        source: Columns that are read.
        target: Columns that are written.
        source_column: Column of the items' sources, part of the input hash, or None.
        transformer: Transform to apply, or None: then stale vectors are only cleared.
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

    def would_change(self, snapshot: Snapshot, fragment: Fragment) -> bool:
        """True if any live row would get, lose or change its vector; false if a transform gives nothing of use."""
        return any(self._would_change(batch) for batch in self._read(snapshot, fragment))

    def rewrite(self, snapshot: Snapshot, fragment: Fragment, advance: Advance) -> Iterator[dict[str, ArrowArray]]:
        """The target's columns of a fragment; batches are transformed while the one before is written.

        Args:
            snapshot: The table version.
            fragment: The fragment.
            advance: Called with the number of live rows of a batch that were made, remade or cleared.
        """
        # Two batches fill each other's gaps: digests and encoding take one core, and the last products of a batch too.
        for batch, (columns, todo) in ahead(self._remake, self._read(snapshot, fragment), 2):
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
        """True if the origin of a source vector determines the origin of the target's."""
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
        fragment: State in which the driver last read it.
        pending: Its live rows that need work, if known.
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
    """Findings and results of a job.

    Attributes:
        fragment: State in which it was read; None if it is gone.
        written: Files that wait for their commit, or None if there is nothing to commit.
        pending: Rows that need work, if they were counted and nothing was written. It is 0 if the transform
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
        recipe: Transformation of the rows.
        job: The fragment.
        advance: Called with the completed rows, batch by batch.

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
    """Result for a fragment without pending work; None if there is some."""
    # A fragment that never had the target's columns need not be read.
    if field_ids(snapshot)[recipe.target.vector] not in fragment.fields:
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
        function: Function to apply.
        items: Its arguments, taken in order as threads become free.
        at_once: Number of threads.
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


@dataclass
class Hop:
    """Brings the target's columns up to date with the source's.

    Args:
        store: The table.
        recipe: Transformation of the rows.
        counts: Known counts of fragments that did not change since they were read.
        engine: Engine that transforms the fragments.
    """

    store: Store
    recipe: HopRecipe
    counts: FragmentCounts
    engine: Engine = field(default_factory=Engine)

    @classmethod
    def of(cls, context: UpgradeContext, transformer: Transformer | None, engine: Engine | None = None) -> Hop:
        """The hop of an upgrade whose versions both have columns."""
        counts, sources = context.counts, context.registry.source_column
        assert counts is not None
        recipe = HopRecipe(context.source, context.target, sources, transformer)
        return cls(context.store, recipe, counts, engine or Engine())

    def run(self, monitor: Monitor) -> int:
        """Go over all fragments once.

        Returns:
            Rows whose target vector was made, remade or cleared.

        Raises:
            Interrupted: A stop was requested; finished fragments stay.
            StorageError: Other writers were faster on each try; fragments that were committed before stay.
            UpgradeError: The jobs of a fragment lost their workers again and again; the same holds.
        """
        return _Pass(self, monitor).run()

    def pending(self, snapshot: Snapshot) -> int:
        """Live rows of a table version whose target vector would be made, remade or cleared; read-only."""
        return sum(self._count(snapshot, fragment) for fragment in list_fragments(snapshot))

    def _count(self, snapshot: Snapshot, fragment: Fragment) -> int:
        """Live rows of a fragment that need work."""
        known = self.known(fragment)
        if known is not None:
            return known
        pending = self.recipe.pending(snapshot, fragment)
        whatever_is_deleted = not pending.live and not pending.deleted
        self.counts.note(self._question, fragment, pending.live, whatever_is_deleted=whatever_is_deleted)
        return pending.live

    @property
    def _question(self) -> str:
        """Condition of the counts: rows that need this very transform."""
        transformer = self.recipe.transformer
        return "hop" if transformer is None else f"hop by {transformer.origin}"

    def known(self, fragment: Fragment) -> int | None:
        """Live rows of a fragment that need work, or None if that is not known."""
        return self.counts.known(self._question, fragment)

    def note_settled(self, outcome: HopOutcome) -> None:
        """Note that a fragment has nothing to do as it was read."""
        if outcome.fragment is not None and outcome.pending is not None:
            none_at_all = not outcome.pending.deleted
            self.counts.note(self._question, outcome.fragment, 0, whatever_is_deleted=none_at_all)

    def note_committed(self, written: Sequence[WrittenColumns]) -> None:
        """Note which fragments need not be read again: no other writer changed them, and deleted rows are done too."""
        snapshot = self.store.snapshot()
        for columns in written:
            now = find_fragment(snapshot, columns.fragment.id)
            if now is not None and now.only_gained(columns.fragment, columns.name):
                self.counts.note(self._question, now, 0, whatever_is_deleted=True)


class _Pass:
    """One pass over all fragments: hands out jobs, commits their results, and hands out lost jobs again."""

    def __init__(self, hop: Hop, monitor: Monitor) -> None:
        self._hop, self._monitor, self._store = hop, monitor, hop.store
        self._jobs: deque[HopJob] = deque()
        self._conflicts, self._losses = Counter[int](), Counter[int]()
        self._files = set[str]()  # that no table version names, should they be there
        self._stop: Interrupted | None = None

    def run(self) -> int:
        changed = 0
        for fragment in list_fragments(self._store.snapshot()):
            if self._hop.known(fragment) != 0:
                self._hand_out(fragment)
        self._look_for_a_stop()
        hop = self._hop
        try:
            for made in hop.engine.run(hop_fragment, self._store, hop.recipe, self._jobs, self._monitor.advance):
                changed += self._enter(made)
                self._look_for_a_stop()
        finally:
            discard(self._store, self._files - {job.file for job in self._jobs})
        if self._stop is not None:
            raise self._stop
        return changed

    def _hand_out(self, fragment: Fragment) -> None:
        job = HopJob(fragment, self._hop.known(fragment))
        self._files.add(job.file)
        self._jobs.append(job)

    def _look_for_a_stop(self) -> None:
        """Hand out nothing more once a stop is requested; jobs under way are finished."""
        if not self._jobs:
            return
        try:
            self._monitor.check()
        except Interrupted as stop:
            self._stop = stop
            self._files -= {job.file for job in self._jobs}
            self._jobs.clear()

    def _enter(self, made: Sequence[tuple[HopJob, HopOutcome | None]]) -> int:
        """Commit the results, all in one commit; returns the rows that were made, remade or cleared."""
        outcomes = dict[int, HopOutcome]()
        for job, outcome in made:
            if outcome is None:
                self._lose(job)
                continue
            self._files.discard(job.file)
            self._hop.note_settled(outcome)
            if outcome.written is not None:
                outcomes[job.fragment.id] = outcome
        committed = self._commit([outcome.written for outcome in outcomes.values() if outcome.written is not None])
        return sum(outcomes[columns.fragment.id].rows for columns in committed)

    def _commit(self, written: Sequence[WrittenColumns]) -> Sequence[WrittenColumns]:
        """Commit results that still fit their fragments, and hand out again the fragments that others changed."""
        if not written:
            return ()
        try:
            with storage_errors(f"hop in {self._store.location.name}", self._store.location):
                commit_columns(self._store, written)
        except Conflict:
            snapshot = self._store.snapshot()
            fits = [columns for columns in written if only_lost_rows(snapshot, columns.fragment)]
            fits = fits if len(fits) < len(written) else []  # all fit, and other writers won nevertheless
            for columns in written:
                if columns not in fits:
                    self._repeat(snapshot, columns)
            return self._commit(fits)
        self._hop.note_committed(written)
        return written

    def _repeat(self, snapshot: Snapshot, refused: WrittenColumns) -> None:
        """Hand out a fragment again whose commit was refused."""
        fragment = refused.fragment
        now = find_fragment(snapshot, fragment.id)
        if now is None or not now.holds(refused.name):  # an object store may refuse a write that it has stored
            self._files.add(refused.name)
        self._conflicts[fragment.id] += 1
        tries = self._conflicts[fragment.id]
        if tries >= ATTEMPTS:
            fix = f"Earlier commits are kept; {next_step.same()} goes on from here."
            found = f"{tries} conflicts in a row about fragment {fragment.id}"
            raise lost_to_others(f"hop in {self._store.location.name}", found, fix)
        time.sleep(min(0.01 * 2**tries, 0.5))
        if self._stop is None:
            self._hand_out(fragment)

    def _lose(self, job: HopJob) -> None:
        """Hand out a fragment again whose worker was lost."""
        self._losses[job.fragment.id] += 1
        if self._losses[job.fragment.id] >= LOSSES:
            raise lost_again_and_again(f"hop fragment {job.fragment.id}")
        if self._stop is None:
            self._hand_out(job.fragment)


def columns_for(context: UpgradeContext) -> VersionColumns:
    """The columns that the target of an upgrade has in the table, or is to get."""
    registry, schema, record = context.registry, context.snapshot.schema, context.target_record
    if record.columns is not None:
        return record.columns
    version = record.version()
    if not registry.adopted:
        return VersionColumns.of(version, tensor=True)
    ours = set(VersionColumns.of(version).names)  # as an expand that was killed leaves them
    for other in registry.live:
        if other.columns is not None and not other.adopted:
            ours |= set(other.columns.names)
    avoid = set(widths(field for field in schema if field.name not in ours))
    return VersionColumns.of(version, avoid=avoid, tensor=True)


def expand(context: UpgradeContext) -> RunRecord:
    """Add the target's empty columns and record the run; from here on, writes go to both versions."""
    catalog, registry, run, record = context.catalog, context.registry, context.run, context.target_record
    known = registry.runs.get(run.target)
    if record.columns is not None and known is not None and known.open:
        return run if known == run else set_run(catalog, run)
    columns = columns_for(context)
    if record.columns is None:
        # Columns that no version has are dropped by any process that finds them. So these are reserved before they
        # exist, and leftovers of a killed expand or retirement are not used again: a drop that was decided before the
        # reservation is of the former columns, and Lance refuses it once there are others of their names.
        edit(catalog.store, lambda state: state.with_version(replace(state.record(run.target), reserved=True)))
        catalog.store.drop_columns(columns.names)
    catalog.store.add_columns(columns.fields)
    fence = catalog.store.fence_of(run.target)
    number = 0 if fence is None else fence.number
    run = replace(run, state=HOP)
    if not run.begun:  # it is no upgrade that was rolled back and goes on
        run = replace(run, begun=number, lease=number if record.columns is None else 0)

    def change(state: Registry) -> Registry:
        former = state.runs.get(run.target)
        if former is not None and former.path != run.path:  # it was chosen for other vectors
            state = replace(state, serving={name: one for name, one in state.serving.items() if name != run.target})
        record = replace(state.record(run.target), columns=columns, retired=False, reserved=False)
        record = replace(record, input_version=run.source)
        record = record.without_index()  # that an earlier upgrade built
        return state.with_version(record).with_run(run)

    edit(catalog.store, change, HistoryEntry("expand", run.target, note=f"from {run.source}"))
    return run
