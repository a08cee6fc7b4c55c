"""The status of a gallery: versions with their rows, and upgrades with their states and activities; read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compatstore.evaluation.fusion import Measurement, Serving
from compatstore.shown import Shown
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import first_of
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.records import RunRecord, Spent, VersionRecord
from compatstore.storage.registry import Registry, bridge_to, unsearchable
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.staging import Staging
from compatstore.upgrade.backfilling.account import SpentBySearches, read_account, read_refusals, read_spent
from compatstore.upgrade.backfilling.embeddable import Left
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import WaveMeasurement, read_waves, warnings_of_run
from compatstore.upgrade.leases.lease import FAILED, PAUSED, RUNNING, Lease, lease_in
from compatstore.upgrade.states import ABORTED, BACKFILL, CUTOVER, EXPAND, HOP, READY, RETIRED, ROLLED_BACK

INTERRUPTED, WAITING = "interrupted", "waiting"
UPGRADE = "upgrade"


@dataclass(frozen=True)
class Activity:
    """One upgrade, now.

    Attributes:
        doing: running; or the reason why it does not run: waiting (for a cutover or a retirement), paused (a stop was
            requested), failed, or interrupted (the worker exited without releasing its lease).
        verb: Current or last operation: upgrade, cutover, ...; "" before the first one.
        holder: The current or last worker, "" without one.
        since: Start, ISO 8601, UTC.
        expires: End of the lease unless it is renewed, ISO 8601, UTC; "" if it is not held.
        step: expand, hop, backfill, ...
        done: Rows that the step has done in this call.
        total: Rows that it has to do in this call, as far as known.
        rate: Rows per second since the step began.
        eta: Remaining seconds of the step at this rate; None if unknown.
        error: The last error, "" without one since work ended well.
        error_at: ISO 8601, UTC.
    """

    doing: str
    verb: str = ""
    holder: str = ""
    since: str = ""
    expires: str = ""
    step: str = ""
    done: int = 0
    total: int = 0
    rate: float = 0.0
    eta: float | None = None
    error: str = ""
    error_at: str = ""


def activity_of(run: RunRecord, lease: Lease | None) -> Activity:
    """The activity of an upgrade whose lease was just read."""
    doing = _doing(run, lease)
    if lease is None:
        return Activity(doing)
    known: dict[str, Any] = {name: getattr(lease, name) for name in ("verb", "since", "error", "error_at")}
    expires, eta = (lease.expires, lease.pulse.eta) if doing == RUNNING else ("", None)
    return Activity(doing, holder=str(lease.holder), expires=expires, eta=eta, **known, **vars(lease.pulse))


def _doing(run: RunRecord, lease: Lease | None) -> str:
    unfinished = run.state in (EXPAND, HOP, BACKFILL)
    if lease is None:
        return INTERRUPTED if unfinished else WAITING
    if lease.held:
        return INTERRUPTED if lease.abandoned else RUNNING
    if lease.verb == UPGRADE and lease.outcome == FAILED and run.open:
        return FAILED
    return PAUSED if unfinished else WAITING


_WAITING = {
    EXPAND: "to be run",
    HOP: "the hop to finish",
    BACKFILL: "the backfill to finish",
    READY: "a cutover",
    CUTOVER: "the previous version to be retired",
    ROLLED_BACK: "nothing: rolled back",
    RETIRED: "nothing: finished",
    ABORTED: "nothing: aborted",
}


@dataclass(frozen=True)
class VersionStatus:
    """One embedding version of a gallery.

    Attributes:
        name: Its name.
        state: active, live (vectors in the table), registered (none yet) or retired.
        dim: Values of a vector.
        metric: Distance.
        fingerprint: Digest of the model.
        encoder: Spec of its encoder, "" if vectors come from outside.
        native: Rows with a native vector.
        transformed: Rows with a vector that an artifact made.
        bridged: Rows without a vector of this version that its queries find through an artifact.
        missing: Rows that no query of this version finds.
        recall: Share of the 10 nearest items that searches found when the index was built, or None without one.
    """

    name: str
    state: str
    dim: int
    metric: str
    fingerprint: str
    encoder: str
    native: int
    transformed: int
    bridged: int
    missing: int
    recall: float | None = None


@dataclass(frozen=True)
class RunStatus(Shown):
    """One upgrade.

    Attributes:
        source: Version upgraded from.
        target: Version upgraded to.
        state: State of the upgrade.
        waiting_for: The next event, such as "a cutover".
        activity: The worker and its rate, or the reason why there is none.
        staged: Natives that are durable, but not in the table yet.
        path: Short ids of the artifacts applied.
        serving: Default serving mode of searches: source, target, or fused.
        weight: Weight of the target's distances in the chosen fusion; None without one.
        choice: The sample on which that weight was chosen, its gain, and the loss when the source is retired; None if
            the caller set the weight.
        backfill: Requested share.
        policy: Order of the backfill.
        spent: Items, seconds and money that the backfill has used, over all calls.
        searched: Items and money that searches by a cascade have used.
        ended_by: The limit that ended the backfill, or "".
        missing: Once the hop is over, the first ids of items that no query of the target finds: they have nothing to be
            transformed from, or the transform gives nothing that a search could find.
        embeddable: Items that can be embedded natively, as far as is known.
        unbackfillable: Items that cannot be.
        reasons: The first of them, with reasons.
        warnings: Warnings if the current serving was measured to be below the status quo.
        waves: Training rounds of a self-training upgrade, oldest first.
        left: Remaining budget of the backfill; None if no work follows.
    """

    source: str
    target: str
    state: str
    waiting_for: str
    activity: Activity
    staged: int
    path: tuple[str, ...]
    serving: Serving
    weight: float | None
    choice: Measurement | None
    backfill: float
    policy: str
    spent: Spent
    searched: SpentBySearches
    ended_by: str
    missing: tuple[str, ...]
    embeddable: int
    unbackfillable: int
    reasons: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    waves: tuple[WaveMeasurement, ...] = ()
    left: Left | None = None


@dataclass(frozen=True)
class StoreStatus:
    """A store beside its gallery, as the last sync knows it.

    Attributes:
        store: Address of the collection.
        rows: Rows that it held.
        source: Version of the app's vectors before a switch.
        held: Target to the number of its vectors that the store holds.
        switched: Target that the app reads; "" before a switch.
        tracked: True if the store records the rows that the app changes.
    """

    store: str
    rows: int
    source: str
    held: Mapping[str, int]
    switched: str
    tracked: bool = False


@dataclass(frozen=True)
class Status(Shown):
    """The status of a gallery.

    Attributes:
        gallery: Its address.
        rows: Items.
        active: Version that searches use.
        missing: Items without a vector in the active version; these are not found.
        table_version: Lance's version number of the table.
        versions: All versions.
        upgrades: All upgrades that are not over.
        store: The store that the gallery mirrors, or None.
    """

    gallery: str
    rows: int
    active: str
    missing: int
    table_version: int
    versions: tuple[VersionStatus, ...]
    upgrades: tuple[RunStatus, ...]
    store: StoreStatus | None = None


def read_status(catalog: Catalog) -> Status:
    """Count and report; read-only."""
    snapshot = catalog.store.snapshot()
    registry = catalog.registry(snapshot)
    leases = LeaseTable(catalog.store.location).read()
    contexts = [
        UpgradeContext.of(catalog, run, snapshot)
        for run in registry.runs.values()
        if run.state not in (RETIRED, ABORTED)
    ]
    versions = tuple(_version(snapshot, registry, record, contexts) for record in registry.versions.values())
    return Status(
        gallery=catalog.store.location.uri,
        rows=snapshot.count_rows(),
        active=registry.active,
        missing=next(version.missing for version in versions if version.name == registry.active),
        table_version=snapshot.version,
        versions=versions,
        upgrades=tuple(_run(context, lease_in(leases, context.run.target)) for context in contexts),
    )


def _served(context: UpgradeContext) -> Serving:
    if context.registry.fusion_served(context.run.target) is not None:
        return "fused"
    return "target" if context.registry.active == context.run.target else "source"


def _version(
    snapshot: Snapshot, registry: Registry, record: VersionRecord, contexts: Sequence[UpgradeContext]
) -> VersionStatus:
    native = transformed = 0
    if record.columns is not None:
        mine = (one for one in contexts if one.has_both and record.name in (one.run.source, one.run.target))
        counting = next(mine, None)
        if counting is not None:
            native, transformed = counting.filled(record.name)
        else:
            native, transformed = map(snapshot.count_rows, (record.columns.native, record.columns.transformed))
    bridged, absent = 0, snapshot.count_rows() - native - transformed
    bridge = bridge_to(registry, record.name)
    if absent and bridge is not None:
        source = registry.columns(bridge.source).present
        bridged = snapshot.count_rows(
            source if record.columns is None else f"({record.columns.missing}) AND ({source})"
        )
    return VersionStatus(
        **{name: getattr(record, name) for name in ("name", "dim", "metric", "encoder", "recall")},
        state=_state(registry, record),
        fingerprint=record.version().fingerprint,
        native=native,
        transformed=transformed,
        bridged=bridged,
        missing=absent - bridged,
    )


def _state(registry: Registry, record: VersionRecord) -> str:
    if record.name == registry.active:
        return "active"
    if record.columns is not None:
        return "live"
    return "retired" if record.retired else "registered"


def _missing(context: UpgradeContext) -> tuple[str, ...]:
    registry, run = context.registry, context.run
    if run.state not in (READY, CUTOVER):
        return ()
    condition = unsearchable(registry, run.target)
    if not context.count(condition):
        return ()
    return tuple(map(str, first_of(context.snapshot, registry.id_column, condition)))


def _run(context: UpgradeContext, lease: Lease | None) -> RunStatus:
    run = context.run
    spent, failed = read_account(context)
    refusals, fusion = read_refusals(context, failed), context.registry.fusion_of(run.target)
    staged = len(Staging.of(context.store, context.registry, run.target, run))
    working = run.state in (EXPAND, HOP, BACKFILL) and not run.ended_by
    return RunStatus(
        source=run.source,
        target=run.target,
        state=run.state,
        waiting_for=_WAITING.get(run.state, "a release that knows this state"),
        activity=activity_of(run, lease),
        staged=staged,
        path=tuple(artifact_id[:12] for artifact_id in run.path),
        serving=_served(context),
        weight=None if fusion is None else fusion.weight,
        choice=None if fusion is None else fusion.choice,
        backfill=run.backfill,
        policy=run.policy,
        spent=spent,
        searched=read_spent(context.store.location, run),
        ended_by=run.ended_by,
        missing=_missing(context),
        embeddable=refusals.embeddable,
        unbackfillable=refusals.count,
        reasons=refusals.reasons,
        warnings=warnings_of_run(context),
        waves=read_waves(context.catalog, run.target) if run.teaches else (),
        left=Left.of(context, spent, staged) if working else None,
    )
