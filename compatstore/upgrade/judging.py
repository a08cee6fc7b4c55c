"""Evaluation of fitted transforms in the gallery as it would be served.

Query items are pairs that evaluate (`training_pairs.py`): a sample in which a share of the gallery is native.
Application queries search the gallery as it is: native items keep their native vector, and all others get the output of
the fitted transform. No pair is needed for that, and none is a query: so only the queries are embedded, and the quality
at larger native shares remains unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate
from compatstore.evaluation.curve import native_count
from compatstore.evaluation.decision import decide_between
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import SAME_SHARE, Fusion, standardise
from compatstore.evaluation.fusion_choice import ALONE, BOTH, FittedFusion, Trial
from compatstore.evaluation.sample import EvaluationSample
from compatstore.evaluation.sampled import QueryFigures
from compatstore.evaluation.strategies import (
    FUSED,
    FUSED_PARTLY,
    ServingStrategy,
    is_fused,
    map_alone,
    rank_strategies,
    trial_of_fusions,
)
from compatstore.storage.shrinkage import by_angle
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.estimate import asked_share
from compatstore.upgrade.estimates.fusing import SHARES
from compatstore.upgrade.estimates.queries import MOST_QUERIES
from compatstore.upgrade.estimates.sample import Sample, draw_sample
from compatstore.upgrade.estimates.trial import SampleSettings, as_evaluation_sample, decision_settings
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import Queries
from compatstore.upgrade.training_pairs import FittedTransform, TrainingPairs
from compatstore.upgrade.transform import Transformer

MOST_SEARCHED = 25_000  # a gallery of up to as many items is searched as a whole, of a larger one a sample
MOST_COMPARED = 10_000_000  # of a query with an item: many queries search a smaller sample


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedTransform:
    """Results of queries in a gallery that is served with one transform.

    Args:
        trial: The queries, ready to try weights.
        native: (n,) bool, native items.
        constants: The constants of the fusion.
        transform: The transform.
        by_target: Transforms are compared by the target alone, by its agreement with native vectors or its quality:
            without ground truth, and if the target is to be served alone.
        provenance: Origin of application queries, and the items that they search, as a sentence; "" for query items.
    """

    trial: Trial
    native: BoolArray
    constants: Fusion
    transform: FittedTransform
    by_target: bool = False
    provenance: str = ""

    @cached_property
    def fitted(self) -> FittedFusion:
        """The chosen weight of the fused search, and its figures."""
        return self.trial.fit(self.native, self.constants, against_target=True)

    @cached_property
    def found(self) -> QueryFigures:
        """Results of the queries as the upgrade is to be served: by a fused search, or by the target alone."""
        return self._alone(1.0) if self.by_target else self.fitted.found

    def _alone(self, weight: float) -> QueryFigures:
        """Results of the queries in one version alone: 0 is the source, and 1 the target."""
        share = self.trial.sample.share_of(self.native)
        return self.trial.find(self.native, replace(self.constants, weight=weight, native_share=share))

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

    def table(self, share: float) -> DecisionTable:
        """The status quo, the fused search and the target alone, at the current native share.

        Figures of the fused search are of queries that search with the weight that other queries chose. Those are fewer
        than all: if a gain is hardly significant they choose the status quo, and the figures cover only a part of the
        current serving. So the upper ends of intervals are widened to those of the served weight; lower ends stay.
        """
        alone = [self._alone(weight) for weight in (0.0, 1.0)]
        made, served = (self._compared(share, alone, found) for found in (self.fitted.found, self.fitted.served))
        rows = (
            _widen_upper_bound(row, again) if is_fused(row.notation) else row
            for row, again in zip(made.rows, served.rows, strict=True)
        )
        return replace(made, rows=tuple(rows))

    def fusion_as_it_is(self, share: float) -> Fusion:
        """The fusion with the weight for the native share that there is: of larger ones nothing is known.

        Differences to the target alone get the upper bounds of the table's intervals.
        """
        (choice,) = self.fitted.fusion.choices
        if (over := choice.over_target) is not None:
            served = self.trial.over(self.fitted.served, self._alone(1.0))
            choice = replace(choice, over_target=_reaching(over, served or over))
        return replace(self.fitted.fusion, choices=(replace(choice, native_share=share),)).at(share)

    def fusion_for_shares(self, context: UpgradeContext, share: float, least_gain: float | None) -> tuple[Fusion, bool]:
        """The fusion with the weights for larger native shares too, and whether embedding one of them pays.

        A larger share pays unless the upper bound of its gain over the current native share is at most `least_gain`.
        The target alone may find less with more natives beside transformed vectors, while these improve the next
        transform: so there a share pays also if a transform without errors would.
        """
        items, end = len(self.trial.sample.source), asked_share(context)
        larger = sorted({*SHARES, *([end] if share + SAME_SHARE < end < 1 else [])})
        larger = [other for other in larger if other > share + SAME_SHARE]
        natives = {share: self.native} | {other: _native_rows(items, other) for other in larger}
        fusion = self.trial.fit_shares(natives, self.constants)
        masks = [natives[other] for other in larger if other <= end + SAME_SHARE]
        if self.by_target and masks:
            masks.append(np.ones(items, bool))
        gains = (self.trial.most_gained(mask, self.constants, self.found, alone=self.by_target) for mask in masks)
        pays = least_gain is None or not self.trial.truth or not masks or any(gain > least_gain for gain in gains)
        return fusion, pays

    def table_of_shares(self, context: UpgradeContext, share: float, gates: Gates) -> DecisionTable:
        """Every way to serve the gallery, at the current native share and at larger ones; of query items."""
        shares = tuple(sorted({other for other in (share, *SHARES) if 0 < other < 1}))
        settings = replace(_settings(gates, context), shares=shares, fused_shares=(0.0, *shares, 1.0))
        decided, sample = decision_settings(context, settings), self.trial.sample
        # The larger shares were fitted for the weights.
        table = decide_between(sample, decided, rank_strategies(sample, decided, self.trial))
        return replace(table, provenance=f"{table.num_queries} items of the gallery that are native in both versions.")

    def _compared(self, share: float, alone: Sequence[QueryFigures], fused: QueryFigures) -> DecisionTable:
        by_target = {0.0: ("hop alone", "t/h"), 1.0: ("full backfill", "t/t")}
        ways = [
            ("status quo", "s/s", alone[0]),
            (f"fused {100 * share:.4g}%", FUSED.get(share, FUSED_PARTLY), fused),
            (*by_target.get(share, (f"backfill {100 * share:.4g}%", "t/h+t")), alone[1]),
        ]
        if not self.trial.sample.complete:
            ways = [(name, notation, map_alone(found)) for name, notation, found in ways]
        strategies = [
            ServingStrategy(name=name, notation=notation, share=share if place else 0.0, found=found)
            for place, (name, notation, found) in enumerate(ways)
        ]
        made = decide_between(self.trial.sample, self.trial.settings, strategies)
        rows = made.rows if share == 1 else tuple(replace(row, kept={}) for row in made.rows)  # of no full backfill
        return replace(made, rows=rows, provenance=self.provenance)


def _widen_upper_bound(row: DecisionRow, served: DecisionRow) -> DecisionRow:
    """A row whose intervals are widened to the upper bounds of another; of broken queries the larger share."""

    def raised(mine: Mapping[str, Estimate], others: Mapping[str, Estimate]) -> dict[str, Estimate]:
        return {name: _reaching(one, others[name]) for name, one in mine.items()}

    broken, again = row.broken, served.broken
    worse = served if broken is not None and again is not None and again.high > broken.high else row
    return replace(
        row,
        figures=raised(row.figures, served.figures),
        gains=raised(row.gains, served.gains),
        kept=raised(row.kept, served.kept),
        flips=worse.flips,
        broken=worse.broken,
    )


def _reaching(estimate: Estimate, served: Estimate) -> Estimate:
    return replace(estimate, high=max(estimate.high, served.high))


def gallery_to_search(context: UpgradeContext, gates: Gates) -> Sample | None:
    """The items that application queries search, without embedding any; None without queries and judgements.

    Raises:
        UpgradeError: There are too few queries, or they cannot be embedded.
        InvalidInput: The queries make no sense in this gallery.
    """
    if not isinstance(gates.labels, Queries) or not gates.labels.judged:
        return None
    return draw_sample(context, most_searched(gates.labels), labels=gates.labels, seed=context.run.seed, embed=False)


def most_searched(queries: Queries) -> int:
    """Items of a gallery that is searched as a whole, by as many queries as there are; of a larger one a sample is."""
    return min(MOST_SEARCHED, MOST_COMPARED // min(len(queries.read), MOST_QUERIES))


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Evaluates the transforms of a training round.

    Args:
        context: The upgrade.
        training: The pairs of the round.
        gates: The gates.
        share: Native share of the gallery.
        searched: Items that application queries search (`gallery_to_search`); None without these.
    """

    context: UpgradeContext
    training: TrainingPairs
    gates: Gates
    share: float
    searched: Sample | None

    def judge(self, transform: FittedTransform, judges: Positions) -> JudgedTransform:
        """Results of the query items, or of application queries, in a gallery that is served with a transform.

        Args:
            transform: The transform.
            judges: Pairs that evaluate. The constants of a fusion are fitted on them.
        """
        # Shrinkage factors of the queries' cosines; None without predicted errors, or if not only angles rank.
        shrinks = by_angle(self.context.target_record)
        factors = transform.factors[judges] if transform.factors is not None and shrinks else None
        if self.searched is None:
            judged = self._by_items(transform, judges, factors)
        else:
            judged = self._by_queries(self.searched, transform, judges, factors)
        return replace(judged, by_target=self.gates.serving == "target" or not judged.trial.truth)

    def _by_items(self, transform: FittedTransform, judges: Positions, factors: Doubles | None) -> JudgedTransform:
        """Results of the query items in a gallery with a native share and transformed vectors for the rest."""
        context, training, ids = self.context, self.training, np.arange(len(judges))
        source, native = training.source[judges], training.target[judges]
        labels = None if training.classes is None else training.classes[judges]
        sample = EvaluationSample(
            source_queries=source,
            target_queries=native,
            source=source,
            transformed=transform.transformed[judges],
            native=native,
            order=ids,
            query_labels=labels,
            gallery_labels=labels,
            query_ids=ids,
            gallery_ids=ids,
            population=max(context.count(context.source.present), len(judges)),
            factors=factors,
        )
        weights = BOTH if context.catalog.can_ask_both(context.run.source, context.run.target) else ALONE
        trial = trial_of_fusions(sample, decision_settings(context, _settings(self.gates, context)), weights)
        rows = _native_rows(len(judges), self.share)
        return JudgedTransform(trial=trial, native=rows, constants=trial.constants(), transform=transform)

    def _by_queries(
        self, sample: Sample, transform: FittedTransform, judges: Positions, factors: Doubles | None
    ) -> JudgedTransform:
        """Results of application queries in the gallery as it is, with transformed vectors for the rest.

        Where the artifact did not measure its errors, the factors of the gallery's vectors are 1.
        """
        context, artifact = self.context, transform.artifact
        transformer = Transformer((artifact,), form=VectorForm.of(context.target_record))
        shrinkage = None if factors is None else Shrinkage.of(artifact.manifest.figures)
        made, found, kept = sample.native.copy(), sample.embedded.copy(), np.ones(len(sample.native))
        hopped = np.flatnonzero(~found & transformer.possible(sample.source))
        if len(hopped):
            values = transformer.apply(sample.source.take(hopped))
            made[hopped], found[hopped] = values.vectors, values.valid
            kept[hopped] = 1.0 if shrinkage is None else shrinkage.at(values.uncertainty)
        searched = sample.only(found)
        native, queries = searched.embedded, searched.queries
        complete = searched.population == len(searched.places)
        settings = _settings(self.gates, context, self.gates.criterion if complete else "map")
        decided = decision_settings(context, settings)
        first = np.argsort(~native, kind="stable")
        as_served = as_evaluation_sample(searched, made[found], first, None if factors is None else kept[found])
        constants = standardise(
            measure(queries.source, self.training.source[judges], decided.source_metric, block=1024),
            measure(queries.target, self.training.target[judges], decided.target_metric, block=1024),
            measure(queries.target, transform.transformed[judges], decided.target_metric, block=1024, factors=factors),
            np.full(len(queries), -1),
        )
        return JudgedTransform(
            trial=trial_of_fusions(as_served, decided, BOTH),
            native=native,
            constants=replace(constants, shrinkage=factors is not None),
            transform=transform,
            provenance=searched.provenance,
        )


def _native_rows(items: int, share: float) -> BoolArray:
    """(n,) bool, the first of a random order."""
    return np.arange(items) < native_count(share, items)


def _settings(gates: Gates, context: UpgradeContext, criterion: str = "map") -> SampleSettings:
    return SampleSettings(labels=gates.labels, criterion=criterion, seed=context.run.seed)
