"""Retire a version, roll an upgrade back, abort it: drop vectors for good, or switch back to the version before."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from compatstore import next_step
from compatstore.errors import StorageError, UpgradeError
from compatstore.evaluation.fusion import Measurement
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.records import RunRecord, VersionRecord
from compatstore.storage.registry import Registry, drop_unused, edit
from compatstore.storage.staging import Staging
from compatstore.upgrade.backfilling.account import forget_account
from compatstore.upgrade.context import UpgradeContext, forget_counts
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upgrade.leases.lease import ask_to_stop, wait_until_stopped
from compatstore.upgrade.run import Controls, catch_up
from compatstore.upgrade.states import (
    ABORTED,
    CUTOVER,
    RETIRED,
    ROLLED_BACK,
    VersionChange,
    change_between,
    refuse_rows,
    tag_of,
)


def retire(catalog: Catalog, name: str, *, drop_adopted: bool = False, force: bool = False) -> VersionChange:
    """Drop a version's vectors for good.

    Args:
        catalog: The gallery.
        name: A version that is not active. Retiring the target of an upgrade that has not cut over abandons it.
        drop_adopted: Drop an adopted column too, which belongs to the app whose table it is.
        force: Do so while items have their only vector in it.

    Raises:
        UpgradeError: The version is active, or an upgrade still reads it. Items have a vector in it and none in the
            version that took its place, or in no other at all.
        LeaseHeld: Another process works on an upgrade from or to it.
    """
    catalog = catalog.giving_up(name)
    registry = catalog.registry()
    registry.record(name)
    require_unused(registry, name)
    with contextlib.ExitStack() as leases:
        reading = (run.target for run in registry.runs.values() if run.open and run.source == name)
        for target in sorted({name, *reading}):
            catalog = leases.enter_context(hold_lease(catalog, target, "retire")).catalog
        _settle_readers(catalog, name, force)
        if not force:
            _require_elsewhere(catalog, name)
        return _retire(catalog, name, drop_adopted)


def _settle_readers(catalog: Catalog, name: str, force: bool) -> None:
    """Catch up with rows added since the cutover: without the source nothing could find or transform them."""
    registry = catalog.registry()
    source = registry.record(name).columns
    if any(misfit.version == name for misfit in catalog.misfits()):  # there is nothing to catch up with
        return
    for run in registry.runs.values():
        if source is None or run.source != name or run.state != CUTOVER:
            continue
        catch_up(UpgradeContext.of(catalog, run), Controls())
        condition = f"({registry.columns(run.target).missing}) AND ({source.present})"
        if not force:
            refuse_rows(
                catalog,
                condition,
                f"retire {name}",
                expected=f"a vector in {run.target} for every item that has one in {name}",
                found="without one",
                fix=f"Embed them: {next_step.call('upgrade', run.target, backfill=1.0)}; or drop their vectors for "
                f"good: {next_step.call('retire', name, force=True)}",
            )


def _require_elsewhere(catalog: Catalog, name: str) -> None:
    """Refuse to drop the only vector of an item that was added while an upgrade's target was active.

    Raises:
        UpgradeError: There are such items.
    """
    registry = catalog.registry()
    there = set(catalog.store.schema.names)  # an app may have dropped a version's columns, and then it has no vectors
    live = {
        record.name: record.columns
        for record in registry.live
        if record.columns and record.columns.presence_column in there
    }
    columns = live.pop(name, None)
    if columns is None:
        return
    others = [other.missing for other in live.values()]
    condition = " AND ".join(f"({part})" for part in (columns.present, *others))
    keep = f"Keep them: {next_step.finishing(name)}; or drop" if name in registry.runs else "Drop"
    refuse_rows(
        catalog,
        condition,
        f"retire {name}",
        expected="another version with a vector of every item",
        found=f"that have a vector in {name} only",
        fix=f"{keep} their vectors for good: {next_step.call('retire', name, force=True)}",
    )


def _retire(catalog: Catalog, name: str, drop_adopted: bool) -> VersionChange:
    registry = catalog.registry()
    record = registry.record(name)
    ended = _fusion_of_source(registry, name)
    theirs: tuple[str, ...] = ()

    def change(state: Registry) -> Registry:
        require_unused(state, name)  # a rollback may just have made it active
        return _without(state, name)

    if record.columns is not None:
        edit(catalog.store, change, HistoryEntry("retire", name, note="" if ended is None else ended.loss))
        if record.adopted and drop_adopted:
            theirs = catalog.store.drop_columns([record.columns.vector])
    elif record.reserved:  # by an upgrade that was killed before it had added them
        edit(catalog.store, change)
    dropped = (*theirs, *drop_leftovers(catalog, record))
    changed = record.columns is not None or bool(dropped)
    after = catalog.registry()
    return change_between(catalog, registry, after, changed=changed, dropped=dropped, fusion_ended=ended)


def _fusion_of_source(registry: Registry, name: str) -> Measurement | None:
    """The choice of the fusion that needs this source's vectors; None if searches use none."""
    fusions = (registry.fusion_served(run.target) for run in registry.runs.values() if run.source == name)
    return next((fusion.choice for fusion in fusions if fusion is not None), None)


