r"""Quality over the backfilled share: status quo, the target's column, fused, reciprocal ranks, cascades, on real sets.

    python -m benchmarks.fusion characters.npz fonts.npz [--seeds 3] [--items 1500] [--queries 600] [--shares 0 0.5 1]

The sets are made by `benchmarks.pairs.plain` and `benchmarks.pairs.images`. For each set, seed and setting, classes
seen or unseen by the pairs that a ridge regression learns from, a random share of the gallery is native. The weight of
the fusion and its constants are chosen on the gallery's items, each asking for the others; the figures are of other
queries. CMC-1 / mAP in points, the mean over seeds, and its standard error to the status quo.

A cascade embeds a query's first 10 or 50 candidates natively and ranks them by the target's distance, or by both native
vectors with the weight that was chosen for a native gallery; each query asks a gallery that no other has asked.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.scenario import SETTINGS, Scenario, scenario
from benchmarks.pairs.settings import Size
from compatstore.arrays import Doubles, FloatArray
from compatstore.evaluation import DecisionSettings, EvaluationSample, Ranking
from compatstore.evaluation.distances import Distances, measure
from compatstore.evaluation.fusion import Fusion, fused_blocks
from compatstore.evaluation.fusion_choice import FusionTrial
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import Relevance, relevance_from_labels
from compatstore.evaluation.sampled import WHOLE
from compatstore.trainers import Ridge
from compatstore.versions import Metric

PAIRS = 6000
CHOSEN = "fused, w chosen"
RANK_OFFSET = 60  # of reciprocal rank fusion
FIRST = (10, 50)  # candidates that a cascade embeds
Found = tuple[float, float]


@dataclass(frozen=True, kw_only=True, eq=False)
class Gallery:
    """The gallery of one trial in both spaces, and the queries that report.

    Args:
        trial: Rows of the set.
        hopped: (n, d) float32, the gallery as the transform makes it.
        metric: Distance of both spaces.
    """

    trial: Scenario
    hopped: FloatArray
    metric: Metric

    def vectors(self, version: str, *, asked: bool) -> FloatArray:
        """Vectors of the queries, or of the items."""
        rows = self.trial.queries if asked else self.trial.gallery
        return self.trial.data.vectors[version][rows]

    def stored(self, native: npt.NDArray[np.bool_]) -> FloatArray:
        """The target's column with some rows native."""
        return np.where(native[:, None], self.vectors(TARGET, asked=False), self.hopped)

    def chosen(self, native: npt.NDArray[np.bool_], criterion: str) -> Fusion:
        """The fusion that the gallery's own items choose."""
        labels, ids = self.trial.data.labels[self.trial.gallery], np.arange(len(native))
        sample = EvaluationSample(
            source_queries=self.vectors(SOURCE, asked=False),
            target_queries=self.vectors(TARGET, asked=False),
            source=self.vectors(SOURCE, asked=False),
            transformed=self.hopped,
            native=self.vectors(TARGET, asked=False),
            order=ids,
            query_labels=labels,
            gallery_labels=labels,
            query_ids=ids,
            gallery_ids=ids,
        )
        settings = DecisionSettings(
            ks=(1,), criterion=criterion, source_metric=self.metric, target_metric=self.metric, seed=self.trial.seed
        )
        relevance = relevance_from_labels(labels, labels, ids, ids)
        trying = FusionTrial(sample=sample, settings=settings, relevance=relevance, sampling=WHOLE, truth="labels")
        return trying.fit(native, trying.constants()).fusion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--items", type=int, default=1500)
    parser.add_argument("--queries", type=int, default=600)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.25, 0.5, 0.75, 1.0])
    parser.add_argument("--metric", choices=["l2", "cosine", "dot"], default="cosine")
    parser.add_argument("--criterion", choices=["map", "cmc@1"], default="map")
    options = parser.parse_args()
    size = Size(
        name="fusion",
        pairs=PAIRS,
        queries=options.queries,
        gallery=options.items,
        epochs=1,
        batch_size=1,
        branch_width=1,
        mixer_width=1,
    )
    for path in options.sets:
        data = EmbeddedSet.load(path)
        for setting in SETTINGS:
            rows = defaultdict[tuple[float, str], list[Found]](list)
            weights = defaultdict[float, list[str]](list)
            for seed in range(options.seeds):
                trial = scenario(data, setting, size, seed)
                hopped = Ridge().fit(trial.learn()).apply(data.vectors[SOURCE][trial.gallery]).vectors
                gallery = Gallery(trial=trial, hopped=hopped, metric=options.metric)
                for share in options.shares:
                    for name, found, weight in measured(gallery, share, options.criterion):
                        rows[share, name].append(found)
                        if weight:
                            weights[share].append(weight)
            show(data.name, setting, rows, weights)


