"""Self-training upgrade: fits transforms on natively embedded items and selects one by its quality as served.

Each pair of a training round (`training_pairs.py`) is also a query, for transforms fitted without it: cross-validation
keeps all pairs in use, and evaluates none on a transform that was trained on it. The hop uses the transform that serves
best. Searches stay unchanged until the fusion of both versions is significantly better.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from compatstore import next_step
from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.artifacts.runners import one_thread_each
from compatstore.errors import InvalidInput
from compatstore.evaluation.curve import native_count
from compatstore.evaluation.decision import decide_between
from compatstore.evaluation.fusion import SAME_SHARE, Fusion
from compatstore.evaluation.fusion_choice import ALONE, BOTH, FittedFusion, Trial
from compatstore.evaluation.sample import EvaluationSample
from compatstore.evaluation.sampled import QueryFigures
from compatstore.evaluation.strategies import rank_strategies, trial_of_fusions
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import ArtifactRecord, RunRecord, ServingRecord
from compatstore.storage.registry import Registry, edit
from compatstore.storage.shrinkage import by_angle
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.asked import require_enough
from compatstore.upgrade.estimates.estimate import (
    UpgradeEstimate,
    asked_share,
    check_gates,
    load_estimate,
    require_measurable,
    require_passed,
    save_estimate,
)
from compatstore.upgrade.estimates.fusing import SHARES, native_share
from compatstore.upgrade.estimates.sample import Sample, require_labels
from compatstore.upgrade.estimates.trial import SampleSettings, decision_settings
from compatstore.upgrade.estimates.waves import figures_of_wave
from compatstore.upgrade.full_backfill import FullBackfill, LearningTakesLonger
from compatstore.upgrade.judging import (
    JudgedTransform,
    fusion_as_it_is,
    gallery_to_search,
    judge_by_queries,
    most_searched,
)
from compatstore.upgrade.learned_serving import in_words
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.requests.gates import Gates
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
STEP, GAIN = "learn", "gain"  # the step, and the end reason of a run without further gain


@dataclass(frozen=True, eq=False)
class _Judged:
    """A transform, and the results of queries in a gallery that is served with it.

    Without ground truth, and where it is to be served alone, transforms are compared by the target alone: by its
    agreement with native vectors, or its quality.
    """

    transform: FittedTransform
    trial: Trial
    native: BoolArray
    constants: Fusion
    by_target: bool
    by_queries: JudgedTransform | None = None

    @property
    def fitted(self) -> FittedFusion:
        """The weight of the fused search; the trial chooses it once."""
        return self.trial.fit(self.native, self.constants, against_target=True)

    @cached_property
    def found(self) -> QueryFigures:
        """Results of the queries as the upgrade is to be served: by a fused search, or by the target alone."""
        if not self.by_target:
            return self.fitted.found if self.by_queries is None else self.by_queries.fitted.found
        share = self.trial.sample.share_of(self.native)
        return self.trial.find(self.native, replace(self.constants, weight=1.0, native_share=share))

    @property
    def values(self) -> Doubles:
        """(q,) float64, the figure that decides of each query."""
        settings = self.trial.settings
        values: Doubles = self.found.values[settings.metrics.index(settings.criterion)]
        return values

    @property
    def figure(self) -> float:
        """Their mean."""
        return float(self.values[self.found.counted].mean())


@one_thread_each()  # of BLAS: products this small take several times the processor's time in several threads
def learn(
    context: UpgradeContext, learner: Learner, gates: Gates, monitor: Monitor, full: FullBackfill | None = None
) -> tuple[RunRecord, str]:
    """Fit transforms on the native items, and select the best one as served; the history records the result.

    Args:
        context: The upgrade as of now.
        learner: Fits the transforms.
        gates: Gates and criterion of the evaluation.
        monitor: Progress and stop, over the whole training round.
        full: The full backfill that is chosen instead if it is faster; None if none may be.

    Returns:
        The run, with the artifact as its path if one was selected, and `ended_by` if more does not pay; and the
        result, as a sentence.

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
    evaluation = _Evaluation(context=context, training=training, gates=gates, share=share, searched=searched)

    def judge(one: FittedTransform, judges: Positions) -> _Judged:
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
    if best.by_queries is None:
        fusion, pays = _with_larger_shares(context, best, share, learner.least_gain, gates)
    else:
        fusion, pays = fusion_as_it_is(best.by_queries, share), True
    steps.next()
    tried = replace(tried, ended_by="" if pays else GAIN)
    record = None
    if taken:
        record = context.catalog.add_artifact(best.transform.artifact, run.source, run.target)
        state = CUTOVER if run.state == CUTOVER else BACKFILL
        tried = replace(tried, path=(record.id,), state=state)
    _record_estimate(context.with_run(tried), best, fusion, share, gates)  # first: a finished round is not repeated
    what = f"{best.transform.name} learned from {len(training)} pairs" if taken else f"kept after {len(training)} pairs"
    learned = _take(context, tried, record, fusion, gates, what)
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Evaluation:
    """Evaluates the transforms of a training round.

    Args:
        context: The upgrade.
        training: The pairs of the round.
        gates: The gates.
        share: Native share of the gallery.
        searched: Items that application queries search; None without these.
    """

    context: UpgradeContext
    training: TrainingPairs
    gates: Gates
    share: float
    searched: Sample | None

    def judge(self, transform: FittedTransform, judges: Positions) -> _Judged:
        """Results of the query items, or of application queries, in a gallery that is served with a transform."""
        if self.searched is None:
            return self._by_items(transform, judges)
        return self._by_queries(self.searched, transform, judges)

    def _by_items(self, transform: FittedTransform, judges: Positions) -> _Judged:
        """Results of the query items in a gallery with a native share and transformed vectors for the rest."""
        context, run = self.context, self.context.run
        settings = decision_settings(context, _settings(self.gates, run))
        both = context.catalog.can_ask_both(run.source, run.target)
        trial = trial_of_fusions(self._sample_of(transform, judges), settings, BOTH if both else ALONE)
        native = _native_rows(len(judges), self.share)
        return _Judged(transform, trial, native, trial.constants(), self._by_target(trial))

    def _by_queries(self, searched: Sample, transform: FittedTransform, judges: Positions) -> _Judged:
        """Results of application queries in the gallery as it is, with transformed vectors for the rest."""
        pairs = (self.training.source[judges], self.training.target[judges], transform.transformed[judges])
        factors = self._factors_of(transform, judges)
        judged = judge_by_queries(self.context, searched, transform.artifact, pairs, self.gates, factors)
        by_target = self._by_target(judged.trial)
        return _Judged(transform, judged.trial, judged.native, judged.fitted.fusion, by_target, judged)

    def _by_target(self, trial: Trial) -> bool:
        return self.gates.serving == "target" or not trial.truth

    def _sample_of(self, transform: FittedTransform, judges: Positions) -> EvaluationSample:
        ids, training = np.arange(len(judges)), self.training
        labels = None if training.classes is None else training.classes[judges]
        return EvaluationSample(
            source_queries=training.source[judges],
            target_queries=training.target[judges],
            source=training.source[judges],
            transformed=transform.transformed[judges],
            native=training.target[judges],
            order=ids,
            query_labels=labels,
            gallery_labels=labels,
            query_ids=ids,
            gallery_ids=ids,
            population=max(self.context.count(self.context.source.present), len(judges)),
            factors=self._factors_of(transform, judges),
        )

    def _factors_of(self, transform: FittedTransform, judges: Positions) -> Doubles | None:
        """Shrinkage factors of the queries' cosines; None without predicted errors, or if not only angles rank."""
        by_angles = by_angle(self.context.target_record)
        return transform.factors[judges] if transform.factors is not None and by_angles else None