def drop_leftovers(catalog: Catalog, record: VersionRecord) -> tuple[str, ...]:
    """Drop the leftovers of a version that has no columns any more; also after a kill.

    Returns:
        The columns that were dropped.
    """
    registry, store = catalog.registry(), catalog.store
    unused = drop_unused(store)
    Staging.of(store, registry, record.name, None).clear()
    forget_account(catalog, record.name)
    forget_counts(catalog.store, record.name)
    catalog.store.untag(tag_of(record.name))
    return unused


def without_columns(registry: Registry, record: VersionRecord) -> Registry:
    """The registry after a version's columns are gone: no column keeps an input hash of its vectors."""
    changed = registry.with_version(replace(record.without_index(), columns=None, reserved=False, input_version=None))
    for other in registry.live:
        if other.input_version == record.name and other.columns is not None:
            columns = replace(other.columns, input_hash=None)
            changed = changed.with_version(replace(other, input_version=None, columns=columns))
    return changed


def _without(registry: Registry, name: str) -> Registry:
    """The registry after a version's retirement: without its columns, its upgrades closed."""
    changed = without_columns(registry, replace(registry.record(name), retired=True))
    for run in registry.runs.values():
        if name in (run.source, run.target):
            changed = changed.with_run(replace(run, state=RETIRED))
    return changed


def require_unused(registry: Registry, name: str, verb: str = "retire") -> None:
    """Refuse to drop a version in use.

    Raises:
        UpgradeError: The version is active, or an upgrade that has not cut over reads it.
    """
    if registry.active == name:
        operation, fix = f"{verb} {name}", f"Cut over to another version first: {next_step.call('cutover', 'VERSION')}"
        raise UpgradeError(operation, expected="a version that is not active", found=f"searches use {name}", fix=fix)
    readers = [run.target for run in registry.runs.values() if run.open and run.source == name and run.state != CUTOVER]
    if readers:
        found = f"the upgrade to {', '.join(readers)} reads it"
        fix = f"Finish that upgrade and cut over, or abort it: {next_step.call('abort', readers[0])}"
        raise UpgradeError(f"{verb} {name}", expected="a version that no upgrade reads", found=found, fix=fix)


def roll_back(catalog: Catalog, target: str | None = None) -> VersionChange:
    """Go back to the version before an upgrade: a pointer flip, no row is lost and no vector dropped.

    It does not wait. A manager that works on the upgrade gets a request to stop; it cannot open the upgrade again.

    Args:
        catalog: The gallery.
        target: The upgrade's target; the active version, or else the only open upgrade, by default.

    Raises:
        UpgradeError: There is nothing to roll back, or the previous version was retired.
    """
    registry = catalog.recorded()  # it is also the way out when columns of the target were lost
    if target is not None:
        registry.record(target)
    undone = _run_to_undo(registry, target).target
    before: list[Registry] = []

    def flip(state: Registry) -> Registry:
        run = _run_to_undo(state, undone)
        before[:] = [state]
        return replace(state, active=_return_to(state, run)).with_run(replace(run, state=ROLLED_BACK))

    active = _return_to(registry, registry.runs[undone])
    entry = HistoryEntry("rollback", undone, note=f"to {active}")
    after = edit(catalog.store, flip, entry)
    with contextlib.suppress(StorageError):  # it is rolled back already
        ask_to_stop(LeaseTable(catalog.store.location), undone, "rollback")
    return change_between(catalog, before[0], after)


