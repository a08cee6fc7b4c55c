"""Self-training upgrade: fits transforms on natively embedded items and selects one by its quality as served.

Each pair of a training round (`training_pairs.py`) is also a query, for transforms fitted without it: cross-validation
keeps all pairs in use, and evaluates none on a transform that was trained on it. The hop uses the transform that serves
best. Searches stay unchanged until the fusion of both versions is significantly better.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from compatstore import next_step
from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.artifacts.runners import one_thread_each
from compatstore.errors import InvalidInput
from compatstore.evaluation.fusion import Fusion, Serving
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import ArtifactRecord, RunRecord, ServingRecord
from compatstore.storage.registry import Registry, edit
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import LEARN, Round, UpgradeEstimate, load_estimate, save_estimate
from compatstore.upgrade.estimates.fusing import native_share, serve
from compatstore.upgrade.estimates.queries import require_enough
from compatstore.upgrade.estimates.sample import require_labels
from compatstore.upgrade.full_backfill import FullBackfill, LearningTakesLonger
from compatstore.upgrade.judging import Evaluation, JudgedTransform, gallery_to_search, most_searched
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.requests.gates import Gates, check_gates, require_measurable, require_passed
from compatstore.upgrade.requests.queries import Queries, column_of, has_ground_truth
from compatstore.upgrade.states import BACKFILL, CUTOVER, require_open, set_run
from compatstore.upgrade.training_pairs import (
    FEWEST_PAIRS,
    CurrentTransform,
    FittedTransform,
    Learner,
    TrainingPairs,
    allowance_of,
    current_transform,
    training_pairs_of,
)

NEW = 1 / 3  # minimum share of new evaluation pairs to re-evaluate the current transform
MEASUREMENTS = 5  # approximate number after the fits of a round: of three transforms, and two more
GAIN = "gain"  # the end reason of a run without further gain


@one_thread_each()  # of BLAS: products this small take several times the processor's time in several threads
def learn(
    context: UpgradeContext, learner: Learner, gates: Gates, monitor: Monitor, full: FullBackfill | None = None
) -> RunRecord:
    """Fit transforms on the native items, and select the best one as served; the history records the result.

    Args:
        context: The upgrade as of now.
        learner: Fits the transforms.
        gates: Gates and criterion of the evaluation.
        monitor: Progress and stop, over the whole training round.
        full: The full backfill that is chosen instead if it is faster; None if none may be.

    Returns:
        The run, with the artifact as its path if one was selected, and `ended_by` if more does not pay.

    Raises:
        InvalidInput: There is no such column of labels.
        Interrupted: A stop was requested, or the run was ended meanwhile.
        LearningTakesLonger: Training would take longer than the full backfill; nothing was written.
    """
    run, natives = context.run, context.count(context.target.native)
    tried = replace(run, learned_at=natives)
    training, judges = training_pairs_of(context, gates, allowance_of(context, learner))
    if len(judges) < FEWEST_PAIRS:
        return _note(context, tried, f"too few pairs: {len(judges)}, at least {FEWEST_PAIRS} are needed")
    share = native_share(context)
    form = VectorForm.of(context.target_record)
    current = current_transform(context, training)
    stays = None if left_to_transform(context) else current  # where all are native, only a weight is chosen
    steps = _RoundSteps(monitor, full)
    candidates = learner.train(training, steps.fitted) if stays is None else []
    usable = [one for one in candidates if form.searchable(one.transformed).all()]
    if not usable and stays is None:
        return _note(context, tried, f"no method can learn from {len(training)} pairs")
    searched = gallery_to_search(context, gates)
    evaluation = Evaluation(context=context, training=training, gates=gates, share=share, searched=searched)

    def judge(one: FittedTransform, judges: Positions) -> JudgedTransform:
        judged = evaluation.judge(one, judges)
        steps.next()
        return judged

    judged = [judge(one, judges) for one in usable]
    unseen = judges if current is None else judges[current.unseen[judges]]
    if stays is not None:
        best, taken = judge(stays.transform, judges), False
    elif run.path == (run.given,) and (current is None or len(unseen) < FEWEST_PAIRS):
        steps.end()
        return _note(context, tried, "kept: too few pairs that it was not trained on compare it with others")
    elif current is None or len(unseen) < FEWEST_PAIRS:
        best, taken = _best(judged), True
    else:
        # The figures must describe the transform that stays in use: the current one if none is significantly better.
        now, has_truth = judge(current.transform, unseen), has_ground_truth(gates.labels)

        def is_better(one: FittedTransform) -> bool:
            if not has_truth:
                return _comes_nearer(training, current, one)
            again = judge(one, unseen)
            return _serves_better(again, now) or (again.figure >= now.figure and _comes_nearer(training, current, one))

        better = [one for one in judged if is_better(one.transform)]
        best, taken = _best(better or [now]), bool(better)
        if not taken and searched is None and len(unseen) < NEW * len(judges):
            # More queries have chosen how it is searched, for larger shares too, than could now.
            steps.end()
            return _note(context, tried, f"kept after {len(training)} pairs, too few new ones to re-evaluate")
    if searched is None:
        fusion, pays = best.fusion_for_shares(context, share, learner.least_gain)
    else:
        fusion, pays = best.fusion_as_it_is(share), True
    steps.next()
    tried = replace(tried, ended_by="" if pays else GAIN)
    record = None
    if taken:
        record = context.catalog.add_artifact(best.transform.artifact, run.source, run.target)
        state = CUTOVER if run.state == CUTOVER else BACKFILL
        tried = replace(tried, path=(record.id,), state=state)
    estimate = _estimate(context.with_run(tried), best, fusion, share, gates)
    what = f"{best.transform.name} learned from {len(training)} pairs" if taken else f"kept after {len(training)} pairs"
    learned = _take(context, tried, record, fusion, estimate, what)
    steps.end()
    return learned


class _RoundSteps:
    """Steps of a training round: fits, measurements, the choice of weights and the estimate; the last one ends it.

    Args:
        monitor: Called after each step.
        full: The full backfill that ends the training round if it is faster; or None.
    """

    def __init__(self, monitor: Monitor, full: FullBackfill | None) -> None:
        self._monitor, self._full, self._done, self._total = monitor, full, 0, MEASUREMENTS
        self._last = time.perf_counter()
        monitor.begin()

    def fitted(self, done: int, total: int, seconds: float) -> None:
        """Count fits.

        Raises:
            LearningTakesLonger: The others take longer than the full backfill.
        """
        self._done, self._total, self._last = done, total + MEASUREMENTS, time.perf_counter()
        self._monitor.reach(done, self._total)
        self._require_faster(seconds)

    def next(self) -> None:
        """Count a measurement, before anything is written; the last step is `end`.

        Raises:
            LearningTakesLonger: As many of them as are left take longer than the full backfill.
        """
        self._done, began = min(self._done + 1, self._total - 1), self._last
        self._last = time.perf_counter()
        self._monitor.reach(self._done, self._total)
        self._require_faster((self._last - began) * (self._total - self._done))

    def _require_faster(self, seconds: float) -> None:
        if self._full is not None and self._full.is_faster(seconds):
            raise LearningTakesLonger(seconds)

    def end(self) -> None:
        """Count all as done; a requested stop waits until the training round is served."""
        self._monitor.finish()


def left_to_transform(context: UpgradeContext) -> int:
    """Items of the source that have no native vector in the target; those that the target alone has are none."""
    present, native = context.source.present, context.target.native
    return context.count(present) - context.count(f"({present}) AND ({native})")


def require_known(context: UpgradeContext, gates: Gates) -> None:
    """Refuse missing labels and queries, and gates that training cannot measure, before anything is embedded.

    The pairs of a training round are a sample. Application queries search a small gallery as a whole, with its natives.

    Raises:
        InvalidInput: There is no such column of labels, or a figure other than mAP or, with queries, a share of a full
            backfill's figure is required.
        UpgradeError: Too few queries have a correct item in the gallery.
    """
    require_labels(context.snapshot.schema, context.run.target, column_of(gates.labels))
    complete = by_queries = False
    if isinstance(gates.labels, Queries) and gates.labels.judged:
        require_enough(context, gates.labels)
        by_queries, complete = True, context.count(context.source.present) <= most_searched(gates.labels)
    if by_queries and gates.target_quality is not None:
        wanted = next_step.either(shell="--require 'map>=0.6'", python='Gates(require=["map>=0.6"])')
        raise InvalidInput(
            "train an upgrade up to a target quality by queries",
            expected=f"figures to reach: {next_step.option('require', within='Gates')}",
            found=f"target_quality={gates.target_quality:g}, relative to an unknown full backfill",
            fix=f"Set the figures to reach, such as {wanted}, or leave "
            f"{next_step.either(shell='--queries', python='the queries')} out.",
        )
    require_measurable(gates, 1.0, complete=complete)


def require_reached(context: UpgradeContext, gates: Gates) -> None:
    """Refuse to be ready if a gate is not met at the confidence level, by the last training round.

    Raises:
        GateFailed: One is not.
    """
    estimate = load_estimate(context.catalog, context.run.target)
    if gates.require and estimate is not None:
        more = f"Embed more: {next_step.option('backfill')}."
        fix = f"Embedded items are kept, and searches go on as they are served now. {more}"
        require_passed(context.run.target, check_gates(estimate.row, gates), fix=fix)


def reached(context: UpgradeContext, gates: Gates) -> bool:
    """True if the current native share significantly reaches the target quality, by the last training round."""
    estimate = load_estimate(context.catalog, context.run.target)
    if gates.target_quality is None or estimate is None:
        return False
    kept = estimate.row.kept.get(estimate.table.criterion)
    return kept is not None and kept.low >= gates.target_quality


def _best(judged: Sequence[JudgedTransform]) -> JudgedTransform:
    return max(judged, key=lambda one: one.figure) if len(judged) > 1 else judged[0]


def _comes_nearer(training: TrainingPairs, current: CurrentTransform, transform: FittedTransform) -> bool:
    """True if another transform is closer to the natives, on pairs that the current one was not trained on."""
    natives = training.target[current.unseen]
    return _is_significant(
        _errors(current.transform.transformed[current.unseen], natives)
        - _errors(transform.transformed[current.unseen], natives)
    )


def _serves_better(judged: JudgedTransform, now: JudgedTransform) -> bool:
    """True if the same queries find significantly more by one transform than by the current one, both as served.

    Used only with ground truth: classification losses need not bring items near to their natives. With few queries
    these figures are less sensitive than distances; so a transform that is closer is also taken, unless the queries
    find less by it.
    """
    counted = judged.found.counted & now.found.counted
    return _is_significant(judged.values[counted] - now.values[counted])


def _is_significant(gains: Doubles) -> bool:
    """True if the mean gain is significant (one-sided, 2 standard errors)."""
    return bool(gains.mean() > 2 * gains.std() / len(gains) ** 0.5)


def _errors(made: FloatArray, native: FloatArray) -> Doubles:
    apart = made.astype(np.float64) - native
    squares: Doubles = np.einsum("nd,nd->n", apart, apart)
    return squares


def _take(
    context: UpgradeContext,
    run: RunRecord,
    record: ArtifactRecord | None,
    fusion: Fusion,
    estimate: UpgradeEstimate,
    what: str,
) -> RunRecord:
    """Store the choice in one commit: the artifact in the run's path, the fusion of both versions, and its estimate."""

    def change(registry: Registry) -> Registry:
        open_run = require_open(registry, run.target)
        known = registry.serving.get(run.target)
        same = known is not None and known.began == open_run.identity
        serving = known.serving if known is not None and same else "target"
        if record is not None:
            registry = registry.with_artifact(record)
        return registry.with_run(run).with_serving(
            ServingRecord(run.target, open_run.identity, fusion, column_of(estimate.terms.labels), serving)
        )

    alone = fusion.choice.alone if fusion.choice is not None and estimate.terms.serving == "target" else None
    note = f"{what}; {fusion.weighed if alone is None else f'{run.target} alone: {alone}'}"
    entry = estimate.entry(run.target, step=LEARN, artifact=run.path[-1], rows=run.learned_at, note=note)
    edit(context.catalog.store, change, entry)
    return run


