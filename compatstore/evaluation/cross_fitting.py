"""A sample whose queries try several ways to search: queries of one fold are searched as the others have chosen.

What is so chosen and what it gives are of different queries, so that a choice among many is not reported as better than
it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import Doubles, Positions
from compatstore.digests import seed_of
from compatstore.errors import InvalidInput
from compatstore.evaluation.bootstrap import Estimate, SampledGallery, gains_together, resample
from compatstore.evaluation.distances import Distances
from compatstore.evaluation.relevance import Relevance, places_of
from compatstore.evaluation.sample import DecisionSettings, EvaluationSample
from compatstore.evaluation.sampled import QueryFigures, Sampling, find_in_galleries

FOLDS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """A sample whose queries try several ways to search.

    Args:
        sample: Queries and items in both versions.
        settings: The criterion, metrics and intervals.
        relevance: The correct items.
        sampling: What the items stand for.
        truth: What counts as right, as text for people.
        progress: Called with the rankings that were made since its last call; None for nothing.

    Raises:
        InvalidInput: The criterion is CMC, and the items are a sample, which has few of the very nearest ones.
    """

    sample: EvaluationSample
    settings: DecisionSettings
    relevance: Relevance
    sampling: Sampling
    truth: str
    progress: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        if self.settings.criterion != "map" and not self.sample.complete:
            raise InvalidInput(
                f"choose how to search by {self.settings.criterion}",
                expected="map, or a sample that is the whole gallery",
                found=f"{len(self.sample.source)} of {self.sample.population} items",
                fix="Choose by map, or take a sample of the whole gallery.",
            )

    def galleries(self, distances: Distances, rows: Sequence[Positions]) -> list[QueryFigures]:
        """What the queries find in several galleries, whose vectors are rows of those that were measured."""
        return find_in_galleries(distances, self.relevance, rows, self.settings.ks, self.sampling, self.progress)

    def gains(
        self,
        values: Doubles,
        figures: Sequence[QueryFigures] = (),
        rows: Positions | None = None,
        resamples: int | None = None,
    ) -> list[Estimate]:
        """Gain of each candidate but the first to the first, by the criterion; intervals hold for all together.

        Args:
            values: (candidates, metrics, q) float64, finite.
            figures: The candidates' figures, where the items are a sample whose draw the intervals are to allow for.
            rows: (q,) intp, which queries these are.
            resamples: Of the bootstrap; those of the settings by default.
        """
        settings, gallery = self.settings, None
        metric = settings.metrics.index(settings.criterion)
        if rows is not None and not self.sample.complete:
            influence = np.array([found.influence[metric] for found in figures])
            gallery = SampledGallery(influence=influence, places=drawn_as_items(self.sample, rows))
        drawn = resample(
            values[:, metric], resamples or settings.resamples, settings.seed, settings.confidence, gallery
        )
        return gains_together(drawn[1:], drawn[0])

    def over(self, found: QueryFigures, other: QueryFigures) -> Estimate | None:
        """Difference of the criterion between two ways to search, of all queries; None where none counts."""
        pair, counted = [other, found], found.counted
        if not counted.any():
            return None
        rows = np.flatnonzero(counted)
        (gain,) = self.gains(np.array([figures.values[:, counted] for figures in pair]), pair, rows)
        return gain

    def joined(self, folds: Sequence[Positions], founds: Sequence[QueryFigures]) -> QueryFigures:
        """Figures of some folds' queries as one, queries in their order."""
        order = np.argsort(np.concatenate(folds), kind="stable")
        values = np.concatenate([found.values for found in founds], axis=1)[:, order]
        asked = np.ones(len(self.sample.source_queries)) if self.sampling.asked is None else self.sampling.asked
        weights = np.array([asked[fold] @ found.counted for fold, found in zip(folds, founds, strict=True)])
        influence = np.tensordot(weights, np.array([found.influence for found in founds]), axes=1)
        return QueryFigures(values=values, influence=influence / max(weights.sum(), 1.0))


def of_queries(relevance: Relevance, rows: Positions) -> Relevance:
    """The correct items of some of the queries."""
    return replace(relevance, query_classes=relevance.query_classes[rows], itself=relevance.itself[rows])


def folds_of(queries: int, seed: int) -> list[Positions]:
    """Queries in random folds, each ascending: (q / folds,) intp each."""
    order = np.random.default_rng(seed_of("fusion folds", seed)).permutation(queries)
    return [np.sort(order[start::FOLDS]) for start in range(min(FOLDS, queries))]


def own_rows(sample: EvaluationSample) -> Positions:
    """(q,) intp, the gallery row that each query is; -1 for none."""
    if sample.query_ids is None or sample.gallery_ids is None:
        return np.full(len(sample.source_queries), -1)
    return places_of(sample.query_ids, sample.gallery_ids)


def drawn_as_items(sample: EvaluationSample, rows: Positions) -> Positions | None:
    """(len(rows),) intp, gallery rows that some queries are, where each is one and was drawn as an item; else None."""
    places = own_rows(sample)[rows]
    return places if sample.judged is None and (places >= 0).all() else None
