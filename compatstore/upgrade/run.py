"""Run an upgrade: expand, hop, backfill, ready. Each step is resumable; the same call again goes on or does nothing."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from compatstore.artifacts.network import Precision
from compatstore.errors import CompatStoreWarning
from compatstore.storage import indexes
from compatstore.storage.catalog import Catalog
from compatstore.storage.fragment_counts import FragmentCounts, counts_of
from compatstore.storage.history import HistoryEntry
from compatstore.storage.ledger import Spent
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry, unsearchable
from compatstore.upgrade.backfilling.account import read_account, read_refusals
from compatstore.upgrade.backfilling.backfill import Backfiller, require_encoder
from compatstore.upgrade.expand import expand
from compatstore.upgrade.hop import Hop
from compatstore.upgrade.precision import PrecisionChoice, choose_precision
from compatstore.upgrade.progress import Monitor, Progress
from compatstore.upgrade.refitting.refit import refit
from compatstore.upgrade.refitting.refitter import Refitter
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.upgrade.states import BACKFILL, CUTOVER, READY, advance, set_run
from compatstore.upgrade.transform import transformer_of

CATCH_UP_PASSES = 10


@dataclass(frozen=True)
class Controls:
    """How the caller follows, stops and speeds a run.

    Attributes:
        progress: Called after each batch.
        should_stop: Asked before each batch; true ends the run with `Interrupted`.
        settings: Device, precision, batches, retries and pace. The precision "auto" is decided by `run_upgrade`;
            elsewhere it is float32.
        refit: Corrects the transform by what the backfill has gathered, or None.
    """

    progress: Callable[[Progress], None] | None = None
    should_stop: Callable[[], bool] | None = None
    settings: RunSettings = field(default_factory=RunSettings)
    refit: Refitter | None = None

    def monitor(self, step: str, total: int) -> Monitor:
        """A monitor for one step."""
        return Monitor(step, total, self.progress, self.should_stop)


@dataclass(frozen=True)
class UpgradeResult:
    """What an upgrade did.

    Attributes:
        target: Version upgraded to.
        state: State that it reached.
        transformed: Rows whose vectors this call made or remade by the hop.
        backfilled: Rows that this call embedded natively.
        ended_by: The limit that ended the backfill: backfill (the share), max_rows, max_seconds or max_cost; "" where
            all that can be embedded is.
        spent: What the upgrade's backfill used up in rows, seconds and money, over all calls.
        missing: Rows without a vector in the target.
        embeddable: Items that can be embedded natively, as far as is known.
        unbackfillable: (id, reason) of items that cannot be embedded natively, the first ones.
        num_unbackfillable: How many there are.
        seconds: Time taken.
        precision: What the hop ran in: "float32" or "bfloat16".
        warnings: What speaks against how this call was made.
    """

    target: str
    state: str
    transformed: int
    backfilled: int
    ended_by: str
    spent: Spent
    missing: int
    embeddable: int
    unbackfillable: tuple[tuple[str, str], ...]
    num_unbackfillable: int
    seconds: float
    precision: Precision = "float32"
    warnings: tuple[str, ...] = ()


def require_startable(catalog: Catalog, run: RunRecord) -> None:
    """Refuse to begin what cannot be finished; read-only.

    Raises:
        UpgradeError: A backfill without an encoder.
    """
    if run.backfill > 0 and catalog.registry().record(run.target).columns is None:
        require_encoder(catalog, run.target)


def run_upgrade(catalog: Catalog, run: RunRecord, controls: Controls) -> UpgradeResult:
    """Bring a resolved run to the state ready (or keep it in cutover, with a larger backfill).

    Raises:
        Interrupted: A stop was asked for; the same call goes on.
        UpgradeError: A backfill without an encoder.
    """
    started = time.monotonic()
    run = expand(catalog, run)
    counts = counts_of(catalog.store, catalog.registry(), run.source, run.target)
    choice = _choose(catalog, run, controls, counts)
    controls = replace(controls, settings=replace(controls.settings, precision=choice.precision))
    hop = _hop_of(catalog, catalog.registry(), run, controls)
    transformed = _hop(catalog, run, controls, hop)
    run, backfilled = _backfill(catalog, run, controls, hop.counts)
    if controls.refit is not None:
        run = refit(catalog, run, controls.refit)
        hop = _hop_of(catalog, catalog.registry(), run, controls)
    transformed += catch_up(catalog, run, controls, hop)
    run = _ready(catalog, run, controls)
    registry = catalog.registry()
    spent, failed = read_account(catalog, registry, run)
    missing = hop.counts.count(catalog.store.snapshot(), unsearchable(registry, run.target))
    refusals = read_refusals(catalog, registry, run, failed, hop.counts)
    hop.counts.save()
    return UpgradeResult(
        target=run.target,
        state=run.state,
        transformed=transformed,
        backfilled=backfilled,
        ended_by=run.ended_by,
        spent=spent,
        missing=missing,
        embeddable=refusals.embeddable,
        unbackfillable=refusals.reasons,
        num_unbackfillable=refusals.count,
        seconds=time.monotonic() - started,
        precision=choice.precision,
        warnings=(choice.warning,) if choice.warning else (),
    )


def _choose(catalog: Catalog, run: RunRecord, controls: Controls, counts: FragmentCounts) -> PrecisionChoice:
    """The precision of the hop; a bad choice of the caller's is warned of before hours are spent on it."""
    transformer = transformer_of(catalog, run, device=controls.settings.device) if run.path else None
    rows = counts.count(catalog.store.snapshot(), catalog.registry().columns(run.target).missing)
    choice = choose_precision(catalog, run, transformer, controls.settings.precision, rows)
    if choice.warning:
        warnings.warn(choice.warning, CompatStoreWarning, stacklevel=2)
    return choice


