"""Choice of the weight of a fusion on a sample, and the gain of such a fusion for other queries.

Every candidate, a weight and whether native and transformed vectors are standardised apart, is compared with the status
quo, weight 0, query by query. The choice is the candidate whose simultaneous interval has the highest lower end; if the
items are a sample, that of its own interval which allows for their draw must be above zero too. If no interval lies
above zero the weight is 0, and the gallery is served as before. Without ground truth the weight follows a rule
(`weight_by_rule`). The reported gain is cross-validated: queries are cut into folds, and those of each fold search with
the weight that the others chose. These are fewer than all, so a gain is significant less often: the reported gain is
too low rather than too high.

A weight that is good for one figure may be bad for another: where the source is far behind, mAP favours the target and
CMC@1 for the source. So no weight is chosen by which CMC at the smallest k, or mAP, is lower than the status quo's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.digests import seed_of
from compatstore.errors import InvalidInput
from compatstore.evaluation.bootstrap import Estimate, SampledGallery, gains_together, resample
from compatstore.evaluation.distances import Blocks, Distances, KeptDistances, measure
from compatstore.evaluation.fusion import Fusion, Measurement, fused_blocks, standardise
from compatstore.evaluation.judgements import places_among
from compatstore.evaluation.relevance import Relevance, places_of
from compatstore.evaluation.sample import DecisionSettings, EvaluationSample
from compatstore.evaluation.sampled import QueryFigures, Sampling, find_in_blocks, find_in_galleries

FOLDS = 5
WEIGHTS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
BOTH = WEIGHTS[:-1]  # rank by both versions, if not by the source alone
ALONE = (0.0, 1.0)  # the source alone, or the target
CHOOSING = 400  # resamples to compare candidates; reported figures have all
NO_GAIN = Estimate(value=0.0, low=0.0, high=0.0)
_BLOCK_CELLS = 2**21  # distances of a block, over all weights
_KEPT_CELLS = 2**22  # distances of each kind that a trial keeps: 32 MB


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedFusion:
    """A fusion, and its figures.

    Args:
        fusion: The fusion to serve, with the weight that all queries chose.
        found: Figures of each query by the weight that other queries chose: the expected quality.
        served: Figures of each query by the weight that all queries chose. The query had a part in the choice, so their
            mean is too high rather than too low.
    """

    fusion: Fusion
    found: QueryFigures
    served: QueryFigures


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """A sample whose queries try several ways to search: queries of one fold are searched as the others have chosen.

    The choice and its figures are of different queries, so that a choice among many is not reported as better
    than it is.

    Args:
        sample: Queries and items in both versions.
        settings: The criterion, metrics and intervals.
        relevance: The correct items; without ground truth the first results of a gallery that is wholly native.
        sampling: The population that the items represent.
        truth: Ground truth, "labels" or "qrels"; "" for none.
        before: Without ground truth the first results of the status quo; None otherwise.
        progress: Called with the rankings that were made since its last call; None for nothing.
        weights: Compared, ascending from 0, the status quo.

    Raises:
        InvalidInput: The criterion is CMC, and the items are a sample, which has few of the very nearest ones.
    """

    sample: EvaluationSample
    settings: DecisionSettings
    relevance: Relevance
    sampling: Sampling
    truth: str
    before: Relevance | None = None
    progress: Callable[[int], None] | None = None
    weights: tuple[float, ...] = WEIGHTS
    _fitted: dict[tuple[bytes, Fusion], FittedFusion] = field(default_factory=dict, init=False, repr=False)
    _kept: list[Doubles] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.truth and self.settings.criterion != "map" and not self.sample.complete:
            raise InvalidInput(
                f"choose how to search by {self.settings.criterion}",
                expected="map, or a sample that is the whole gallery",
                found=f"{len(self.sample.source)} of {self.sample.population} items",
                fix="Choose by map, or take a sample of the whole gallery.",
            )

    def galleries(self, distances: Distances, rows: Sequence[Positions]) -> list[QueryFigures]:
        """Results of the queries in several galleries, whose vectors are rows of the measured ones."""
        return self.figures(
            self.relevance,
            lambda relevance: find_in_galleries(
                distances,
                relevance,
                rows,
                self.settings.ks,
                self.sampling,
                influence=self.before is None,
                progress=self.progress,
            ),
        )

    def figures(
        self, relevance: Relevance, find: Callable[[Relevance], list[QueryFigures]], queries: Positions | None = None
    ) -> list[QueryFigures]:
        """Figures of some ways to search: quality by the ground truth, or else agreement with both versions alone.

        Args:
            relevance: Relevance of the queries that search.
            find: Searches with every strategy, and compares the results with a relevance.
            queries: (q,) intp, indices of these queries; None for all.
        """
        found = find(relevance)
        if self.before is None:
            return found
        before = self.before if queries is None else of_queries(self.before, queries)
        none = np.zeros((2, len(self.sample.source)))
        return [
            QueryFigures(values=np.stack([full.values[0], now.values[0]]), influence=none)
            for full, now in zip(found, find(before), strict=True)
        ]

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
            rows: (q,) intp, indices of these queries.
            resamples: Draws of the bootstrap; those of the settings by default.
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
        """Difference of the criterion between two ways to search, of all queries; None if none counts."""
        pair, counted = [other, found], found.counted
        if not counted.any():
            return None
        rows = np.flatnonzero(counted)
        (gain,) = self.gains(np.array([figures.values[:, counted] for figures in pair]), pair, rows)
        return gain

    def joined(self, folds: Sequence[Positions], founds: Sequence[QueryFigures]) -> QueryFigures:
        """Figures of several folds' queries together, queries in their order."""
        order = np.argsort(np.concatenate(folds), kind="stable")
        values = np.concatenate([found.values for found in founds], axis=1)[:, order]
        query_weights = np.ones(len(self.sample.source_queries)) if self.sampling.asked is None else self.sampling.asked
        weights = np.array([query_weights[fold] @ found.counted for fold, found in zip(folds, founds, strict=True)])
        influence = np.tensordot(weights, np.array([found.influence for found in founds]), axes=1)
        return QueryFigures(values=values, influence=influence / max(weights.sum(), 1.0))

    def constants(self) -> Fusion:
        """The constants of the sample, over items that were drawn; correct items have no part in them."""
        sample, settings = self.sample, self.settings
        drawn = np.arange(len(sample.source)) if sample.drawn is None else np.flatnonzero(sample.drawn)
        galleries = (
            (sample.source_queries, sample.source[drawn], settings.source_metric),
            (sample.target_queries, sample.native[drawn], settings.target_metric),
            (sample.target_queries, sample.transformed[drawn], settings.target_metric),
        )
        block = max(_BLOCK_CELLS // len(drawn), 1)
        kept = None if sample.factors is None else sample.factors[drawn]
        source, native, transformed = (
            measure(*gallery, block=block, factors=factors)
            for gallery, factors in zip(galleries, (None, None, kept), strict=True)
        )
        constants = standardise(source, native, transformed, places_among(own_rows(sample), drawn))
        return replace(constants, shrinkage=kept is not None)

    def fit(self, native: BoolArray, constants: Fusion, *, against_target: bool = False) -> FittedFusion:
        """Choose a weight for a gallery of which some rows are native.

        Args:
            native: (n,) bool, rows with a native vector.
            constants: Result of `constants`.
            against_target: Whether to report the gain over the target alone.

        A trial caches its fits: the choice and its figures are the same with and without it.
        """
        key = native.tobytes(), constants
        if key not in self._fitted:
            if self.before is not None:
                fitted = self._by_rule(native, constants)
            else:
                fitted = self._fit(native, constants, against_target=against_target)
                if not against_target:
                    return fitted
            self._fitted[key] = fitted
        return self._fitted[key]

    def fit_shares(
        self, natives: Mapping[float, BoolArray], constants: Fusion, fitted: Callable[[int], None] = lambda _: None
    ) -> Fusion:
        """Choose a weight for each of several native shares; the fusion has that of the first one.

        Args:
            natives: Share of the gallery -> (n,) bool, rows with a native vector then; ascending.
            constants: Result of `constants`.
            fitted: Called with 1 after each share.
        """
        choices = list[Measurement]()
        for share, native in natives.items():
            fusion = self.fit(native, constants, against_target=True).fusion
            choices += (replace(choice, native_share=share) for choice in fusion.choices)
            fitted(1)
        return replace(constants, choices=tuple(choices)).at(next(iter(natives)))

    def _fit(self, native: BoolArray, constants: Fusion, *, against_target: bool) -> FittedFusion:
        folds = folds_of(len(self.sample.source_queries), self.settings.seed)
        there = replace(constants, native_share=self.sample.share_of(native))
        fusions = self._candidates(there)
        allowed = len(fusions)
        if against_target and 1.0 not in self.weights:
            fusions.append(replace(there, weight=1.0, per_origin=False))
        values = self._values(native, fusions)
        every = np.arange(values.shape[2])
        others = [np.setdiff1d(every, fold) for fold in folds]
        places = [self._surest(values[:allowed, :, rows]) for rows in (every, *others)]
        alone = [place for place, fusion in enumerate(fusions) if against_target and fusion.weight == 1]
        tried = self._tried(folds, native, fusions, values, sorted({0, *places, *alone}))
        best, gain = self._confirmed(places[0], every, folds, tried, self.settings.resamples)
        few = min(self.settings.resamples, CHOOSING)
        taken = [
            self._confirmed(place, rows, folds, tried, few)[0] for place, rows in zip(places[1:], others, strict=True)
        ]
        found = self.joined(folds, [tried[place][fold] for fold, place in enumerate(taken)])
        choice = self._choice(fusions[best], int(np.isfinite(values[0, -1]).sum()), gain)
        if alone:
            before, target = (self.joined(folds, tried[place]) for place in (0, *alone))
            choice = self._beside_target(choice, found, before, target)
        served = self.joined(folds, tried[best])
        return FittedFusion(fusion=replace(fusions[best], choices=(choice,)), found=found, served=served)

    def _by_rule(self, native: BoolArray, constants: Fusion) -> FittedFusion:
        """The weight of the rule without ground truth, and the agreement of its searches."""
        there = replace(constants, weight=1.0, per_origin=False, native_share=self.sample.share_of(native))
        (target,) = self._search(native, [there], influence=False)
        agreement = float(target.values[0].mean())
        weight = float(agreement == 1.0) if self.weights == ALONE else weight_by_rule(agreement)
        fusion = replace(there, weight=weight)
        found, choice = self.find(native, fusion), self._choice(fusion, len(self.sample.source_queries))
        return FittedFusion(fusion=replace(fusion, choices=(choice,)), found=found, served=found)

    def _choice(self, fusion: Fusion, num_queries: int, gain: Estimate | None = None) -> Measurement:
        """A weight and its gain; None where that is not known."""
        return Measurement(
            weight=fusion.weight,
            per_origin=fusion.per_origin,
            gain=gain,
            criterion=self.settings.criterion,
            truth=self.truth,
            num_queries=num_queries,
            native_share=fusion.native_share,
        )

    def most_gained(self, native: BoolArray, constants: Fusion, found: QueryFigures, *, alone: bool = False) -> float:
        """Upper bound of any weight's gain over the current results: the highest upper end of simultaneous intervals.

        Args:
            native: (n,) bool, rows with a native vector then.
            constants: Result of `constants`.
            found: The current results.
            alone: True if the target alone is searched, rather than both versions.

        Returns:
            In the criterion, from -1 to 1; infinite where no query counts.
        """
        there = replace(constants, native_share=float(native.mean()))
        tried = self._values(native, [replace(there, weight=1.0)] if alone else self._candidates(there))
        values = np.concatenate([found.values[None], tried])
        counted = np.isfinite(values[0, -1])
        if not counted.any():
            return float("inf")
        few = min(self.settings.resamples, CHOOSING)
        return max(gain.high for gain in self.gains(values[:, :, counted], resamples=few))

    def find(self, native: BoolArray, fusion: Fusion) -> QueryFigures:
        """Results of the queries by one fusion.

        Args:
            native: (n,) bool, rows with a native vector.
            fusion: With its weight.
        """
        counts = self.before is None  # agreement has no interval that the draw of items widens
        return self.figures(self.relevance, lambda one: self._search(native, [fusion], one, influence=counts))[0]

    def measure(self, native: BoolArray, fusion: Fusion) -> Measurement:
        """Figures of a weight that the caller names; arguments as of `find`."""
        if self.before is not None:
            return self._choice(fusion, len(self.sample.source_queries))
        before, found, target = (
            self.find(native, replace(fusion, weight=weight)) for weight in (0.0, fusion.weight, 1.0)
        )
        choice = self._choice(fusion, int(before.counted.sum()), self.over(found, before) or NO_GAIN)
        return self._beside_target(choice, found, before, target)

    def _beside_target(
        self, choice: Measurement, found: QueryFigures, before: QueryFigures, target: QueryFigures
    ) -> Measurement:
        """A choice with its gain over the target alone, and the figures of that.

        Args:
            choice: The choice without these.
            found: Results of the queries by the weight.
            before: By the status quo.
            target: In the target alone.
        """
        return replace(choice, over_target=self.over(found, target), target_gain=self.over(target, before))

    def num_candidates(self, native_share: float) -> int:
        """Number of rankings that `fit` makes for a query at a native share."""
        if self.before is not None:
            return 3
        return len(self._candidates(Fusion(weight=0.0, native_share=native_share)))

    def _candidates(self, constants: Fusion) -> list[Fusion]:
        """Candidates, the status quo first.

        In a gallery of one kind there is nothing to standardise apart.
        """
        alike = replace(constants, per_origin=False)
        together = [replace(alike, weight=weight) for weight in self.weights]
        if constants.native_share in (0, 1):
            return together
        return [*together, *(replace(fusion, per_origin=True) for fusion in together if not fusion.single)]

    def _search(
        self,
        native: BoolArray,
        fusions: Sequence[Fusion],
        correct: Relevance | None = None,
        rows: Positions | None = None,
        *,
        influence: bool = True,
    ) -> list[QueryFigures]:
        """Results of queries by each fusion, compared with the correct items.

        Args:
            native: (n,) bool, rows with a native vector.
            fusions: With their weights.
            correct: The correct items of all queries; those of the trial by default.
            rows: (q,) intp, indices of the queries that search; None for all.
            influence: As for `find_in_blocks`.
        """
        sample, settings, sampling = self.sample, self.settings, self.sampling
        correct, every = correct or self.relevance, np.arange(len(sample.source_queries))
        if rows is not None:
            correct = of_queries(correct, rows)
            sampling = replace(sampling, asked=None if sampling.asked is None else sampling.asked[rows])
        asking, items = every if rows is None else rows, len(sample.source)
        left, right = self._distances(native, asking, max(_BLOCK_CELLS // (items * len(fusions)), 1))
        blocks = fused_blocks(left, right, native, correct, fusions, sample.factors_of(native), settings.target_metric)
        columns = [np.arange(items) + items * number for number in range(len(fusions))]
        progress = self.progress if rows is None else None
        return find_in_blocks(
            blocks, len(asking), correct, columns, settings.ks, sampling, influence=influence, progress=progress
        )

    def _distances(self, native: BoolArray, asking: Positions, block: int) -> tuple[Blocks, Blocks]:
        """Distances in the source, and in the target of a gallery of which some rows are native.

        They are those of the first call in each later one, where there is room for them: galleries of one sample
        differ in which of two vectors an item has, and not in the vectors.
        """
        sample, settings = self.sample, self.settings
        sides = (
            (sample.source_queries, sample.source, settings.source_metric),
            (sample.target_queries, sample.native, settings.target_metric),
            (sample.target_queries, sample.transformed, settings.target_metric),
        )
        if len(sample.source_queries) * len(sample.source) > _KEPT_CELLS:
            target = np.where(native[:, None], sample.native, sample.transformed)
            left = measure(sample.source_queries[asking], sample.source, settings.source_metric, block=block)
            right = measure(sample.target_queries[asking], target, settings.target_metric, block=block)
            return left, right
        if not self._kept:
            self._kept.extend(measure(*side).whole() for side in sides)
        source, exact, transformed = self._kept
        return KeptDistances(source, asking, block), KeptDistances(exact, asking, block, native, transformed)

    def _values(self, native: BoolArray, fusions: Sequence[Fusion]) -> Doubles:
        """Results of each query by each fusion, as returned by `find_in_blocks`: (fusions, metrics, q) float64."""
        return np.array([figures.values for figures in self._search(native, fusions, influence=False)])

    def _surest(self, values: Doubles) -> int:
        """Index of the candidate with the highest lower confidence bound by some queries; 0 = status quo.

        Args:
            values: (candidates, metrics, q) float64.
        """
        counted = np.isfinite(values[0, -1])
        if not counted.any():
            return 0
        kept = [self.settings.ks.index(min(self.settings.ks)), -1]
        means = values[:, :, counted].mean(axis=2)
        few = min(self.settings.resamples, CHOOSING)
        lows = np.array([gain.low for gain in self.gains(values[:, :, counted], resamples=few)])
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
        if self.sample.complete:  # nothing was drawn, so no item contributes to the interval of a figure
            none = np.zeros((metrics, items))
            return {p: [QueryFigures(values=values[p][:, fold], influence=none) for fold in folds] for p in places}
        chosen = [fusions[place] for place in places]
        found = zip(*(self._search(native, chosen, rows=fold) for fold in folds), strict=True)
        return {place: list(figures) for place, figures in zip(places, found, strict=True)}

    def _confirmed(
        self,
        place: int,
        rows: Positions,
        folds: Sequence[Positions],
        tried: Mapping[int, Sequence[QueryFigures]],
        resamples: int,
    ) -> tuple[int, Estimate]:
        """A candidate whose gain is significant also for a sample of items, with its gain; otherwise the status quo."""
        using = [number for number, fold in enumerate(folds) if np.isin(fold, rows).all()]
        pair = [self.joined([folds[n] for n in using], [tried[p][n] for n in using]) for p in (0, place)]
        counted = pair[0].counted
        if not place or not counted.any():
            return 0, NO_GAIN
        values = np.array([found.values[:, counted] for found in pair])
        (gain,) = self.gains(values, pair, rows[counted], resamples)
        return (place, gain) if gain.is_gain else (0, NO_GAIN)


def weight_by_rule(agreement: float) -> float:
    """Weight of the target without ground truth: the agreement of its column with a wholly native one, at most 0.9.

    So the target weighs as much as its column answers like the new model, and the source is heard until it is retired.
    `python -m benchmarks fusion` compares it with the best weight on labelled sets, their labels withheld.
    """
    return min(round(agreement, 2), BOTH[-1])


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