def _native_rows(items: int, share: float) -> BoolArray:
    """(n,) bool, the first of a random order."""
    return np.arange(items) < native_count(share, items)


def _settings(gates: Gates, run: RunRecord) -> SampleSettings:
    return SampleSettings(labels=gates.labels, criterion="map", seed=run.seed)


def _with_larger_shares(
    context: UpgradeContext, best: _Judged, share: float, least_gain: float | None, gates: Gates
) -> tuple[Fusion, bool]:
    """The fusion with the weights for larger native shares, which a backfill comes to; and whether one of them pays.

    A larger share pays unless the upper bound of its gain over the current native share is at most `least_gain`. The
    target alone may find less with more natives beside transformed vectors, while these improve the next transform: so
    there a share pays also if a transform without errors would.
    """
    constants, items, end = best.constants, len(best.trial.sample.source), asked_share(context)
    larger = sorted({*SHARES, *([end] if share + SAME_SHARE < end < 1 else [])})
    larger = [other for other in larger if other > share + SAME_SHARE]
    natives = {share: best.native} | {other: _native_rows(items, other) for other in larger}
    fusion = best.trial.fit_shares(natives, constants)
    masks = [natives[other] for other in larger if other <= end + SAME_SHARE]
    alone = gates.serving == "target"
    if alone and masks:
        masks.append(np.ones(items, bool))
    gains = (best.trial.most_gained(mask, constants, best.found, alone=alone) for mask in masks)
    pays = least_gain is None or not best.trial.truth or not masks or any(gain > least_gain for gain in gains)
    return fusion, pays