def _note(context: UpgradeContext, run: RunRecord, why: str) -> RunRecord:
    return set_run(context.catalog, run, HistoryEntry(LEARN, run.target, rows=run.learned_at, note=why))


def _estimate(
    context: UpgradeContext, best: JudgedTransform, fusion: Fusion, share: float, gates: Gates
) -> UpgradeEstimate:
    """The estimate of every way to serve the gallery with a transform, with what the training round adds."""
    share, alone, (spent, _) = min(round(share, 6), 1.0), gates.serving == "target", read_account(context)
    terms = replace(gates, serving="fused") if fusion.weight > 0 and not alone else gates
    table = best.table(share) if best.provenance else best.table_of_shares(context, share, gates)
    weight = 1.0 if alone else fusion.weight
    learned = Round(native=context.run.learned_at, cost=spent.cost, seconds=spent.seconds, weight=weight)
    return UpgradeEstimate.of(context.run, terms, table, share, round=learned)


def serve_as_learned(context: UpgradeContext, gates: Gates) -> RunRecord:
    """Enable fused serving if its gain is significant; otherwise keep the current serving.

    If the target alone is to be searched, searches stay unchanged until the cutover. A choice of the caller since the
    last training round stays, unless gates require the target alone and those of that round did not.

    Args:
        context: The upgrade, with all items hopped by the transform of the last training round.
        gates: The gates, with the serving mode.

    Returns:
        The run.
    """
    catalog, run = context.catalog, context.run
    fusion = catalog.registry().fusion_of(run.target)
    if fusion is None or (run.served_at == run.learned_at and not _resave_for_target(context, gates)):
        return run
    way: Serving = "fused" if fusion.weight > 0 and gates.serving != "target" else "target"
    run = replace(run, served_at=run.learned_at)
    serve(catalog, run.target, way, run)
    return run


