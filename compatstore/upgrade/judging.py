"""The app's own queries judge what an upgrade has learned: they search its gallery as it would be served by it.

Items that are native keep their native vector, and all others get what the learned transform makes of them. No pair is
needed for that, and none asks: queries from outside were never learned from. So nothing is embedded but the queries.
What larger native shares would give is not known from it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import BoolArray, FloatArray
from compatstore.artifacts.artifact import Artifact
from compatstore.evaluation import DecisionTable
from compatstore.evaluation.decision import decide_between
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion, standardise
from compatstore.evaluation.fusion_choice import FittedFusion, FusionTrial
from compatstore.evaluation.strategies import FUSED, FUSED_PARTLY, ServingStrategy, map_alone, trial_of_fusions
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.asked import MOST_QUERIES
from compatstore.upgrade.estimates.sample import Sample, draw_sample
from compatstore.upgrade.estimates.trial import TRUST, SampleSettings, as_evaluation_sample, decision_settings
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.requests.queries import Queries
from compatstore.upgrade.transform import Transformer

MOST_SEARCHED = 25_000  # a gallery of up to as many items is searched as a whole, of a larger one a sample
MOST_COMPARED = 10_000_000  # of a query with an item: many queries search a smaller sample


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedTransform:
    """What the app's own queries find in the gallery as it would be served by one transform.

    Args:
        trial: The queries, ready to try weights.
        native: (n,) bool, items that are native.
        fitted: The weight that was chosen, and what it gives.
        provenance: Where the queries come from, and what they search, in a sentence.
    """

    trial: FusionTrial
    native: BoolArray
    fitted: FittedFusion
    provenance: str

    def table(self, share: float) -> DecisionTable:
        """The status quo, both versions as one and the target alone, at the native share that there is."""
        fused = self.fitted.fusion
        founds = [
            self.trial.find(self.native, replace(fused, weight=0.0)),
            self.fitted.found,
            self.trial.find(self.native, replace(fused, weight=1.0)),
        ]
        if not self.trial.sample.complete:
            founds = [map_alone(found) for found in founds]
        alone = {0.0: ("hop alone", "t/h"), 1.0: ("full backfill", "t/t")}
        names = (
            ("status quo", "s/s"),
            (f"fused {100 * share:.4g}%", FUSED.get(share, FUSED_PARTLY)),
            alone.get(share, (f"backfill {100 * share:.4g}%", "t/h+t")),
        )
        strategies = [
            ServingStrategy(name=name, notation=notation, share=share if place else 0.0, found=found)
            for place, ((name, notation), found) in enumerate(zip(names, founds, strict=True))
        ]
        made = decide_between(self.trial.sample, self.trial.settings, strategies)
        rows = made.rows if share == 1 else tuple(replace(row, kept={}) for row in made.rows)  # of no full backfill
        return replace(made, rows=rows, provenance=self.provenance)


def gallery_to_search(context: UpgradeContext, asked: Gates) -> Sample | None:
    """The items that the app's own queries search, without embedding any; None where no queries with judgements ask.

    Raises:
        UpgradeError: There are too few queries, or they cannot be embedded.
        InvalidInput: The queries make no sense in this gallery.
    """
    if not isinstance(asked.labels, Queries) or not asked.labels.judged:
        return None
    return draw_sample(context, most_searched(asked.labels), labels=asked.labels, seed=context.run.seed, embed=False)


def most_searched(asked: Queries) -> int:
    """Items of a gallery that is searched as a whole, by as many queries as there are; of a larger one a sample is."""
    return min(MOST_SEARCHED, MOST_COMPARED // min(len(asked.read), MOST_QUERIES))


def judge_by_queries(
    context: UpgradeContext,
    sample: Sample,
    artifact: Artifact,
    pairs: tuple[FloatArray, FloatArray, FloatArray],
    asked: Gates,
) -> JudgedTransform:
    """Let the app's own queries search a gallery as it would be served by a transform.

    Args:
        context: The upgrade.
        sample: Of `gallery_to_search`.
        artifact: The transform.
        pairs: Vectors of items in the source, in the target, and transformed by what was learned without them: (m,
            source dim), (m, target dim) and (m, target dim) float32. What makes distances comparable is taken of them.
        asked: The figure that decides; mAP where the items are a sample.
    """
    transformer = Transformer((artifact,), form=VectorForm.of(context.target_record))
    made, found = sample.native.copy(), sample.embedded.copy()
    hopped = np.flatnonzero(~found & transformer.possible(sample.source))
    if len(hopped):
        values = transformer.apply(sample.source.take(hopped))
        made[hopped], found[hopped] = values.vectors, values.valid
    searched, made = sample.only(found), made[found]
    native = searched.embedded
    first = np.argsort(~native, kind="stable")
    complete = searched.population == len(searched.places)
    criterion = asked.criterion if complete else "map"
    settings = SampleSettings(
        labels=asked.labels, criterion=criterion, seed=context.run.seed, trust=TRUST, by_both=True
    )
    decided = decision_settings(context, settings)
    trial = trial_of_fusions(as_evaluation_sample(searched, made, first), decided)
    constants = standardise(
        measure(searched.source_queries, pairs[0], decided.source_metric, block=1024),
        measure(searched.target_queries, pairs[1], decided.target_metric, block=1024),
        measure(searched.target_queries, pairs[2], decided.target_metric, block=1024),
        np.full(len(searched.source_queries), -1),
    )
    fitted = trial.fit(native, constants, against_target=True)
    return JudgedTransform(trial=trial, native=native, fitted=fitted, provenance=searched.provenance)


def fusion_as_it_is(judged: JudgedTransform, share: float) -> Fusion:
    """The fusion with the weight for the native share that there is: of larger ones nothing is known."""
    fusion = judged.fitted.fusion
    choices = tuple(replace(choice, native_share=share) for choice in fusion.choices)
    return replace(fusion, choices=choices).at(share)
