"""What the strategies that can serve an upgrade find at a share of natives: one measurement of `benchmarks.fusion`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from benchmarks.merges import merged
from benchmarks.pairs.embedded import SOURCE, TARGET
from benchmarks.pairs.scenario import Scenario
from compatstore.arrays import BoolArray, Doubles, FloatArray
from compatstore.evaluation import DecisionSettings, EvaluationSample, Ranking
from compatstore.evaluation.distances import Distances, measure
from compatstore.evaluation.fusion import Fusion, fused_blocks
from compatstore.evaluation.fusion_choice import Trial
from compatstore.evaluation.merging import Calibration, calibrate
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import Relevance, relevance_from_labels
from compatstore.evaluation.sampled import WHOLE
from compatstore.trainers import Ridge
from compatstore.versions import Metric

STATUS_QUO, COLUMN, CHOSEN = "status quo", "target's column", "fused, w chosen"
RANK_OFFSET = 60  # of reciprocal rank fusion
FIRST = (10, 50)  # candidates that a cascade embeds
MERGES = ("merge by distance", "merge by calibrated distance", "merge by reciprocal rank")
FINDING = {"source": STATUS_QUO, "target": COLUMN, "fusion": CHOSEN}  # what finds a cascade's candidates
_BLOCK = 64  # queries


@dataclass(frozen=True, kw_only=True)
class Cascading:
    """One cascade.

    Args:
        first: Candidates of each query that are embedded.
        finding: Finds the candidates.
        by: What ranks them: "target", or "both" native vectors.
    """

    first: int
    finding: Fusion
    by: str


@dataclass(frozen=True, kw_only=True)
class UpgradingGallery:
    """The gallery of one trial in both spaces, and the queries that report.

    Args:
        trial: Rows of the set; a ridge regression learns from its pairs.
        metric: Distance of both spaces.
        criterion: Figure that weights are chosen by, such as "map".
    """

    trial: Scenario
    metric: Metric
    criterion: str

    @cached_property
    def transformed(self) -> FloatArray:
        """(n, d) float32, what the transform makes of the items' source vectors."""
        return Ridge().fit(self.trial.learn()).apply(self.vectors(SOURCE, asked=False)).vectors

    @cached_property
    def both(self) -> Fusion:
        """The fusion of two native vectors."""
        return self.chosen(np.ones(len(self.trial.gallery), bool))

    @cached_property
    def _trial(self) -> Trial:
        """The gallery's own items, each asking for the others: weights, constants and calibrations come from these."""
        labels, ids = self.trial.data.labels[self.trial.gallery], np.arange(len(self.trial.gallery))
        source, native = self.vectors(SOURCE, asked=False), self.vectors(TARGET, asked=False)
        sample = EvaluationSample(
            source_queries=source,
            target_queries=native,
            source=source,
            transformed=self.transformed,
            native=native,
            order=ids,
            query_labels=labels,
            gallery_labels=labels,
            query_ids=ids,
            gallery_ids=ids,
        )
        settings = DecisionSettings(
            ks=(1,),
            criterion=self.criterion,
            source_metric=self.metric,
            target_metric=self.metric,
            seed=self.trial.seed,
        )
        relevance = relevance_from_labels(labels, labels, ids, ids)
        return Trial(sample=sample, settings=settings, relevance=relevance, sampling=WHOLE, truth="labels")

    def vectors(self, version: str, *, asked: bool) -> FloatArray:
        """Vectors of the queries, or of the items."""
        rows = self.trial.queries if asked else self.trial.gallery
        return self.trial.data.vectors[version][rows]

    def native(self, share: float) -> BoolArray:
        """(n,) bool, a random share of the items; a larger share holds a smaller one."""
        items = len(self.trial.gallery)
        order = np.random.default_rng(self.trial.seed).permutation(items)
        return np.isin(np.arange(items), order[: round(share * items)])

    def distances(self, version: str, items: FloatArray) -> Distances:
        """The queries against vectors of the items."""
        return measure(self.vectors(version, asked=True), items, self.metric, block=_BLOCK)

    def chosen(self, native: BoolArray) -> Fusion:
        """The fusion that the gallery's own items choose."""
        return self._trial.fit(native, self._trial.constants()).fusion

    def calibration(self) -> Calibration:
        """The calibration of a merge that the same items are fitted to."""
        vectors = self._trial.sample.source, self._trial.sample.native
        source, target = (measure(own, own, self.metric, block=_BLOCK) for own in vectors)
        return calibrate(source, target, self._trial.relevance, np.arange(len(vectors[0])))


def written(fusion: Fusion) -> str:
    """A weight, and how native and transformed vectors are told apart: "0.5", "0.5 apart", or "0.5 and 0.15 apart"."""
    return f"{fusion.weight:g}" + " apart" * fusion.per_origin


