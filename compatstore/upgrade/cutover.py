"""Cut over: make an upgrade's target the active version."""

from __future__ import annotations

from dataclasses import replace

from compatstore import next_step
from compatstore.errors import UpgradeError
from compatstore.evaluation.fusion import Serving
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, edit, unsearchable
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.fusing import require_servable, serve, served_as
from compatstore.upgrade.indexing import build_target, refresh_target
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upgrade.run import Controls, catch_up
from compatstore.upgrade.states import CUTOVER, READY, VersionChange, refuse_rows, require_open, run_of, tag_of

ATTEMPTS = 5


def check_cutover(catalog: Catalog, target: str) -> int:
    """Rows that stand in the way of a cutover, as no query of the target would find them; read-only.

    Raises:
        NotFound: There is no such version.
        UpgradeError: There is no upgrade to that version, or it is not ready.
    """
    registry = catalog.registry()
    registry.record(target)
    run = run_of(registry, target)
    if registry.active != target and (run is None or run.state not in (READY, CUTOVER)):
        found = "none" if run is None else f"one in state {run.state}"
        fix = f"Run it: {next_step.call('upgrade', target)}"
        raise UpgradeError(f"cut over to {target}", expected="an upgrade that is ready", found=found, fix=fix)
    return _missing(catalog, target)


def _missing(catalog: Catalog, target: str) -> int:
    """Rows that no query of the target finds; unchanged fragments are not counted again."""
    snapshot = catalog.store.snapshot()
    registry = catalog.registry(snapshot)
    run, condition = run_of(registry, target), unsearchable(registry, target)
    if run is None:
        return int(snapshot.count_rows(condition))
    return UpgradeContext.of(catalog, run, snapshot).count(condition)


def cut_over(
    catalog: Catalog, target: str, *, force: bool, serving: Serving | None, controls: Controls
) -> VersionChange:
    """Make the target the active version, after catching up with new and changed rows.

    Args:
        catalog: The gallery.
        target: An upgrade's target, in state ready.
        force: Cut over while rows are missing; they are not found until they are filled.
        serving: Serving mode of searches afterwards; None for no change.
        controls: Progress and stop.

    Raises:
        UpgradeError: The upgrade is not ready, the serving is not possible, or rows have no vector in the target.
        LeaseHeld: Another process works on that upgrade.
        Interrupted: A stop was requested before anything was switched.
    """
    missing = check_cutover(catalog, target)
    before = catalog.registry().answering
    if run_of(catalog.registry(), target) is None:  # it is active, and the version before it is retired
        served = serving != "fused" and serve(catalog, target, serving)  # a fusion ended with its source
        change = VersionChange(target, target, missing, changed=served)
    else:
        with hold_lease(catalog, target, "cutover", controls) as work:
            controls = replace(controls, progress=work.progress, should_stop=work.should_stop)
            change = _cut_over(work.catalog, target, force, serving, controls)
    return replace(change, serving=catalog.registry().answering, served_before=before)


def _cut_over(catalog: Catalog, target: str, force: bool, serving: Serving | None, controls: Controls) -> VersionChange:
    registry = catalog.registry()
    require_servable(catalog, target, serving)
    run = require_open(registry, target)
    missing = _catch_up_fully(catalog, run, controls)
    if missing and not force:
        refuse_rows(
            catalog,
            unsearchable(registry, target),
            f"cut over to {target}",
            expected="a vector for every item",
            found="without one",
            fix=f"See why: {next_step.call('status')}; embed them natively: "
            f"{next_step.call('upgrade', target, backfill=1.0)}; or cut over without them: "
            f"{next_step.option('force', True)}.",
        )
    if registry.active == target:
        if tag_of(target) not in catalog.store.tags():  # the cutover was killed before it
            _pin(catalog, target)
        return VersionChange(target, target, missing, changed=serve(catalog, target, serving))
    context = UpgradeContext.of(catalog, run)
    for index in (build_target, refresh_target):  # so that the first search is fast already
        index(context, controls)
    previous = registry.active

    def flip(state: Registry) -> Registry:
        run = require_open(state, target)
        active = replace(state, active=target).with_run(replace(run, state=CUTOVER, previous=previous))
        return served_as(active, target, serving)

    edit(catalog.store, flip, HistoryEntry("cutover", target, note=f"from {previous}", figures={"missing": missing}))
    _pin(catalog, target)
    run = catalog.registry().runs[target]
    catch_up(UpgradeContext.of(catalog, run), replace(controls, should_stop=None))
    return VersionChange(target, previous, _missing(catalog, target))


def _pin(catalog: Catalog, target: str) -> None:
    """Tag the table as it is when the target becomes active; an adopted table gets no tags."""
    if catalog.registry().adopted:
        return
    catalog.store.tag(tag_of(target))
    if catalog.registry().record(target).columns is None:  # ended by another process while this one was suspended
        catalog.store.untag(tag_of(target))


def _catch_up_fully(catalog: Catalog, run: RunRecord, controls: Controls) -> int:
    """Catch up until no row is missing; under steady writes a few tries may be needed."""
    missing = 0
    for _ in range(ATTEMPTS):
        catch_up(UpgradeContext.of(catalog, run), controls)
        missing = _missing(catalog, run.target)
        if not missing:
            break
    return missing
