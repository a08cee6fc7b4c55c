"""Leave an upgrade: switch back to the version before it, or drop what it has written."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from compatstore import next_step
from compatstore.errors import StorageError, UpgradeError
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.ids import first_of, named
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit, unsearchable
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upgrade.leases.stop_request import ask_to_stop, wait_until_stopped
from compatstore.upgrade.retire import drop_leftovers, require_unused, without_columns
from compatstore.upgrade.states import ABORTED, RETIRED, ROLLED_BACK, VersionChange


def roll_back(catalog: Catalog, target: str | None = None) -> VersionChange:
    """Go back to the version before an upgrade: a pointer flip, no row is lost and no vector dropped.

    It waits for nobody. A manager that works on the upgrade is asked to stop; it cannot open the upgrade again.

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
    return VersionChange(
        after.active,
        before[0].active,
        catalog.store.count(unsearchable(after, after.active)),
        serving=after.answering,
        served_before=before[0].answering,
    )


def _return_to(registry: Registry, run: RunRecord) -> str:
    """The version that is active after a rollback; a run that was never cut over leaves it as it is."""
    previous = run.previous if registry.active == run.target else registry.active
    if registry.record(previous).columns is None:
        raise UpgradeError(
            f"roll {run.target} back",
            expected=f"version {previous} in the table",
            found="it was retired",
            fix=f"Upgrade back to it: {next_step.call('upgrade', previous, backfill=1.0)}",
        )
    return previous


def _run_to_undo(registry: Registry, target: str | None) -> RunRecord:
    runs = [run for run in registry.runs.values() if run.open]
    if target is not None:
        chosen = [run for run in runs if run.target == target]
    else:
        chosen = [run for run in runs if run.target == registry.active] or runs
    if len(chosen) != 1:
        raise UpgradeError(
            "roll back" + (f" {target}" if target else ""),
            expected="one upgrade that is under way or cut over",
            found=f"{len(chosen)}: {', '.join(run.target for run in chosen)}" if chosen else "none",
            fix=f"Name it: {next_step.call('rollback', 'VERSION')}" if chosen else f"See: {next_step.call('status')}",
        )
    return chosen[0]


WAIT_SECONDS = 60.0


def abort(catalog: Catalog, target: str, *, wait: float = WAIT_SECONDS) -> VersionChange:
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
    asked = ask_to_stop(table, target, "abort")
    if asked is not None:
        wait_until_stopped(table, asked, wait)
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
    after = catalog.registry()
    return VersionChange(
        after.active,
        after.active,
        catalog.store.count(unsearchable(after, after.active)),
        changed=begun or bool(dropped),
        dropped=dropped,
        serving=after.answering,
        served_before=before.answering,
    )


def _require_abortable(catalog: Catalog, registry: Registry, target: str) -> None:
    asked = f"abort the upgrade to {target}"
    run = registry.runs.get(target)
    if registry.active == target:
        undo = f"Go back first: {next_step.call('rollback', target)}"
        raise UpgradeError(
            asked,
            expected="one that has not cut over",
            found=f"{target} is what searches use",
            fix=undo if run is not None and run.open else f"See: {next_step.call('status')}",
        )
    if run is None or run.state == RETIRED:
        raise UpgradeError(
            asked, expected="one that was begun", found="none", fix=f"Begin it: {next_step.call('upgrade', target)}"
        )
    require_unused(registry, target, "abort")
    columns = registry.record(target).columns
    if columns is None:
        return
    condition = f"({columns.present}) AND ({registry.columns(registry.active).missing})"
    snapshot = catalog.store.snapshot()
    only = snapshot.count_rows(condition)
    if only:
        ids = named(first_of(snapshot, registry.id_column, condition), only)
        raise UpgradeError(
            asked,
            expected=f"items that have a vector in {registry.active} too",
            found=f"{only} items that have one in {target} only, written while it was active: {ids}",
            fix=f"Keep them: {next_step.finishing(target)}; or drop their vectors for good: "
            f"{next_step.call('retire', target, force=True)}",
        )
