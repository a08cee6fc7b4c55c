"""Roll back: return to the version before an upgrade, at once and whoever is at work."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from compatstore import next_step
from compatstore.errors import StorageError, UpgradeError
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit, unsearchable
from compatstore.upgrade.leases.stop_request import ask_to_stop
from compatstore.upgrade.states import ROLLED_BACK, VersionChange


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
