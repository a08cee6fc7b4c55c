"""Cut over, roll back, retire: what makes a version the active one, undoes that, and ends it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore.errors import RowsMissing, UpgradeError
from compatstore.storage import vector_index
from compatstore.storage.catalog import Catalog, id_arrow_type
from compatstore.storage.registry import HistoryEntry, Registry, RunRecord, edit
from compatstore.storage.staging import Staging
from compatstore.upgrade.run import Controls, catch_up
from compatstore.upgrade.states import CUTOVER, READY, RETIRED, ROLLED_BACK, run_of

ATTEMPTS = 5


@dataclass(frozen=True)
class Switched:
    """What a cutover, rollback or retire did.

    Attributes:
        active: Version that searches use now.
        previous: Version that they used before.
        missing: Rows without a vector in the active version.
        changed: Whether anything changed.
        dropped: Columns that were dropped.
    """

    active: str
    previous: str
    missing: int
    changed: bool = True
    dropped: tuple[str, ...] = ()


def check_cutover(catalog: Catalog, target: str) -> int:
    """Rows that stand in the way of a cutover; read-only.

    Raises:
        UnknownVersion: There is no such version.
        UpgradeError: There is no upgrade to that version, or it is not ready.
    """
    registry = catalog.registry()
    registry.record(target)
    run = run_of(registry, target)
    if run is None or run.state not in (READY, CUTOVER):
        raise UpgradeError(
            f"cut over to {target}",
            expected="an upgrade that is ready",
            found="none" if run is None else f"one in state {run.state}",
            fix=f"Run it: compatstore upgrade GALLERY {target}",
        )
    return catalog.store.count(registry.columns(target).missing)


def cut_over(catalog: Catalog, target: str, *, force: bool = False, controls: Controls | None = None) -> Switched:
    """Make the target the active version, after catching up with what came or changed meanwhile.

    Args:
        catalog: The gallery.
        target: An upgrade's target, in state ready.
        force: Do so while rows are missing; they are not found until they are filled.
        controls: Progress and stop.

    Raises:
        UpgradeError: The upgrade is not ready.
        RowsMissing: Rows have no vector in the target.
    """
    controls = controls or Controls()
    check_cutover(catalog, target)
    registry = catalog.registry()
    run = registry.runs[target]
    missing = _settle(catalog, run, controls)
    if missing and not force:
        raise RowsMissing(
            f"cut over to {target}",
            expected="a vector for every item",
            found=f"{missing} items without one",
            fix="See why: compatstore status GALLERY; embed them natively: "
            f"compatstore upgrade GALLERY {target} --backfill 1.0; or cut over all the same with --force.",
        )
    if registry.active == target:
        if tag_of(target) not in catalog.store.tags():  # the cutover was killed before it
            _pin(catalog, target)
        return Switched(target, target, missing, changed=False)
    _refresh_index(catalog, run)
    previous = registry.active

    def flip(state: Registry) -> Registry:
        return replace(state, active=target).with_run(replace(state.runs[target], state=CUTOVER, previous=previous))

    edit(catalog.store, flip, HistoryEntry("cutover", target, note=f"from {previous}"))
    _pin(catalog, target)
    catch_up(catalog, catalog.registry().runs[target], controls)
    return Switched(target, previous, catalog.store.count(catalog.registry().columns(target).missing))


def _pin(catalog: Catalog, target: str) -> None:
    """Tag the table as it is when the target becomes active; an adopted table gets no tags."""
    if not any(record.adopted for record in catalog.registry().live):
        catalog.store.tag(tag_of(target))


def _settle(catalog: Catalog, run: RunRecord, controls: Controls) -> int:
    """Catch up until no row is missing; under steady writes a few tries may be needed."""
    columns = catalog.registry().columns(run.target)
    missing = 0
    for _ in range(ATTEMPTS):
        catch_up(catalog, run, controls)
        missing = catalog.store.count(columns.missing)
        if not missing:
            break
    return missing


def _refresh_index(catalog: Catalog, run: RunRecord) -> None:
    """Build the target's index anew when rows came after it, so that searches are fast from the first one on."""
    registry = catalog.registry()
    source, target = registry.columns(run.source), registry.columns(run.target)
    index = vector_index.describe(catalog.store, target.vector)
    if index is None:
        metric = registry.record(run.target).metric
        vector_index.mirror(catalog.store, source.vector, target.vector, target.width, metric)
    elif vector_index.unindexed_rows(catalog.store, target.vector):
        vector_index.build(catalog.store, target.vector, index)


