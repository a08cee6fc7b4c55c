"""Retire: drop a version's vectors for good."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from compatstore import next_step
from compatstore.errors import UpgradeError
from compatstore.evaluation.fusion import WeightChoice
from compatstore.storage.catalog import Catalog, id_arrow_type
from compatstore.storage.fragment_counts import forget_counts
from compatstore.storage.history import HistoryEntry
from compatstore.storage.ids import first_of, named
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import Registry, drop_unused, edit, unsearchable
from compatstore.storage.staging import Staging
from compatstore.upgrade.backfilling.account import forget_account
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upgrade.run import Controls, catch_up
from compatstore.upgrade.states import CUTOVER, RETIRED, VersionChange, tag_of


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
        LeaseHeld: Somebody works on an upgrade from or to it.
    """
    catalog = catalog.giving_up(name)
    registry = catalog.registry()
    registry.record(name)
    require_unused(registry, name)
    with contextlib.ExitStack() as leases:
        for target in _upgrades_with(registry, name):
            catalog = leases.enter_context(hold_lease(catalog, target, "retire")).catalog
        _settle_readers(catalog, name, force)
        if not force:
            _require_elsewhere(catalog, name)
        return _retire(catalog, name, drop_adopted)


def _upgrades_with(registry: Registry, name: str) -> list[str]:
    """Targets whose leases a retirement takes: the version's own, and those of upgrades that read it."""
    return sorted({name, *(run.target for run in registry.runs.values() if run.open and run.source == name)})


def _settle_readers(catalog: Catalog, name: str, force: bool) -> None:
    """Catch up with what came since the cutover: without the source nothing could find it or make its vectors."""
    registry = catalog.registry()
    source = registry.record(name).columns
    if _is_lost(catalog, name):  # there is nothing to catch up with
        return
    for run in registry.runs.values():
        if source is None or run.source != name or run.state != CUTOVER:
            continue
        catch_up(UpgradeContext.of(catalog, run), Controls())
        condition = f"({registry.columns(run.target).missing}) AND ({source.present})"
        snapshot = catalog.store.snapshot()
        missing = snapshot.count_rows(condition)
        if missing and not force:
            ids = named(first_of(snapshot, registry.id_column, condition), missing)
            raise UpgradeError(
                f"retire {name}",
                expected=f"a vector in {run.target} for every item that has one in {name}",
                found=f"{missing} items without one: {ids}",
                fix=f"Embed them: {next_step.call('upgrade', run.target, backfill=1.0)}; or drop their vectors for "
                f"good: {next_step.call('retire', name, force=True)}",
            )


def _require_elsewhere(catalog: Catalog, name: str) -> None:
    """Refuse to drop the only vector of an item, as one has that was added while an upgrade's target was active.

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
    snapshot = catalog.store.snapshot()
    count = snapshot.count_rows(condition)
    if count:
        ids = named(first_of(snapshot, registry.id_column, condition), count)
        run = registry.runs.get(name)
        keep = f"Keep them: {next_step.finishing(name)}; or drop" if run is not None else "Drop"
        raise UpgradeError(
            f"retire {name}",
            expected="another version with a vector of every item",
            found=f"{count} items that have a vector in {name} only: {ids}",
            fix=f"{keep} their vectors for good: {next_step.call('retire', name, force=True)}",
        )


def _retire(catalog: Catalog, name: str, drop_adopted: bool) -> VersionChange:
    registry = catalog.registry()
    record = registry.record(name)
    rest = _without(registry, name) if _is_lost(catalog, name) else registry
    missing = catalog.store.count(unsearchable(rest, registry.active))
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
    return VersionChange(
        registry.active,
        registry.active,
        missing,
        changed=changed,
        dropped=dropped,
        serving=catalog.registry().answering,
        served_before=registry.answering,
        fusion_ended=ended,
    )


def _fusion_of_source(registry: Registry, name: str) -> WeightChoice | None:
    """How the fusion was chosen that needs this source's vectors; None where searches use none."""
    fusions = (registry.fusion_served(run.target) for run in registry.runs.values() if run.source == name)
    return next((fusion.choice for fusion in fusions if fusion is not None), None)


def _is_lost(catalog: Catalog, name: str) -> bool:
    """Whether another writer dropped or replaced columns of a version."""
    return any(misfit.version == name for misfit in catalog.misfits())


def drop_leftovers(catalog: Catalog, record: VersionRecord) -> tuple[str, ...]:
    """Drop what a version that has no columns any more left behind; also after a kill.

    Returns:
        The columns that were dropped.
    """
    registry, store = catalog.registry(), catalog.store
    unused = drop_unused(store)
    fence = store.fence_of(record.name)
    Staging(store.location, record.name, record.dim, id_arrow_type(registry), fence=fence).clear()
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
    """Refuse to drop what is needed.

    Raises:
        UpgradeError: The version is active, or an upgrade that has not cut over reads it.
    """
    if registry.active == name:
        raise UpgradeError(
            f"{verb} {name}",
            expected="a version that is not active",
            found=f"{name} is what searches use",
            fix=f"Cut over to another version first: {next_step.call('cutover', 'VERSION')}",
        )
    readers = [run.target for run in registry.runs.values() if run.open and run.source == name and run.state != CUTOVER]
    if readers:
        raise UpgradeError(
            f"{verb} {name}",
            expected="a version that no upgrade reads",
            found=f"the upgrade to {', '.join(readers)} reads it",
            fix=f"Finish that upgrade and cut over, or abort it: {next_step.call('abort', readers[0])}",
        )