def _return_to(registry: Registry, run: RunRecord) -> str:
    """The version that is active after a rollback; a run that was never cut over leaves it as it is."""
    previous = run.previous if registry.active == run.target else registry.active
    if registry.record(previous).columns is None:
        operation = f"roll {run.target} back"
        fix = f"Upgrade back to it: {next_step.call('upgrade', previous, backfill=1.0)}"
        raise UpgradeError(operation, expected=f"version {previous} in the table", found="it was retired", fix=fix)
    return previous


def _run_to_undo(registry: Registry, target: str | None) -> RunRecord:
    runs = [run for run in registry.runs.values() if run.open]
    if target is not None:
        chosen = [run for run in runs if run.target == target]
    else:
        chosen = [run for run in runs if run.target == registry.active] or runs
    if len(chosen) != 1:
        operation = "roll back" + (f" {target}" if target else "")
        found = f"{len(chosen)}: {', '.join(run.target for run in chosen)}" if chosen else "none"
        fix = f"Name it: {next_step.call('rollback', 'VERSION')}" if chosen else f"See: {next_step.call('status')}"
        raise UpgradeError(operation, expected="one upgrade that is under way or cut over", found=found, fix=fix)
    return chosen[0]


def abort(catalog: Catalog, target: str, *, wait: float) -> VersionChange:
    """Stop an upgrade and drop the target's vectors, staged ones too; the version stays registered.

    The same call again finishes one that was killed. A new upgrade to the target starts from nothing.

    Args:
        catalog: The gallery.
        target: The upgrade's target.
        wait: Seconds to give a manager that works on it for finishing its batch.

    Raises:
        UpgradeError: There is none, it has cut over, or items have a vector in the target only.
        LeaseHeld: Its manager did not stop in time.
    """
    registry = catalog.registry()
    registry.record(target)
    _require_abortable(catalog, registry, target)
    table = LeaseTable(catalog.store.location)
    stop = ask_to_stop(table, target, "abort")
    if stop is not None:
        wait_until_stopped(table, stop, wait)
    with hold_lease(catalog, target, "abort") as work:
        return _drop(work.catalog, target)


def _drop(catalog: Catalog, target: str) -> VersionChange:
    before = catalog.registry()
    begun = before.record(target).columns is not None

    def change(state: Registry) -> Registry:
        _require_abortable(catalog, state, target)
        run = replace(state.runs[target], state=ABORTED)
        return without_columns(state, state.record(target)).with_run(run)

    if begun:
        edit(catalog.store, change, HistoryEntry("abort", target, note=f"was in state {before.runs[target].state}"))
    dropped = drop_leftovers(catalog, before.record(target))
    return change_between(catalog, before, catalog.registry(), changed=begun or bool(dropped), dropped=dropped)


def _require_abortable(catalog: Catalog, registry: Registry, target: str) -> None:
    operation = f"abort the upgrade to {target}"
    run = registry.runs.get(target)
    if registry.active == target:
        undo = f"Go back first: {next_step.call('rollback', target)}"
        fix = undo if run is not None and run.open else f"See: {next_step.call('status')}"
        raise UpgradeError(operation, expected="one that has not cut over", found=f"searches use {target}", fix=fix)
    if run is None or run.state == RETIRED:
        raise UpgradeError(
            operation, expected="one that was begun", found="none", fix=f"Begin it: {next_step.call('upgrade', target)}"
        )
    require_unused(registry, target, "abort")
    columns = registry.record(target).columns
    if columns is None:
        return
    condition = f"({columns.present}) AND ({registry.columns(registry.active).missing})"
    refuse_rows(
        catalog,
        condition,
        operation,
        expected=f"items that have a vector in {registry.active} too",
        found=f"that have one in {target} only, written while it was active",
        fix=f"Keep them: {next_step.finishing(target)}; or drop their vectors for good: "
        f"{next_step.call('retire', target, force=True)}",
    )