def roll_back(catalog: Catalog, target: str | None = None) -> Switched:
    """Go back to the version before an upgrade: a pointer flip, no row is lost and no vector dropped.

    Args:
        catalog: The gallery.
        target: The upgrade's target; the active version, or else the only open upgrade, by default.

    Raises:
        UpgradeError: There is nothing to roll back, or the previous version was retired.
    """
    registry = catalog.registry()
    if target is not None:
        registry.record(target)
    run = _run_to_undo(registry, target)
    previous = run.previous if registry.active == run.target else registry.active
    if registry.record(previous).columns is None:
        raise UpgradeError(
            f"roll {run.target} back", expected=f"version {previous} in the table", found="it was retired"
        )

    def flip(state: Registry) -> Registry:
        return replace(state, active=previous).with_run(replace(state.runs[run.target], state=ROLLED_BACK))

    edit(catalog.store, flip, HistoryEntry("rollback", run.target, note=f"to {previous}"))
    return Switched(previous, registry.active, catalog.store.count(registry.columns(previous).missing))


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
            fix="Name it: compatstore rollback GALLERY VERSION" if chosen else "",
        )
    return chosen[0]


def retire(catalog: Catalog, name: str, *, drop_adopted: bool = False) -> Switched:
    """Drop a version's vectors for good.

    Args:
        catalog: The gallery.
        name: A version that is not active. Retiring the target of an upgrade that has not cut over abandons it.
        drop_adopted: Drop an adopted column too, which belongs to the app whose table it is.

    Raises:
        UpgradeError: The version is active, or an upgrade still reads it.
    """
    registry = catalog.registry()
    record = registry.record(name)
    _require_unused(registry, name)
    missing = catalog.store.count(registry.columns(registry.active).missing)
    if record.columns is not None:
        edit(catalog.store, lambda state: _without(state, name), HistoryEntry("retire", name))
        if record.adopted and drop_adopted:
            catalog.store.drop_columns([record.columns.vector])
    # Also what a killed retire left behind.
    dropped = _drop_unused_columns(catalog)
    Staging(catalog.store.location, name, record.dim, id_arrow_type(registry)).clear()
    catalog.store.untag(tag_of(name))
    changed = record.columns is not None or bool(dropped)
    return Switched(registry.active, registry.active, missing, changed=changed, dropped=dropped)


def _without(registry: Registry, name: str) -> Registry:
    """The registry after a version's retirement: no columns, no basis on it, its upgrades closed."""
    retired = replace(registry.record(name), columns=None, retired=True, basis_of=None)
    changed = registry.with_version(retired)
    for other in registry.live:
        if other.basis_of == name and other.columns is not None:
            columns = replace(other.columns, basis=None)
            changed = changed.with_version(replace(other, basis_of=None, columns=columns))
    for run in registry.runs.values():
        if name in (run.source, run.target):
            changed = changed.with_run(replace(run, state=RETIRED))
    return changed


def _drop_unused_columns(catalog: Catalog) -> tuple[str, ...]:
    """Drop our columns that no version uses any more; also what a killed retire left behind."""
    unused = catalog.registry().unused(catalog.store.schema.names)
    catalog.store.drop_columns(unused)
    return unused


def _require_unused(registry: Registry, name: str) -> None:
    if registry.active == name:
        raise UpgradeError(
            f"retire {name}",
            expected="a version that is not active",
            found=f"{name} is what searches use",
            fix="Cut over to another version first: compatstore cutover GALLERY VERSION",
        )
    readers = [run.target for run in registry.runs.values() if run.open and run.source == name and run.state != CUTOVER]
    if readers:
        raise UpgradeError(
            f"retire {name}",
            expected="a version that no upgrade reads",
            found=f"the upgrade to {', '.join(readers)} reads it",
            fix="Finish that upgrade and cut over, or retire its target first.",
        )


def tag_of(version: str) -> str:
    """Name of the Lance tag that pins the table as it was when a version became active."""
    return f"compatstore-{version}"
