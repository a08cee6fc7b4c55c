"""Run an upgrade: expand, hop, index, backfill, ready.

Each step is resumable; the same call again goes on or does nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from compatstore.artifacts.network import Precision
from compatstore.errors import CompatStoreError
from compatstore.evaluation.curve import native_count
from compatstore.shown import Shown
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import CHOSEN, RunRecord, Spent
from compatstore.storage.registry import unsearchable
from compatstore.upgrade.backfilling.account import read_account, read_refusals
from compatstore.upgrade.backfilling.backfill import Backfiller
from compatstore.upgrade.backfilling.embeddable import Left, count_embeddable
from compatstore.upgrade.backfilling.embedding import require_encoder
from compatstore.upgrade.backfilling.policies import AT_RANDOM, RANDOM, reads_sigma
from compatstore.upgrade.backfilling.policy_inputs import TableRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.engines.engine import Engine
from compatstore.upgrade.estimates.estimate import LEARN, WaveMeasurement, read_waves
from compatstore.upgrade.full_backfill import LearningTakesLonger, choose_full_backfill, full_backfill_of, reason_of
from compatstore.upgrade.hop import Hop, expand
from compatstore.upgrade.indexing import build_target, refresh_target
from compatstore.upgrade.learning import (
    GAIN,
    has_no_gain,
    how_searched,
    learn,
    left_to_transform,
    reached,
    require_known,
    require_reached,
    serve_as_learned,
)
from compatstore.upgrade.progress import Monitor, Observer
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.upgrade.states import BACKFILL, CUTOVER, READY, advance, require_open, set_run, steps_since_the_last
from compatstore.upgrade.training_pairs import LEAST_GROWTH, Learner, wave_of
from compatstore.upgrade.transform import choose_precision, transformer_of

CATCH_UP_PASSES = 10


@dataclass(frozen=True)
class Controls(Observer):
    """Controls of the caller: progress, stop and settings of a run.

    Attributes:
        settings: Device, precision, batches, retries and pace. The precision "auto" is decided by `run_upgrade`;
            elsewhere it is float32.
        engine: Engine of the hop and of the backfill's encoders.
        learner: Fits the transform of a self-training upgrade on its embedded items, or None.
        gates: Gates of such an upgrade.
        found: Result of its last training round, reported with all progress.
    """

    settings: RunSettings = field(default_factory=RunSettings)
    engine: Engine = field(default_factory=Engine)
    learner: Learner | None = None
    gates: Gates = field(default_factory=Gates)
    found: str = ""

    def monitor(self, step: str, total: int) -> Monitor:
        """A monitor for one step."""
        return Monitor(step, total, self.progress, self.should_stop, self.found)


@dataclass(frozen=True)
class UpgradeResult(Shown):
    """The result of an upgrade.

    Attributes:
        target: Version upgraded to.
        state: State that it reached.
        transformed: Rows whose vectors this call made or remade by the hop.
        backfilled: Rows that this call embedded natively.
        ended_by: The limit that ended the backfill: backfill (the share), max_rows, max_seconds or max_cost; for a
            self-training upgrade also target_quality, or gain if more natives do not pay; "" if all embeddable items
            are embedded.
        spent: Spending of the upgrade's backfill in rows, seconds and money, over all calls.
        missing: Rows without a vector in the target.
        embeddable: Items that can be embedded natively, as far as is known.
        unbackfillable: (id, reason) of items that cannot be embedded natively, the first ones.
        num_unbackfillable: Number of such items.
        seconds: Time taken.
        precision: Precision of the hop: "float32" or "bfloat16".
        rounds: Results of the training rounds of this call, a sentence for each round.
        waves: Results after each wave, of all calls.
        served: Serving of such an upgrade until its cutover, as a sentence; "" for other upgrades.
        full_backfill: Why such an upgrade embeds everything instead of learning, as a sentence; "" if it does not.
        has_no_gain: True if all ways to serve the fitted transform were measured, and none is significantly better.
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
    rounds: tuple[str, ...] = ()
    waves: tuple[WaveMeasurement, ...] = ()
    served: str = ""
    full_backfill: str = ""
    has_no_gain: bool = False


def require_startable(context: UpgradeContext, gates: Gates) -> None:
    """Refuse an upgrade that cannot be finished, before it begins; read-only.

    Args:
        context: The upgrade, resolved.
        gates: Gates of the upgrade.

    Raises:
        UpgradeError: A backfill without an encoder.
        InvalidInput: The upgrade is self-training, and a gate is of a figure that it cannot measure.
    """
    if context.run.teaches:
        require_known(context, gates)
    if context.run.backfill > 0 and context.target_record.columns is None:
        require_encoder(context.catalog, context.run.target)


