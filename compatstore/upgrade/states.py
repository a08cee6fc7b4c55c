"""The states of an upgrade, their edits of the registry, and results of operations that change the active version.

expand -> hop -> backfill -> ready -> cutover -> retired
any of them before retired -> rolled-back -> hop ...
any of them before cutover -> aborted -> hop ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from compatstore import next_step
from compatstore.errors import Interrupted, UpgradeError
from compatstore.evaluation.fusion import Measurement
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.ids import first_of, named
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit, history, unsearchable

EXPAND, HOP, BACKFILL, READY, CUTOVER = "expand", "hop", "backfill", "ready", "cutover"
ROLLED_BACK, RETIRED, ABORTED = ENDED = "rolled-back", "retired", "aborted"
STATES = (EXPAND, HOP, BACKFILL, READY, CUTOVER, *ENDED)


def tag_of(version: str) -> str:
    """Name of the Lance tag that pins the table as it was when a version became active."""
    return f"compatstore-{version}"


def set_run(catalog: Catalog, run: RunRecord, entry: HistoryEntry | None = None) -> RunRecord:
    """Write an open run's record, with a step of the history in the same commit; a no-op when nothing changes.

    Raises:
        Interrupted: It was rolled back, aborted or retired meanwhile.
    """

    def change(registry: Registry) -> Registry:
        require_open(registry, run.target)
        return registry.with_run(run)

    edit(catalog.store, change, entry)
    return run


def require_open(registry: Registry, target: str) -> RunRecord:
    """The open run to a target.

    Raises:
        Interrupted: It was rolled back, aborted or retired; no process may open it again.
    """
    run = run_of(registry, target)
    if run is None:
        operation = f"go on with the upgrade to {target}"
        found = f"it was {registry.runs[target].state} meanwhile" if target in registry.runs else "none"
        fix = f"Begin it again: {next_step.call('upgrade', target)}"
        raise Interrupted(operation, expected="that it is still under way", found=found, fix=fix)
    return run


def advance(catalog: Catalog, run: RunRecord, state: str, entry: HistoryEntry | None = None) -> RunRecord:
    """Move a run to a state. A run that has cut over stays there while its backfill goes on."""
    if run.state == CUTOVER and state in (HOP, BACKFILL, READY):
        state = CUTOVER
    return set_run(catalog, replace(run, state=state), entry)


def run_of(registry: Registry, target: str) -> RunRecord | None:
    """The open run to a target, or None."""
    run = registry.runs.get(target)
    return run if run is not None and run.open else None


@dataclass(frozen=True)
class VersionChange:
    """The result of a cutover, rollback, abort or retirement.

    Attributes:
        active: Version that searches use now.
        previous: Version that they used before.
        missing: Rows without a vector in the active version.
        changed: Whether anything changed.
        dropped: Columns that were dropped.
        serving: Vectors that answer searches now, such as "v2 alone".
        served_before: Vectors that answered them before.
        fusion_ended: The choice of the fusion that ended, and its gain over the target alone; None if
            searches are unchanged.
        store: The app's part in a store that the gallery mirrors, as a sentence; "" without one.
    """

    active: str
    previous: str
    missing: int
    changed: bool = True
    dropped: tuple[str, ...] = ()
    serving: str = ""
    served_before: str = ""
    fusion_ended: Measurement | None = None
    store: str = ""


def change_between(catalog: Catalog, before: Registry, after: Registry, **more: Any) -> VersionChange:
    """The result of an operation between two states of the registry; `more` sets further fields."""
    missing = catalog.store.count(unsearchable(after, after.active))
    more |= {"serving": after.answering, "served_before": before.answering}
    return VersionChange(after.active, before.active, missing, **more)


def refuse_rows(catalog: Catalog, condition: str, operation: str, *, expected: str, found: str, fix: str) -> None:
    """Refuse to go on where items fulfil an SQL condition.

    Raises:
        UpgradeError: Some do; the first of them are named.
    """
    snapshot = catalog.store.snapshot()
    count = snapshot.count_rows(condition)
    if count:
        ids = named(first_of(snapshot, catalog.recorded(snapshot).id_column, condition), count)
        raise UpgradeError(operation, expected=expected, found=f"{count} items {found}: {ids}", fix=fix)


def steps_since_the_last(catalog: Catalog, target: str, *steps: str) -> list[HistoryEntry]:
    """Entries of some steps in the history of the upgrade to a target, since the last one ended; oldest first."""
    found = [entry for entry in history(catalog.store) if entry.version == target]
    began = max((entry.number for entry in found if entry.step in ("retire", "abort")), default=0)
    return [entry for entry in found if entry.step in steps and entry.number > began]
