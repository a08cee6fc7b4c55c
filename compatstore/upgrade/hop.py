"""Expand and hop: the target's empty columns are added, and filled by a forward transform of the source's vectors.

A first hop and the catch-up of rows that came or changed meanwhile are the same thing: what has to be done is read
from the table, fragment by fragment (`hop_job.py`, wherever the engine runs it), and committed here, as fragments come
back from the engine. So a killed hop goes on where it was, and a finished one does nothing.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from compatstore import next_step
from compatstore.errors import Interrupted, StorageError
from compatstore.storage.columns import VersionColumns, widths
from compatstore.storage.fragment_counts import FragmentCounts
from compatstore.storage.fragments import (
    Fragment,
    WrittenColumns,
    commit_columns,
    discard,
    find_fragment,
    list_fragments,
    only_lost_rows,
)
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import ATTEMPTS, Conflict, Store, storage_errors
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.engines.engine import LOSSES, Engine, LocalEngine, lost_again_and_again
from compatstore.upgrade.hop_job import HopJob, HopOutcome, HopRecipe, hop_fragment
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.states import HOP, set_run
from compatstore.upgrade.transform import Transformer


@dataclass
class Hop:
    """Brings the target's columns up to date with the source's.

    Args:
        store: The table.
        recipe: What is made of rows.
        counts: What is known of fragments that did not change since they were looked at.
        engine: Where fragments are transformed.
    """

    store: Store
    recipe: HopRecipe
    counts: FragmentCounts
    engine: Engine = field(default_factory=LocalEngine)

    @classmethod
    def of(cls, context: UpgradeContext, transformer: Transformer | None, engine: Engine | None = None) -> Hop:
        """The hop of an upgrade whose versions both have columns."""
        counts, sources = context.counts, context.registry.source_column
        assert counts is not None
        recipe = HopRecipe(context.source, context.target, sources, transformer)
        return cls(context.store, recipe, counts, engine or LocalEngine())

    def run(self, monitor: Monitor) -> int:
        """Go over all fragments once.

        Returns:
            Rows whose target vector was made, remade or cleared.

        Raises:
            Interrupted: A stop was asked for; finished fragments stay.
            StorageError: Other writers were faster each time; fragments that were committed before stay.
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
        """What is counted: rows that need this very transform."""
        transformer = self.recipe.transformer
        return "hop" if transformer is None else f"hop by {transformer.origin}"

    def known(self, fragment: Fragment) -> int | None:
        """Live rows of a fragment that need work, or None where that is not known."""
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
    """One pass over all fragments: hands out jobs, commits what they made, and hands out again what was lost."""

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
        """Hand out nothing more where a stop was asked for; what is under way is finished."""
        if not self._jobs:
            return
        try:
            self._monitor.check()
        except Interrupted as stop:
            self._stop = stop
            self._files -= {job.file for job in self._jobs}
            self._jobs.clear()

    def _enter(self, made: Sequence[tuple[HopJob, HopOutcome | None]]) -> int:
        """Commit what was made, all in one commit; returns the rows that were made, remade or cleared."""
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
        """Commit what still fits its fragments, and hand out again the fragments that others changed."""
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
        if now is None or not now.holds(refused.name):  # an object store may refuse what it has stored
            self._files.add(refused.name)
        self._conflicts[fragment.id] += 1
        tries = self._conflicts[fragment.id]
        if tries >= ATTEMPTS:
            raise StorageError(
                f"hop in {self._store.location.name}",
                expected="a moment without other writers",
                found=f"{tries} conflicts in a row about fragment {fragment.id}",
                fix=f"What was committed before is kept; {next_step.same()} goes on from here.",
            )
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
        # Columns that no version has are dropped by whoever finds them. So these are reserved before they are there,
        # and what a killed expand or retirement left is not used again: a drop that was decided before the reservation
        # is of the former columns, and Lance refuses it once there are others of their names.
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
        if former is not None and former.path != run.path:  # what was chosen for other vectors
            state = replace(state, serving={name: one for name, one in state.serving.items() if name != run.target})
        record = replace(state.record(run.target), columns=columns, retired=False, reserved=False)
        record = replace(record, input_version=run.source)
        record = record.without_index()  # that an earlier upgrade built
        return state.with_version(record).with_run(run)

    edit(catalog.store, change, HistoryEntry("expand", run.target, note=f"from {run.source}"))
    return run
