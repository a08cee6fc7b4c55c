"""The states of an upgrade, and their edits of the registry.

expand -> hop -> backfill -> ready -> cutover -> retired
any of them before retired -> rolled-back -> hop ...
"""

from __future__ import annotations

from dataclasses import replace

from compatstore.storage.catalog import Catalog
from compatstore.storage.registry import HistoryEntry, Registry, RunRecord, edit

EXPAND, HOP, BACKFILL, READY, CUTOVER = "expand", "hop", "backfill", "ready", "cutover"
ROLLED_BACK, RETIRED = "rolled-back", "retired"
STATES = (EXPAND, HOP, BACKFILL, READY, CUTOVER, ROLLED_BACK, RETIRED)


def set_run(catalog: Catalog, run: RunRecord, entry: HistoryEntry | None = None) -> RunRecord:
    """Write a run's record, with a step of the history in the same commit; a no-op when nothing changes."""
    edit(catalog.store, lambda registry: registry.with_run(run), entry)
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
