"""Evaluation of fitted transforms with application queries, which search the gallery as it would be served.

Native items keep their native vector, and all others get the output of the fitted transform. No pair is needed for
that, and none is a query: application queries were never trained on. So only the queries are embedded. The quality at
larger native shares remains unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import BoolArray, Doubles, FloatArray
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.shrinkage import Shrinkage
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate
from compatstore.evaluation.decision import decide_between
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion, WeightChoice, standardise
from compatstore.evaluation.fusion_choice import BOTH, FittedFusion, Trial
from compatstore.evaluation.sampled import QueryFigures
from compatstore.evaluation.strategies import (
    FUSED,
    FUSED_PARTLY,
    ServingStrategy,
    is_fused,
    map_alone,
    trial_of_fusions,
)
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.asked import MOST_QUERIES
from compatstore.upgrade.estimates.sample import Sample, draw_sample
from compatstore.upgrade.estimates.trial import SampleSettings, as_evaluation_sample, decision_settings
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import Queries
from compatstore.upgrade.transform import Transformer

MOST_SEARCHED = 25_000  # a gallery of up to as many items is searched as a whole, of a larger one a sample
MOST_COMPARED = 10_000_000  # of a query with an item: many queries search a smaller sample


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedTransform:
    """Results of application queries on the gallery as it would be served with one transform.

    Args:
        trial: The queries, ready to try weights.
        native: (n,) bool, native items.
        fitted: The chosen weight, and its figures.
        provenance: Origin of the queries, and the items that they search, as a sentence.
    """

    trial: Trial
    native: BoolArray
    fitted: FittedFusion
    provenance: str

    def table(self, share: float) -> DecisionTable:
        """The status quo, the fused search and the target alone, at the current native share.

        Figures of the fused search are of queries that search with the weight that other queries chose. Those are fewer
        than all: if a gain is hardly significant they choose the status quo, and the figures cover only a part of the
        current serving. So the upper ends of intervals are widened to those of the served weight; lower ends stay.
        """
        fused = self.fitted.fusion
        alone = [self.trial.find(self.native, replace(fused, weight=weight)) for weight in (0.0, 1.0)]
        made, served = (self._compared(share, alone, found) for found in (self.fitted.found, self.fitted.served))
        rows = (
            _widen_upper_bound(row, again) if is_fused(row.notation) else row
            for row, again in zip(made.rows, served.rows, strict=True)
        )
        return replace(made, rows=tuple(rows))

    def reaching_up(self, choice: WeightChoice) -> WeightChoice:
        """A choice whose differences to the target alone get the upper bounds of the table's intervals."""
        target = self.trial.find(self.native, replace(self.fitted.fusion, weight=1.0))
        known, served = choice.over_target, self.trial.over(self.fitted.served, target)
        return choice if known is None or served is None else replace(choice, over_target=_reaching(known, served))

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


def judge_by_queries(
    context: UpgradeContext,
    sample: Sample,
    artifact: Artifact,
    pairs: tuple[FloatArray, FloatArray, FloatArray],
    gates: Gates,
    factors: Doubles | None = None,
) -> JudgedTransform:
    """Let application queries search a gallery as it would be served by a transform.

    Args:
        context: The upgrade.
        sample: Result of `gallery_to_search`.
        artifact: The transform.
        pairs: Vectors of items in the source, in the target, and by a transform that was fitted without them: (m,
            source dim), (m, target dim) and (m, target dim) float32. The fusion's constants are fitted on them.
        gates: The gates with the criterion; mAP if the items are a sample.
        factors: (m,) float64, of the pairs' transformed vectors, see `EvaluationSample`; None for none. Where the
            artifact was not measured, those of the gallery's are 1.
    """
    transformer = Transformer((artifact,), form=VectorForm.of(context.target_record))
    shrinkage = None if factors is None else Shrinkage.of(artifact.manifest.figures)
    made, found, kept = sample.native.copy(), sample.embedded.copy(), np.ones(len(sample.native))
    hopped = np.flatnonzero(~found & transformer.possible(sample.source))
    if len(hopped):
        values = transformer.apply(sample.source.take(hopped))
        made[hopped], found[hopped] = values.vectors, values.valid
        kept[hopped] = 1.0 if shrinkage is None else shrinkage.at(values.uncertainty)
    searched, made = sample.only(found), made[found]
    native = searched.embedded
    first = np.argsort(~native, kind="stable")
    complete = searched.population == len(searched.places)
    criterion = gates.criterion if complete else "map"
    settings = SampleSettings(labels=gates.labels, criterion=criterion, seed=context.run.seed)
    decided = decision_settings(context, settings)
    as_served = replace(as_evaluation_sample(searched, made, first), factors=None if factors is None else kept[found])
    trial = trial_of_fusions(as_served, decided, BOTH)
    constants = standardise(
        measure(searched.queries.source, pairs[0], decided.source_metric, block=1024),
        measure(searched.queries.target, pairs[1], decided.target_metric, block=1024),
        measure(searched.queries.target, pairs[2], decided.target_metric, block=1024, factors=factors),
        np.full(len(searched.queries), -1),
    )
    constants = replace(constants, shrinkage=factors is not None)
    fitted = trial.fit(native, constants, against_target=True)
    return JudgedTransform(trial=trial, native=native, fitted=fitted, provenance=searched.provenance)


def fusion_as_it_is(judged: JudgedTransform, share: float) -> Fusion:
    """The fusion with the weight for the native share that there is: of larger ones nothing is known."""
    fusion = judged.fitted.fusion
    choices = tuple(replace(judged.reaching_up(choice), native_share=share) for choice in fusion.choices)
    return replace(fusion, choices=choices).at(share)