def run_upgrade(context: UpgradeContext, controls: Controls) -> UpgradeResult:
    """Bring a resolved run to the state ready (or keep it in cutover, with a larger backfill).

    Raises:
        Interrupted: A stop was requested; the same call goes on. Or an earlier version of the table was restored, which
            does not know the upgrade; the same call begins it again.
        UpgradeError: A backfill without an encoder.
        TableChanged: Another writer dropped, renamed or replaced columns.
    """
    started = time.monotonic()
    context = context.later(expand(context))
    try:
        return _run_expanded(context, controls, started)
    except CompatStoreError:
        raise
    except Exception:  # Lance's own error of a column that is gone
        require_open(context.catalog.registry(), context.run.target)
        raise


def _run_expanded(context: UpgradeContext, controls: Controls, started: float) -> UpgradeResult:
    settings, rows, before = controls.settings, context.count(context.target.missing), _rounds(context)
    tried = transformer_of(context.catalog, context.run, device=settings.device) if context.run.path else None
    precision = choose_precision(context, tried, settings.precision, rows)
    controls = replace(controls, settings=replace(settings, precision=precision))
    transformed = _hop(context, controls)
    if context.run.state not in (READY, CUTOVER):
        build_target(context.later(), controls)
    if context.run.teaches and controls.learner is not None:
        run, backfilled, more = _teach_itself(context.later(), controls, controls.learner)
        transformed += more
    else:
        run, backfilled = _backfill(context.later(), controls)
    transformed += catch_up(context.later(run), controls)
    run = _ready(context.later(run), controls, busy=bool(transformed or backfilled))
    context = context.later(run)
    spent, failed = read_account(context)
    missing = context.count(unsearchable(context.registry, run.target))
    refusals = read_refusals(context, failed)
    for version in (run.source, run.target):
        context.filled(version)  # like a status, so that a status reads only later changes
    context.save_counts()
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
        precision=precision,
        rounds=_rounds(context)[len(before) :],
        waves=read_waves(context.catalog, run.target) if run.teaches else (),
        served=how_searched(context) if run.learned_at else "",
        full_backfill=reason_of(context),
        has_no_gain=has_no_gain(context),
    )


def _rounds(context: UpgradeContext) -> tuple[str, ...]:
    """Results of all training rounds of the upgrade, as the history has them."""
    known = steps_since_the_last(context.catalog, context.run.target, LEARN) if context.run.teaches else []
    return tuple(entry.note for entry in known)


def catch_up(context: UpgradeContext, controls: Controls) -> int:
    """Hop again until a pass finds nothing to do: rows that came or changed meanwhile."""
    hop, done = _hop_of(context, controls), 0
    for _ in range(CATCH_UP_PASSES):
        changed = hop.run(controls.monitor("hop", 0))
        done += changed
        if not changed:
            break
    context.save_counts()
    return done


def _hop_of(context: UpgradeContext, controls: Controls) -> Hop:
    transformer, settings = None, controls.settings
    if context.run.path:
        precision: Precision = "float32" if settings.precision == "auto" else settings.precision
        transformer = transformer_of(context.catalog, context.run, device=settings.device, precision=precision)
    return Hop.of(context, transformer, controls.engine)


def _hop(context: UpgradeContext, controls: Controls) -> int:
    run, monitor = context.run, controls.monitor("hop", context.count(context.target.missing))
    changed = _hop_of(context, controls).run(monitor)
    if changed:
        artifact = run.path[-1] if run.path else ""
        entry = HistoryEntry("hop", run.target, artifact=artifact, rows=changed, seconds=round(monitor.seconds, 3))
        set_run(context.catalog, run, entry)
    return changed


def _teach_itself(context: UpgradeContext, controls: Controls, learner: Learner) -> tuple[RunRecord, int, int]:
    """Embed, learn and hop, wave by wave, until the budget or the target quality is reached.

    Each wave begins where the table says that the upgrade is, so that a call goes on where another one was stopped.

    Raises:
        GateFailed: At the end of the budget a gate is not met at the confidence level; embedded items stay.
    """
    run, backfilled, transformed, ended = serve_as_learned(context, controls.gates), 0, 0, False
    shown: tuple[int, str] | None = None
    while not ended:
        context = context.later(run)
        if shown != (run.learned_at, run.full_backfill):  # not for natives that are made up for within a wave
            shown = (run.learned_at, run.full_backfill)
            controls = replace(controls, found=_picture(context))
        wave, everything = wave_of(context, learner), run.full_backfill == CHOSEN
        if everything or wave.full <= LEAST_GROWTH * run.learned_at:  # a handful of new pairs waits for the next wave
            if reached(context, controls.gates):
                run = set_run(context.catalog, replace(run, ended_by="target_quality"))
                break
            if run.ended_by == GAIN and learner.least_gain is not None:
                break
            goal = context.count() if everything else wave.goal
            run, rows = _backfill(context, controls, upto=goal)
            backfilled += rows
            context = context.later(run)
            natives = context.count(context.target.native)
            ended = everything or bool(run.ended_by) or (natives < goal and not rows)
            if natives < goal and not ended:  # natives were deleted meanwhile
                continue
            if ended and natives <= LEAST_GROWTH * run.learned_at:
                break
            if not run.path and not controls.gates.asked and not left_to_transform(context):
                break
        full = full_backfill_of(context, learner, controls.gates)
        limit = run.ended_by
        try:
            run = learn(context, learner, controls.gates, controls.monitor("learn", 0), full)
        except LearningTakesLonger as slow:
            assert full is not None, "it is compared with one"
            run, ended = choose_full_backfill(context, full.reason(slow.seconds)), False
            continue
        if ended and run.ended_by != limit:
            run = set_run(context.catalog, replace(run, ended_by=limit))
        transformed = max(transformed, catch_up(context.later(run), controls))  # each round makes the same items again
        run = serve_as_learned(context.later(run), controls.gates)
    require_reached(context, controls.gates)
    return run, backfilled, transformed