def _best(judged: Sequence[_Judged]) -> _Judged:
    return max(judged, key=lambda one: one.figure) if len(judged) > 1 else judged[0]


def _comes_nearer(training: TrainingPairs, current: CurrentTransform, transform: FittedTransform) -> bool:
    """True if another transform is closer to the natives, on pairs that the current one was not trained on."""
    natives = training.target[current.unseen]
    return _is_significant(
        _errors(current.transform.transformed[current.unseen], natives)
        - _errors(transform.transformed[current.unseen], natives)
    )


def _serves_better(judged: _Judged, now: _Judged) -> bool:
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
    context: UpgradeContext, run: RunRecord, record: ArtifactRecord | None, fusion: Fusion, gates: Gates, what: str
) -> tuple[RunRecord, str]:
    """Store the choice in one commit: the artifact in the run's path, and the fusion of both versions."""

    def change(registry: Registry) -> Registry:
        open_run = require_open(registry, run.target)
        known = registry.serving.get(run.target)
        same = known is not None and known.began == open_run.identity
        serving = known.serving if known is not None and same else "target"
        if record is not None:
            registry = registry.with_artifact(record)
        return registry.with_run(run).with_serving(
            ServingRecord(run.target, open_run.identity, fusion, column_of(gates.labels), serving)
        )

    note = f"{what}; {in_words(fusion, run.target, gates)}"
    entry = HistoryEntry(STEP, run.target, artifact=run.path[-1], rows=run.learned_at, note=note)
    edit(context.catalog.store, change, entry)
    return run, note


def _note(context: UpgradeContext, run: RunRecord, why: str) -> tuple[RunRecord, str]:
    return set_run(context.catalog, run, HistoryEntry(STEP, run.target, rows=run.learned_at, note=why)), why


def _record_estimate(context: UpgradeContext, best: _Judged, fusion: Fusion, share: float, gates: Gates) -> None:
    """Record the estimate of every way to serve the gallery in the history, as an estimate does."""
    share = round(share, 6)
    shares = tuple(sorted({*(other for other in (share, *SHARES) if 0 < other < 1)}))
    settings = replace(_settings(gates, context.run), shares=shares, fused_shares=(0.0, *shares, 1.0))
    serving = "fused" if fusion.weight > 0 and gates.serving != "target" else gates.serving
    if best.by_queries is None:
        decided = decision_settings(context, settings)
        # The larger shares were fitted for the weights.
        ranked = rank_strategies(best.trial.sample, decided, best.trial)
        table = decide_between(best.trial.sample, decided, ranked)
        table = replace(table, provenance=f"{table.num_queries} items of the gallery that are native in both versions.")
    else:
        table = best.by_queries.table(min(share, 1.0))
    estimate = UpgradeEstimate.of(context.run, replace(gates, serving=serving), table, min(share, 1.0))
    spent, _ = read_account(context)
    weight = 1.0 if gates.serving == "target" else fusion.weight
    figures = figures_of_wave(context.run.learned_at, spent, weight)
    save_estimate(context.catalog, context.run.target, estimate, figures)