def catch_up(catalog: Catalog, run: RunRecord, controls: Controls, hop: Hop | None = None) -> int:
    """Hop again until a pass finds nothing to do: rows that came or changed meanwhile."""
    hop = hop or _hop_of(catalog, catalog.registry(), run, controls)
    done = 0
    for _ in range(CATCH_UP_PASSES):
        changed = hop.run(controls.monitor("hop", 0))
        done += changed
        if not changed:
            break
    hop.counts.save()
    return done


def _hop_of(catalog: Catalog, registry: Registry, run: RunRecord, controls: Controls) -> Hop:
    transformer = None
    if run.path:
        precision: Precision = "bfloat16" if controls.settings.precision == "bfloat16" else "float32"
        transformer = transformer_of(catalog, run, device=controls.settings.device, precision=precision)
    return Hop.of(catalog.store, registry, run.source, run.target, transformer)


def _hop(catalog: Catalog, run: RunRecord, controls: Controls, hop: Hop) -> int:
    missing = hop.counts.count(catalog.store.snapshot(), catalog.registry().columns(run.target).missing)
    monitor = controls.monitor("hop", missing)
    changed = hop.run(monitor)
    if changed:
        artifact = run.path[-1] if run.path else ""
        entry = HistoryEntry("hop", run.target, artifact=artifact, rows=changed, seconds=round(monitor.seconds, 3))
        set_run(catalog, run, entry)
    return changed


def _backfill(catalog: Catalog, run: RunRecord, controls: Controls, counts: FragmentCounts) -> tuple[RunRecord, int]:
    backfill = Backfiller(catalog, catalog.registry(), run, controls.settings)
    snapshot, native = catalog.store.snapshot(), catalog.registry().columns(run.target).native
    lacking = backfill.account.budget.share_left(snapshot.count_rows(), counts.count(snapshot, native))
    if run.backfill == 0 or not lacking:
        ended = backfill.ended_by(lacking) if run.backfill else run.ended_by
        return set_run(catalog, replace(run, ended_by=ended)), backfill.natives.fold()
    choice = backfill.choice()
    run = replace(run, reads=backfill.run.reads)
    if not len(choice):
        return set_run(catalog, replace(run, ended_by=backfill.ended_by(choice.lacking))), backfill.natives.fold()
    if run.state not in (BACKFILL, CUTOVER, READY):
        run = advance(catalog, run, BACKFILL)
    monitor = controls.monitor("backfill", backfill.allowed(len(choice)))
    rows = backfill.embed(choice, monitor)
    run = replace(run, ended_by=backfill.ended_by(choice.lacking))
    if not rows:
        return set_run(catalog, run), 0
    note = f"{Budget.of(run)} in {run.policy} order"
    entry = HistoryEntry("backfill", run.target, rows=rows, seconds=round(monitor.seconds, 3), note=note)
    return advance(catalog, run, BACKFILL, entry), rows


def _ready(catalog: Catalog, run: RunRecord, controls: Controls) -> RunRecord:
    """Index the target as the source is, and wait for the word to cut over."""
    if run.state in (READY, CUTOVER):
        return run
    registry = catalog.registry()
    source, target = registry.columns(run.source), registry.columns(run.target)
    monitor = controls.monitor("index", catalog.store.count(target.present))
    built = indexes.mirror(
        catalog.store,
        source.vector,
        target.vector,
        target.width,
        registry.record(run.target).metric,
        begins=monitor.begin,
    )
    if built:
        monitor.finish()
    note = "indexed as the source is" if built else ""
    return advance(catalog, run, READY, HistoryEntry("ready", run.target, note=note))