def _picture(context: UpgradeContext) -> str:
    """The result of the last wave, and the remaining budget, a line each; or why no wave follows. "" before."""
    reason, waves = reason_of(context), read_waves(context.catalog, context.run.target)
    if reason or not waves:
        return reason
    spent, _ = read_account(context)
    left = Left.of(context, spent)
    return "\n  ".join((f"wave {len(waves)}, {waves[-1].lines[0]}", waves[-1].lines[1], str(left)))


def _backfill(context: UpgradeContext, controls: Controls, *, upto: int | None = None) -> tuple[RunRecord, int]:
    """Embed as many items as the budget allows.

    Args:
        context: The upgrade as of now.
        controls: Progress, stop and settings.
        upto: Maximum number of native items, in a self-training upgrade.
    """
    catalog, run = context.catalog, context.run
    drawn = context.with_run(replace(run, policy=_policy(context))) if upto is not None else context
    backfill = Backfiller(drawn, controls.settings, upto=upto, engine=controls.engine)
    items, natives = context.count(), context.count(context.target.native)
    lacking = 0 if backfill.account.ended_by else max(native_count(backfill.share, items) - natives, 0)
    if run.backfill == 0 or not lacking or _all_tried(backfill):
        ended = backfill.ended_by(lacking) if run.backfill else run.ended_by
        return set_run(catalog, replace(run, ended_by=ended)), backfill.natives.fold()
    choice = backfill.choice()
    run = replace(run, reads=backfill.context.run.reads)
    if not len(choice):
        return set_run(catalog, replace(run, ended_by=backfill.ended_by(choice.lacking))), backfill.natives.fold()
    if run.state not in (BACKFILL, CUTOVER, READY):
        run = advance(catalog, run, BACKFILL)
    monitor = controls.monitor("backfill", backfill.allowed(len(choice)))
    monitor.cost = backfill.account.spent.cost
    monitor.begin()  # the first batch may load the model
    rows = backfill.embed(choice, monitor)
    run = replace(run, ended_by=backfill.ended_by(choice.lacking))
    if not rows:
        return set_run(catalog, run), 0
    note = f"{Budget.of(run)} in {run.policy} order"
    entry = HistoryEntry("backfill", run.target, rows=rows, seconds=round(monitor.seconds, 3), note=note)
    return advance(catalog, run, BACKFILL, entry), rows


def _all_tried(backfill: Backfiller) -> bool:
    """True if the counts show that nothing is left to embed, so that no row has to be read."""
    if backfill.settings.retry_unbackfillable or len(backfill.natives.waiting()):
        return False
    counted = count_embeddable(backfill.context, backfill.account.failed.num_rows)
    return counted.native >= counted.most


def _policy(context: UpgradeContext) -> str:
    """The order of a wave: drawn at random until a transform is learned, so that natives stand for the gallery.

    An order by sigma falls back to that as well if the fitted transform does not predict it.
    """
    run = context.run
    if run.policy in AT_RANDOM:
        return run.policy
    predicted = not reads_sigma(run.policy) or TableRows(context).predicts_uncertainty
    return run.policy if run.learned_at and predicted else RANDOM


def _ready(context: UpgradeContext, controls: Controls, *, busy: bool) -> RunRecord:
    """Bring the target's index up to date, and wait for the word to cut over.

    Args:
        context: The upgrade as of now.
        controls: Progress and stop.
        busy: Whether this call made vectors.
    """
    catalog, run = context.catalog, context.run
    before = run.state in (READY, CUTOVER)
    note = "" if before and not busy else refresh_target(context, controls)
    if before:
        return run
    note = note or build_target(context, controls)
    return advance(catalog, run, READY, HistoryEntry("ready", run.target, note=note))