def _resave_for_target(context: UpgradeContext, gates: Gates) -> bool:
    """Re-save the last round's estimate for the target alone if it was saved for fused searches; True if it was."""
    estimate = load_estimate(context.catalog, context.run.target)
    if gates.serving != "target" or estimate is None or estimate.terms.serving == "target":
        return False
    best = estimate.table.best_of("target").share
    save_estimate(context.catalog, context.run.target, replace(estimate, terms=gates, best=best, round=None))
    return True


def has_no_gain(context: UpgradeContext) -> bool:
    """True if all ways to serve the fitted transform were measured, and none is significantly better."""
    run, registry = context.run, context.catalog.registry()
    served = registry.fusion_served(run.target) is not None or _estimate_of_target(context) is not None
    return bool(run.learned_at) and not served and _better_alone(registry, run.target) is None


def how_searched(context: UpgradeContext) -> str:
    """Serving of the upgrade until its cutover, as a sentence."""
    run, registry = context.run, context.catalog.registry()
    fusion, estimate = registry.fusion_served(run.target), _estimate_of_target(context)
    if estimate is not None:
        later = "" if registry.active == run.target else f" alone; after a cutover in {run.target}"
        gain = estimate.row.gains.get(estimate.table.criterion)
        measured = "not measured without ground truth" if gain is None else "no significant gain"
        unsure = "" if gain is not None and gain.is_gain else f" ({measured})"
        return f"searches go on in {registry.active}{later} alone{unsure}"
    alone = _better_alone(registry, run.target)
    source = run.source
    if fusion is None and not context.catalog.can_ask_both(source, run.target):
        known = next_step.made("EmbeddingVersion", source, dim=next_step.DIM_FOUND, encoder=next_step.ENCODER)
        return (
            f"{source} has no encoder here, so a text is searched by {run.target} alone once it is cut over; by both "
            f"models after: {next_step.call('register', known)}"
        )
    if fusion is not None:
        still = f"; {alone[0]} is better still, {alone[1]}" if alone else ""
        rule = fusion.choice is not None and not fusion.choice.truth
        unsure = f" (weight {fusion.weight:g} by rule, not measured without ground truth)" if rule else ""
        both = f"{run.source} and {run.target}"
        return f"queries that carry both embeddings are ranked by the fusion of {both}{unsure}{still}"
    if alone:
        return f"searches go on in {registry.active} alone: {alone[0]} is significantly better, but only {alone[1]}"
    return f"searches go on in {registry.active} alone: no learned transform is significantly better"


def _estimate_of_target(context: UpgradeContext) -> UpgradeEstimate | None:
    """The estimate of the last round if the upgrade is to be served by the target alone; None otherwise."""
    estimate = load_estimate(context.catalog, context.run.target)
    if not context.run.learned_at or estimate is None or estimate.terms.serving != "target":
        return None
    return estimate


def _better_alone(registry: Registry, target: str) -> tuple[str, str] | None:
    """The target alone, and when searches use it, if it is significantly better than what they use now."""
    fusion = registry.fusion_of(target)
    choice = None if fusion is None else fusion.choice
    if choice is not None and choice.over_target is not None and choice.over_target.is_loss:
        return f"{target} alone", "after a cutover"
    return None