def measured(gallery: Gallery, share: float, criterion: str) -> Iterator[tuple[str, Found, str]]:
    """(name, CMC-1 and mAP, the weight that was chosen) of each way to serve the gallery at a share of natives."""
    trial = gallery.trial
    labels, items = trial.data.labels, len(trial.gallery)
    native = np.zeros(items, bool)
    native[np.random.default_rng(trial.seed).permutation(items)[: round(share * items)]] = True
    relevance = relevance_from_labels(labels[trial.queries], labels[trial.gallery])
    source = measure(
        gallery.vectors(SOURCE, asked=True), gallery.vectors(SOURCE, asked=False), gallery.metric, block=64
    )
    target = measure(gallery.vectors(TARGET, asked=True), gallery.stored(native), gallery.metric, block=64)
    fusion = gallery.chosen(native, criterion)
    chosen = f"{fusion.weight:g}{' apart' * fusion.per_origin}"
    fusions = {
        "status quo": replace(fusion, weight=0.0),
        "target's column": replace(fusion, weight=1.0),
        "fused, w = 0.5, together": replace(fusion, weight=0.5, per_origin=False),
        "fused, w = 0.5, apart": replace(fusion, weight=0.5, per_origin=True),
        CHOSEN: fusion,
    }
    columns = [np.arange(items) + items * number for number in range(len(fusions))]
    blocks = fused_blocks(source, target, native, relevance, list(fusions.values()))
    rankings = rank_blocks(blocks, len(trial.queries), relevance, columns)
    for name, ranking in zip(fusions, rankings, strict=True):
        yield name, figures(ranking), chosen if name == CHOSEN else ""
    yield "reciprocal rank", figures(by_ranks(source, target, relevance)), ""
    exact = measure(gallery.vectors(TARGET, asked=True), gallery.vectors(TARGET, asked=False), gallery.metric, block=64)
    fusions["both"] = gallery.chosen(np.ones(items, bool), criterion)
    finding = {"source": "status quo", "target": "target's column", "fusion": CHOSEN}
    cascades = [(first, name, by) for first in FIRST for name in finding for by in ("target", "both")]
    orders = [(first, fusions[finding[name]], by) for first, name, by in cascades]
    found = by_cascades(source, target, exact, native, relevance, orders, fusions["both"])
    for (first, name, by), ranking in zip(cascades, found, strict=True):
        yield f"first {first} of {name}, by {by}", figures(ranking), ""


def by_cascades(
    source: Distances,
    target: Distances,
    exact: Distances,
    native: npt.NDArray[np.bool_],
    relevance: Relevance,
    cascades: Sequence[tuple[int, Fusion, str]],
    both: Fusion,
) -> list[Ranking]:
    """Rankings of whole galleries by cascades.

    Args:
        source: Queries and items in the source's space.
        target: The same in the target's space, as the column has them.
        exact: The same in the target's space, all native.
        native: (n,) bool, items whose vector in the column is native.
        relevance: The correct items.
        cascades: Of each the number of candidates, what finds them, and what ranks them: "target" or "both".
        both: Ranks by both native vectors.
    """
    items, order = len(native), relevance.order
    everything, native = np.ones(items, bool), native[order]

    def blocks() -> Iterator[tuple[int, Doubles]]:
        for (start, left), (_, column), (_, whole) in zip(*(d.blocks() for d in (source, target, exact)), strict=True):
            near, far, true = (np.take(block, order, axis=1) for block in (left, column, whole))
            by = {"target": true, "both": both.distances(near, true, everything)}
            made = [cascaded(fusion.distances(near, far, native), by[rank], first) for first, fusion, rank in cascades]
            yield start, np.concatenate(made, axis=1)

    columns = [np.arange(items) + items * number for number in range(len(cascades))]
    return rank_blocks(blocks(), len(source.left), relevance, columns)


def cascaded(found: Doubles, ranked: Doubles, first: int) -> Doubles:
    """Distances that rank as a cascade does: the first candidates by one distance, the rest behind them by another.

    Args:
        found: (b, n) float64, distances by which candidates are found.
        ranked: (b, n) float64, distances by which the first of them are ranked.
        first: Candidates of each query that are.
    """
    places = found.argsort(axis=1, kind="stable").argsort(axis=1)
    within = np.where(places < first, ranked, np.inf).argsort(axis=1, kind="stable").argsort(axis=1)
    return np.where(places < first, within, places).astype(np.float64)


def by_ranks(source: Distances, target: Distances, relevance: Relevance) -> Ranking:
    """Reciprocal rank fusion of both whole rankings (Cormack et al. 2009)."""

    def blocks() -> Iterator[tuple[int, Doubles]]:
        for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
            ranks = (np.take(block, relevance.order, axis=1).argsort(axis=1).argsort(axis=1) for block in (left, right))
            yield start, -sum(1.0 / (RANK_OFFSET + 1 + rank) for rank in ranks)

    items = len(relevance.order)
    return rank_blocks(blocks(), len(source.left), relevance, [np.arange(items)])[0]


def figures(ranking: Ranking) -> Found:
    counted = ranking.counted
    return 100 * float((ranking.first_match[counted] == 1).mean()), 100 * float(
        ranking.average_precision[counted].mean()
    )


def show(
    name: str, setting: str, rows: Mapping[tuple[float, str], list[Found]], weights: Mapping[float, list[str]]
) -> None:
    """Print one table."""
    print(f"\n{name}, classes {setting} by the pairs")
    for (share, way), found in rows.items():
        values, before = np.array(found), np.array(rows[share, "status quo"])
        mean, error = values.mean(axis=0), (values - before).std(axis=0) / np.sqrt(max(len(found) - 1, 1))
        gain = (values - before).mean(axis=0)
        tail = f"  w {', '.join(weights[share])}" if way == CHOSEN else ""
        print(
            f"{share:5.0%}  {way:30s} {mean[0]:5.1f} / {mean[1]:4.1f}   "
            f"{gain[0]:+5.1f} ({error[0]:.1f}) / {gain[1]:+5.1f} ({error[1]:.1f}){tail}",
            flush=True,
        )


if __name__ == "__main__":
    main()
