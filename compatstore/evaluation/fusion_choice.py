"""The weight of a fusion, chosen on a sample, and what a fusion so chosen gives to queries that did not choose.

Every candidate, a weight and whether native and transformed vectors are standardised apart, is compared with the status
quo, weight 0, query by query. Chosen is the candidate whose gain is surest: its simultaneous interval has the highest
lower end. Where no interval lies above zero the weight is 0, and the gallery is
served as before. What the fusion is reported to give is cross-fitted: queries are cut into folds, and the queries of
each fold search with the weight that the other folds chose.

A weight that is good for one figure may be bad for another: where the source is far behind, mAP asks for the target and
CMC@1 for the source. So no weight is chosen by which CMC at the smallest k, or mAP, is lower than the status quo's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.digests import seed_of
from compatstore.errors import InvalidInput
from compatstore.evaluation.bootstrap import Estimate, SampledGallery, gains_together, resample
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion, WeightChoice, fused_blocks, standardise
from compatstore.evaluation.relevance import Relevance, places_of
from compatstore.evaluation.sample import DecisionSettings, EvaluationSample
from compatstore.evaluation.sampled import QueryFigures, Sampling, find_in_blocks

WEIGHTS = tuple(step / 10 for step in range(11))
FOLDS = 5
_BLOCK_CELLS = 2**21  # distances of a block, over all weights


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedFusion:
    """A fusion, and what it gives.

    Args:
        fusion: With the weight that all queries chose; what to serve.
        found: Figures of each query by the weight that other queries chose: what to expect.
        fold_weights: The weight that each fold's queries searched with, for a look at how sure the choice is.
    """

    fusion: Fusion
    found: QueryFigures
    fold_weights: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class FusionTrial:
    """A sample whose queries try weights.

    Args:
        sample: Queries and items in both versions.
        settings: The criterion, metrics and intervals.
        relevance: The correct items.
        sampling: What the items stand for.
        truth: What counts as right, as text for people.
        weights: Compared, ascending from 0, the status quo.

    Raises:
        InvalidInput: The criterion is CMC, and the items are a sample, which has few of the very nearest ones.
    """

    sample: EvaluationSample
    settings: DecisionSettings
    relevance: Relevance
    sampling: Sampling
    truth: str
    weights: tuple[float, ...] = WEIGHTS

    def __post_init__(self) -> None:
        if self.settings.criterion != "map" and not self.sample.complete:
            raise InvalidInput(
                f"choose a fusion by {self.settings.criterion}",
                expected="map, or a sample that is the whole gallery",
                found=f"{len(self.sample.source)} of {self.sample.population} items",
                fix="Choose by map, or take a sample of the whole gallery.",
            )

    def constants(self) -> Fusion:
        """The constants of the sample; labels have no part in them."""
        sample, settings = self.sample, self.settings
        galleries = (
            (sample.source_queries, sample.source, settings.source_metric),
            (sample.target_queries, sample.native, settings.target_metric),
            (sample.target_queries, sample.transformed, settings.target_metric),
        )
        block = max(_BLOCK_CELLS // len(sample.source), 1)
        source, native, transformed = (measure(*gallery, block=block) for gallery in galleries)
        return standardise(source, native, transformed, _own_rows(sample))

    def fit(self, native: BoolArray, constants: Fusion) -> FittedFusion:
        """Choose a weight for a gallery of which some rows are native.

        Args:
            native: (n,) bool, rows with a native vector.
            constants: Of `constants`.
        """
        folds = _folds(len(self.sample.source_queries), self.settings.seed)
        fusions = self._candidates(replace(constants, native_share=float(native.mean())))
        tried = [self._try(fold, native, fusions) for fold in folds]
        taken = [self._chosen([t for t in range(len(folds)) if t != left], folds, tried) for left in range(len(folds))]
        best = self._chosen(range(len(folds)), folds, tried)
        mixed = [tried[fold][place.place] for fold, place in enumerate(taken)]
        fusion = fusions[best.place]
        choice = WeightChoice(
            weight=fusion.weight,
            per_origin=fusion.per_origin,
            native_share=fusion.native_share,
            criterion=self.settings.criterion,
            truth=self.truth,
            num_queries=best.num_queries,
            gain=best.gain,
            low=best.low,
        )
        return FittedFusion(
            fusion=replace(fusion, choices=(choice,)),
            found=self._joined(folds, mixed),
            fold_weights=tuple(fusions[place.place].weight for place in taken),
        )

    def _candidates(self, constants: Fusion) -> list[Fusion]:
        """What is compared, the status quo first; in a gallery of one kind there is nothing to standardise apart."""
        together = [replace(constants, weight=weight, per_origin=False) for weight in self.weights]
        if constants.native_share in (0, 1):
            return together
        return [*together, *(replace(fusion, per_origin=True) for fusion in together if not fusion.single)]

    def _try(self, rows: Positions, native: BoolArray, fusions: Sequence[Fusion]) -> list[QueryFigures]:
        """What some queries find by each fusion."""
        sample, items = self.sample, len(self.sample.source)
        target = np.where(native[:, None], sample.native, sample.transformed)
        block = max(_BLOCK_CELLS // (items * len(fusions)), 1)
        left = measure(sample.source_queries[rows], sample.source, self.settings.source_metric, block=block)
        right = measure(sample.target_queries[rows], target, self.settings.target_metric, block=block)
        relevance = replace(
            self.relevance, query_classes=self.relevance.query_classes[rows], itself=self.relevance.itself[rows]
        )
        asked = self.sampling.asked
        sampling = replace(self.sampling, asked=None if asked is None else asked[rows])
        columns = [np.arange(items) + items * number for number in range(len(fusions))]
        blocks = fused_blocks(left, right, native, relevance, fusions)
        return find_in_blocks(blocks, len(rows), relevance, columns, self.settings.ks, sampling)

    def _chosen(
        self, using: Sequence[int], folds: Sequence[Positions], tried: Sequence[Sequence[QueryFigures]]
    ) -> _Chosen:
        """The surest candidate by the queries of some folds."""
        rows = [folds[fold] for fold in using]
        joined = [self._joined(rows, [tried[fold][place] for fold in using]) for place in range(len(tried[0]))]
        counted = joined[0].counted
        if not counted.any():
            return _Chosen(place=0, gain=0.0, low=0.0, num_queries=0)
        gains = self._gains(joined, np.sort(np.concatenate(rows))[counted])
        lows = np.array([gain.low for gain in gains])
        lows[self._harmful(joined)] = -np.inf
        best = int(np.argmax(lows))
        if lows[best] <= 0:
            return _Chosen(place=0, gain=0.0, low=0.0, num_queries=int(counted.sum()))
        return _Chosen(place=best + 1, gain=gains[best].value, low=gains[best].low, num_queries=int(counted.sum()))

    def _gains(self, joined: Sequence[QueryFigures], rows: Positions) -> list[Estimate]:
        """Gain of each candidate but the first to the first, by the criterion."""
        settings = self.settings
        metric = settings.metrics.index(settings.criterion)
        values = np.array([found.values[metric, found.counted] for found in joined])
        gallery = None
        if not self.sample.complete:
            places = _own_rows(self.sample)[rows]
            influence = np.array([found.influence[metric] for found in joined])
            gallery = SampledGallery(influence=influence, places=places if (places >= 0).all() else None)
        figures = resample(values, settings.resamples, settings.seed, settings.confidence, gallery)
        return gains_together(figures[1:], figures[0])

    def _harmful(self, joined: Sequence[QueryFigures]) -> BoolArray:
        """Which candidates but the first have a lower CMC at the smallest k, or mAP, than the first: (c - 1,)."""
        kept = [self.settings.ks.index(min(self.settings.ks)), -1]
        means: Doubles = np.array([np.nanmean(found.values[kept], axis=1) for found in joined])
        return np.asarray((means[1:] < means[0]).any(axis=1))

    def _joined(self, folds: Sequence[Positions], founds: Sequence[QueryFigures]) -> QueryFigures:
        """Figures of some folds' queries as one, queries in their order."""
        order = np.argsort(np.concatenate(folds), kind="stable")
        values = np.concatenate([found.values for found in founds], axis=1)[:, order]
        asked = np.ones(len(self.sample.source_queries)) if self.sampling.asked is None else self.sampling.asked
        weights = np.array([asked[fold] @ found.counted for fold, found in zip(folds, founds, strict=True)])
        influence = np.tensordot(weights, np.array([found.influence for found in founds]), axes=1)
        return QueryFigures(values=values, influence=influence / max(weights.sum(), 1.0))


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Place of a candidate among those compared, and its gain to the status quo with the lower end of its interval."""

    place: int
    gain: float
    low: float
    num_queries: int


def _folds(queries: int, seed: int) -> list[Positions]:
    """Queries in random folds, each ascending: (q / folds,) intp each."""
    order = np.random.default_rng(seed_of("fusion folds", seed)).permutation(queries)
    return [np.sort(order[start::FOLDS]) for start in range(min(FOLDS, queries))]


def _own_rows(sample: EvaluationSample) -> Positions:
    """(q,) intp, the gallery row that each query is; -1 for none."""
    if sample.query_ids is None or sample.gallery_ids is None:
        return np.full(len(sample.source_queries), -1)
    return places_of(sample.query_ids, sample.gallery_ids)
