"""Expand: the target's empty columns are added, and the run is recorded with them."""

from __future__ import annotations

from dataclasses import replace

from compatstore.storage.columns import VersionColumns, widths
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.states import HOP, set_run


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
