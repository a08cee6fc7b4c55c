"""The weight of a fusion, chosen on a sample, and what a fusion so chosen gives to queries that did not choose.

Every candidate, a weight and whether native and transformed vectors are standardised apart, is compared with the status
quo, weight 0, query by query. Chosen is the candidate whose gain is surest: its simultaneous interval has the highest
lower end; where the items are a sample, that of its own interval which allows for their draw must be above zero too.
Where no interval lies above zero the weight is 0, and the gallery is served as before. What the fusion is reported to
give is cross-fitted: queries are cut into folds, and those of each fold search with the weight that the others chose.

A weight that is good for one figure may be bad for another: where the source is far behind, mAP asks for the target and
CMC@1 for the source. So no weight is chosen by which CMC at the smallest k, or mAP, is lower than the status quo's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.digests import seed_of
from compatstore.errors import InvalidInput
from compatstore.evaluation.bootstrap import Estimate, SampledGallery, gains_together, resample
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion, WeightChoice, fused_blocks, standardise
from compatstore.evaluation.ranking import ranks_of
from compatstore.evaluation.relevance import Relevance, places_of
from compatstore.evaluation.sample import DecisionSettings, EvaluationSample
from compatstore.evaluation.sampled import QueryFigures, Sampling, find_in_blocks

WEIGHTS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
FOLDS = 5
CHOOSING = 400  # resamples where candidates are compared with each other; what is reported has all
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
        values = self._values(native, fusions)
        every = np.arange(values.shape[2])
        others = [np.setdiff1d(every, fold) for fold in folds]
        places = [self._surest(values[:, :, rows]) for rows in (every, *others)]
        tried = self._tried(folds, native, fusions, values, sorted({0, *places}))
        best, *taken = [
            self._confirmed(place, rows, folds, tried) for place, rows in zip(places, (every, *others), strict=True)
        ]
        fusion = fusions[best.place]
        choice = WeightChoice(
            weight=fusion.weight,
            per_origin=fusion.per_origin,
            native_share=fusion.native_share,
            criterion=self.settings.criterion,
            truth=self.truth,
            num_queries=int(np.isfinite(values[0, -1]).sum()),
            gain=best.gain,
            low=best.low,
        )
        mixed = [tried[chosen.place][fold] for fold, chosen in enumerate(taken)]
        return FittedFusion(
            fusion=replace(fusion, choices=(choice,)),
            found=self._joined(folds, mixed),
            fold_weights=tuple(fusions[chosen.place].weight for chosen in taken),
        )

    def _candidates(self, constants: Fusion) -> list[Fusion]:
        """What is compared, the status quo first; in a gallery of one kind there is nothing to standardise apart."""
        together = [replace(constants, weight=weight, per_origin=False) for weight in self.weights]
        if constants.native_share in (0, 1):
            return together
        return [*together, *(replace(fusion, per_origin=True) for fusion in together if not fusion.single)]

    def _blocks(
        self, rows: Positions, native: BoolArray, fusions: Sequence[Fusion]
    ) -> tuple[Relevance, Iterator[tuple[int, Doubles]]]:
        """What is correct for some queries, and their fused distances, block by block."""
        sample, settings, correct = self.sample, self.settings, self.relevance
        target = np.where(native[:, None], sample.native, sample.transformed)
        block = max(_BLOCK_CELLS // (len(target) * len(fusions)), 1)
        left = measure(sample.source_queries[rows], sample.source, settings.source_metric, block=block)
        right = measure(sample.target_queries[rows], target, settings.target_metric, block=block)
        relevance = replace(correct, query_classes=correct.query_classes[rows], itself=correct.itself[rows])
        return relevance, fused_blocks(left, right, native, relevance, fusions)

    def _values(self, native: BoolArray, fusions: Sequence[Fusion]) -> Doubles:
        """What each query finds by each fusion, as `find_in_blocks` gives it: (fusions, metrics, q) float64."""
        queries, items = len(self.sample.source_queries), len(self.sample.source)
        relevance, blocks = self._blocks(np.arange(queries), native, fusions)
        values = np.full((len(fusions), len(self.settings.metrics), queries), np.nan)
        for start, block in blocks:
            found = block.reshape(len(block), len(fusions), items)
            itself = relevance.itself[start : start + len(block)]
            own = np.flatnonzero(itself >= 0)
            found[own, :, itself[own]] = np.inf
            ordered = np.sort(found, axis=2)
            for query, (rows, sorted_rows) in enumerate(zip(found, ordered, strict=True), start):
                positions = relevance.of(query)
                if positions.size:
                    for number, (row, sorted_row) in enumerate(zip(rows, sorted_rows, strict=True)):
                        values[number, :, query] = self._figures(ranks_of(row, sorted_row, positions))
        return values

    def _figures(self, ranks: Positions) -> list[float]:
        """CMC at each k and average precision of a query, from the ranks of its correct items."""
        own, weight = self.sampling.own, self.sampling.weight
        precision = (own + weight * np.arange(len(ranks))) / (own + weight * (ranks - 1))
        return [*(float(ranks[0] <= k) for k in self.settings.ks), float(precision.mean())]

    def _surest(self, values: Doubles) -> int:
        """Place of the surest candidate by some queries, 0 for the status quo; (candidates, metrics, q) float64."""
        counted = np.isfinite(values[0, -1])
        if not counted.any():
            return 0
        kept = [self.settings.ks.index(min(self.settings.ks)), -1]
        means = values[:, :, counted].mean(axis=2)
        few = min(self.settings.resamples, CHOOSING)
        lows = np.array([gain.low for gain in self._gains(values[:, :, counted], resamples=few)])
        lows[(means[1:, kept] < means[0, kept]).any(axis=1)] = -np.inf
        best = int(np.argmax(lows))
        return best + 1 if lows[best] > 0 else 0

    def _tried(
        self,
        folds: Sequence[Positions],
        native: BoolArray,
        fusions: Sequence[Fusion],
        values: Doubles,
        places: Sequence[int],
    ) -> dict[int, list[QueryFigures]]:
        """Figures of some candidates by their place, fold by fold, with the items' influence on them."""
        items, metrics = len(self.sample.source), len(self.settings.metrics)
        if self.sample.complete:  # nothing was drawn, so no item has an influence on how sure a figure is
            none = np.zeros((metrics, items))
            return {p: [QueryFigures(values=values[p][:, fold], influence=none) for fold in folds] for p in places}
        asked, columns = self.sampling.asked, [np.arange(items) + items * number for number in range(len(places))]
        tried: dict[int, list[QueryFigures]] = {place: [] for place in places}
        for fold in folds:
            relevance, blocks = self._blocks(fold, native, [fusions[place] for place in places])
            sampling = replace(self.sampling, asked=None if asked is None else asked[fold])
            found = find_in_blocks(blocks, len(fold), relevance, columns, self.settings.ks, sampling)
            for place, figures in zip(places, found, strict=True):
                tried[place].append(figures)
        return tried

    def _confirmed(
        self, place: int, rows: Positions, folds: Sequence[Positions], tried: Mapping[int, Sequence[QueryFigures]]
    ) -> _Chosen:
        """A candidate whose gain is sure though the items are a sample; else the status quo."""
        using = [number for number, fold in enumerate(folds) if np.isin(fold, rows).all()]
        pair = [self._joined([folds[n] for n in using], [tried[p][n] for n in using]) for p in (0, place)]
        counted = pair[0].counted
        if not place or not counted.any():
            return _Chosen(place=0, gain=0.0, low=0.0)
        (gain,) = self._gains(np.array([found.values[:, counted] for found in pair]), pair, rows[counted])
        return _Chosen(place=place, gain=gain.value, low=gain.low) if gain.low > 0 else _Chosen(0, 0.0, 0.0)

    def _gains(
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
            places = _own_rows(self.sample)[rows]
            influence = np.array([found.influence[metric] for found in figures])
            gallery = SampledGallery(influence=influence, places=places if (places >= 0).all() else None)
        drawn = resample(
            values[:, metric], resamples or settings.resamples, settings.seed, settings.confidence, gallery
        )
        return gains_together(drawn[1:], drawn[0])

    def _joined(self, folds: Sequence[Positions], founds: Sequence[QueryFigures]) -> QueryFigures:
        """Figures of some folds' queries as one, queries in their order."""
        order = np.argsort(np.concatenate(folds), kind="stable")
        values = np.concatenate([found.values for found in founds], axis=1)[:, order]
        asked = np.ones(len(self.sample.source_queries)) if self.sampling.asked is None else self.sampling.asked
        weights = np.array([asked[fold] @ found.counted for fold, found in zip(folds, founds, strict=True)])
        influence = np.tensordot(weights, np.array([found.influence for found in founds]), axes=1)
        return QueryFigures(values=values, influence=influence / max(weights.sum(), 1.0))


@dataclass(frozen=True)
class _Chosen:
    """Place of a candidate among those compared, and its gain to the status quo with the lower end of its interval."""

    place: int
    gain: float
    low: float


def _folds(queries: int, seed: int) -> list[Positions]:
    """Queries in random folds, each ascending: (q / folds,) intp each."""
    order = np.random.default_rng(seed_of("fusion folds", seed)).permutation(queries)
    return [np.sort(order[start::FOLDS]) for start in range(min(FOLDS, queries))]


def _own_rows(sample: EvaluationSample) -> Positions:
    """(q,) intp, the gallery row that each query is; -1 for none."""
    if sample.query_ids is None or sample.gallery_ids is None:
        return np.full(len(sample.source_queries), -1)
    return places_of(sample.query_ids, sample.gallery_ids)