def measured(gallery: UpgradingGallery, share: float) -> dict[str, object]:
    """CMC-1 and mAP by strategy, from 0 to 1, and "chosen": the weight that the gallery's items have chosen."""
    trial, native = gallery.trial, gallery.native(share)
    labels = trial.data.labels
    relevance = relevance_from_labels(labels[trial.queries], labels[trial.gallery])
    exact = gallery.distances(TARGET, gallery.vectors(TARGET, asked=False))
    source = gallery.distances(SOURCE, gallery.vectors(SOURCE, asked=False))
    stored = np.where(native[:, None], gallery.vectors(TARGET, asked=False), gallery.transformed)
    target = gallery.distances(TARGET, stored)
    fusion = gallery.chosen(native)
    fusions = {
        STATUS_QUO: replace(fusion, weight=0.0),
        COLUMN: replace(fusion, weight=1.0),
        "fused, w = 0.5, together": replace(fusion.named(0.5), per_origin=False),
        "fused, w = 0.5, apart": replace(fusion.named(0.5), per_origin=True),
        CHOSEN: fusion,
    }
    cascades = {
        f"first {first} of {name}, by {by}": Cascading(first=first, finding=fusions[finding], by=by)
        for first in FIRST
        for name, finding in FINDING.items()
        for by in ("target", "both")
    }
    fused = fused_blocks(source, target, native, relevance, list(fusions.values()))
    parts = merged_parts(source, exact, native, relevance, gallery.calibration())
    cascaded = cascaded_blocks(source, target, exact, native, relevance, list(cascades.values()), gallery.both)
    found: dict[str, object] = {"chosen": written(fusion)}
    for names, blocks in (
        (list(fusions), fused),
        (MERGES, parts),
        (["fused by reciprocal rank"], fused_ranks(source, target, relevance)),
        (list(cascades), cascaded),
    ):
        columns = [np.arange(len(native)) + len(native) * number for number in range(len(names))]
        rankings = rank_blocks(blocks, len(trial.queries), relevance, columns)
        found |= {name: figures(ranking) for name, ranking in zip(names, rankings, strict=True)}
    return found


def merged_parts(
    source: Distances, exact: Distances, native: BoolArray, relevance: Relevance, calibration: Calibration
) -> Iterator[tuple[int, Doubles]]:
    """Distances that rank n items of two parts by each of `MERGES`, block by block: (b, merges * n)."""
    for (start, left), (_, right) in zip(source.blocks(), exact.blocks(), strict=True):
        rows = slice(start, start + len(left))
        near = np.take(left, relevance.order, axis=1) + source.offsets[rows, None]
        far = np.take(right, relevance.order, axis=1) + exact.offsets[rows, None]
        ways = (lambda distances: distances, calibration.apply, None)
        yield start, np.concatenate([merged(near, far, native[relevance.order], way) for way in ways], axis=1)


def cascaded_blocks(
    source: Distances,
    target: Distances,
    exact: Distances,
    native: BoolArray,
    relevance: Relevance,
    cascades: Sequence[Cascading],
    both: Fusion,
) -> Iterator[tuple[int, Doubles]]:
    """Distances that rank n items as cascades do, block by block: (b, cascades * n), cascade after cascade.

    Args:
        source: Queries and items in the source's space.
        target: The same in the target's space, as the column has them.
        exact: The same in the target's space, all native.
        native: (n,) bool, items whose vector in the column is native.
        relevance: The correct items; items are in the order that breaks ties.
        cascades: What is compared.
        both: Ranks by both native vectors.
    """
    order = relevance.order
    everything, native = np.ones(len(native), bool), native[order]
    for (start, left), (_, column), (_, whole) in zip(*(d.blocks() for d in (source, target, exact)), strict=True):
        near, far, true = (np.take(block, order, axis=1) for block in (left, column, whole))
        by = {"target": true, "both": both.distances(near, true, everything)}
        made = [_cascaded(way.finding.distances(near, far, native), by[way.by], way.first) for way in cascades]
        yield start, np.concatenate(made, axis=1)


def _cascaded(found: Doubles, ranked: Doubles, first: int) -> Doubles:
    """The first candidates ranked by one distance, the rest behind them by another: (b, n) float64 each."""
    places = found.argsort(axis=1, kind="stable").argsort(axis=1)
    within = np.where(places < first, ranked, np.inf).argsort(axis=1, kind="stable").argsort(axis=1)
    return np.where(places < first, within, places).astype(np.float64)


def fused_ranks(source: Distances, target: Distances, relevance: Relevance) -> Iterator[tuple[int, Doubles]]:
    """Reciprocal rank fusion of the whole rankings by both columns (Cormack et al. 2009), block by block: (b, n)."""
    for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
        ranks = (np.take(block, relevance.order, axis=1).argsort(axis=1).argsort(axis=1) for block in (left, right))
        yield start, -sum(1.0 / (RANK_OFFSET + 1 + rank) for rank in ranks)


def figures(ranking: Ranking) -> dict[str, float]:
    """CMC-1 and mAP of the queries that count."""
    counted = ranking.counted
    return {
        "cmc1": float((ranking.first_match[counted] == 1).mean()),
        "map": float(ranking.average_precision[counted].mean()),
    }
