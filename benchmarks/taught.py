"""A gallery on disk that teaches itself from one native share to the next, and queries from outside that search it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import compatstore as cs
from benchmarks.fusion.strategies import figures
from benchmarks.pairs.embedded import SOURCE, TARGET, AskedSet, EmbeddedSet
from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.evaluation import Judgements
from compatstore.evaluation.fusion import Fusion
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import Relevance, relevance_from_judgements, relevance_from_labels
from compatstore.storage.shrinkage import kept_cosines
from compatstore.storage.vector_form import to_floats
from compatstore.upgrade.estimates.estimate import load_estimate
from compatstore.upgrade.estimates.waves import WaveFigures
from compatstore.upgrade.run import UpgradeResult

NEW = "v2"
DEPTH = 10
BY_LABELS = {"cmc1": "CMC-1", "map": "mAP"}
BY_QRELS = {"ndcg@10": "nDCG@10", "recall@10": "recall@10"}
ALONE, LABELS = "nothing told", "labels told"


@dataclass(frozen=True, kw_only=True, eq=False)
class Outside:
    """q queries that are not in the gallery, with what is correct for them.

    Args:
        source: (q, source dim) float32 of unit length.
        target: (q, target dim) float32 of unit length.
        relevance: The correct items.
        labels: (q,) int64, what they are known by; None where somebody has judged.
        judged: The correct items as somebody has judged; None for labels.
    """

    source: FloatArray
    target: FloatArray
    relevance: Relevance
    labels: npt.NDArray[np.int64] | None = None
    judged: Judgements | None = None

    def figures(self, blocks: Iterator[tuple[int, Doubles]], galleries: int) -> list[dict[str, float]]:
        """Figures of several galleries whose distances stand side by side, items in the order of `relevance`."""
        items = len(self.relevance.order)
        columns = [np.arange(items) + items * number for number in range(galleries)]
        if self.judged is None:
            return [figures(one) for one in rank_blocks(blocks, len(self.source), self.relevance, columns)]
        found = np.zeros((galleries, 2, len(self.source)))
        for start, block in blocks:
            for row, distances in enumerate(block, start=start):
                for number, places in enumerate(columns):
                    found[number, :, row] = _graded(distances[places], self.relevance.of(row))
        return [dict(zip(BY_QRELS, one.mean(axis=1).tolist(), strict=True)) for one in found]


def _graded(distances: Doubles, correct: Positions) -> tuple[float, float]:
    """nDCG@10 and recall@10 of one query whose correct items are all worth the same."""
    right = np.isin(np.argsort(distances, kind="stable")[:DEPTH], correct)
    discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
    return float(discounts[right].sum() / discounts[: len(correct)].sum()), float(right.sum() / len(correct))


@dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """One gallery of a set, and who asks it.

    Args:
        rows: (n,) intp, rows of the set that are in the gallery.
        others: (m,) intp, rows that are neither in the gallery nor queries.
        outside: The queries that report.
        gates: What judges the upgrade: nothing, labels, or queries of the app that do not report.
    """

    rows: Positions
    others: Positions
    outside: Outside
    gates: cs.Gates


def draw(data: EmbeddedSet, items: int, queries: int, seed: int, *, labels: bool = False) -> Draw:
    """Items of no model's training; others of them ask, and are found by the items of their class."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(data.fresh))
    queries = min(queries, len(rows) // 4)
    asked, rows, others = np.split(rows, [queries, queries + items])
    relevance = relevance_from_labels(data.labels[asked], data.labels[rows])
    source, target = (unit(data.vectors[name][asked]) for name in (SOURCE, TARGET))
    outside = Outside(source=source, target=target, relevance=relevance, labels=data.labels[asked])
    return Draw(rows=rows, others=others, outside=outside, gates=cs.Gates(labels="label" if labels else None))


def draw_asked(data: EmbeddedSet, asked: AskedSet, items: int, queries: int, seed: int, told: int, by: str) -> Draw:
    """Items, and queries that are none: `told` of them judge the upgrade by one figure, `queries` others report."""
    random = np.random.default_rng(seed)
    rows = random.permutation(np.flatnonzero(data.fresh))
    rows = rows[np.argsort(~np.isin(rows, asked.items), kind="stable")]  # first those that somebody asks for
    rows, others = rows[:items], rows[items:]
    place = np.full(len(data.labels), -1)
    place[rows] = np.arange(len(rows))
    there = place[asked.items] >= 0
    pairs = Judgements(queries=asked.queries[there], items=place[asked.items[there]], gains=np.ones(int(there.sum())))
    known = random.permutation(np.unique(pairs.queries))
    app, known = known[:told], known[told : told + queries]
    mine, judged = pairs.of_queries(app), pairs.of_queries(known)
    qrels: dict[str, dict[str, float]] = {}
    for query, item in zip(mine.queries, mine.items, strict=True):
        qrels.setdefault(f"query-{query}", {})[id_of(rows[item])] = 1
    columns: dict[str, Any] = {name: unit(asked.vectors[name][app]) for name in (SOURCE, TARGET)}
    columns["id"] = [f"query-{query}" for query in range(len(app))]
    source, target = (unit(asked.vectors[name][known]) for name in (SOURCE, TARGET))
    relevance = relevance_from_judgements(judged, len(known), len(rows), depth=DEPTH)
    gates = cs.Gates(labels=cs.Queries(queries=columns, qrels=qrels), criterion=by)  # type: ignore[arg-type]
    outside = Outside(source=source, target=target, relevance=relevance, judged=judged)
    return Draw(rows=rows, others=others, outside=outside, gates=gates)


def add_options(parser: argparse.ArgumentParser, *, items: int, queries: int) -> None:
    """What a gallery is drawn by, and what its upgrade is told."""
    parser.add_argument("sets", nargs="*", type=Path)
    parser.add_argument("--journal", type=Path, required=True, help="one JSON line for each measurement")
    parser.add_argument("--page", type=Path, help="a page whose tables are written from the journal")
    parser.add_argument("--items", type=int, default=items, help="of a gallery")
    parser.add_argument("--queries", type=int, default=queries, help="that report")
    parser.add_argument("--labels", action="store_true", help="tell the upgrade the items' labels")
    parser.add_argument("--asked", type=Path, help="queries that are no items, of which --told judge the upgrade")
    parser.add_argument("--told", type=int, default=500, help="queries that judge the upgrade")
    parser.add_argument("--criterion", default="ndcg@10", help="the figure that these judge by")
    parser.add_argument("--jobs", type=int, default=1, help="galleries that are measured at once")


def size_of(options: argparse.Namespace) -> str:
    """How many items and queries a run's figures are of."""
    return f"{options.items} items, {options.queries} queries"


def setting_of(options: argparse.Namespace) -> str:
    """What the upgrade is told."""
    told = LABELS if options.labels else ALONE
    if options.asked:
        told = f"{AskedSet.load(options.asked).name} told, {options.criterion}"
    return told


def drawn(data: EmbeddedSet, seed: int, options: argparse.Namespace) -> Draw:
    """A gallery of a set, as the options say."""
    if not options.asked:
        return draw(data, options.items, options.queries, seed, labels=options.labels)
    asked = AskedSet.load(options.asked)
    return draw_asked(data, asked, options.items, options.queries, seed, options.told, options.criterion)


def unit(vectors: FloatArray) -> FloatArray:
    """Scale (n, dim) to unit length, float32."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def id_of(row: int) -> str:
    """The id of an item, by its row in the set."""
    return f"item-{row:06d}"


def served_by(gallery: cs.Gallery, target: str) -> Fusion:
    """How a gallery is searched while a target is upgraded to; a weight of 0 for the status quo."""
    registry = gallery._catalog.registry()
    chosen, serving = registry.fusion_of(target), registry.serving.get(target)
    fused = serving is not None and serving.serving == "fused"
    return chosen if chosen is not None and fused else Fusion(weight=0.0)


def factors_of(gallery: cs.Gallery, target: str, ids: Sequence[str] | Sequence[int]) -> Doubles:
    """What the cosine of a query with each item in a target is multiplied by where it is doubted: (n,) float64."""
    table = gallery.get(ids, [f"{target}__uncertainty", f"{target}__origin"])
    origins, factors = np.asarray(table[f"{target}__origin"].to_pylist(), object), np.ones(len(ids))
    made = np.array([origin is not None for origin in origins])
    factors[made] = kept_cosines(gallery._catalog, origins[made], to_floats(table[f"{target}__uncertainty"])[made])
    return factors


class WholeBudget(cs.Learn):
    """Embeds all that the budget allows, whatever it gains."""

    least_gain = None


class TaughtGallery:
    """A gallery on disk that is upgraded from one share to the next.

    Args:
        data: The set.
        draw: Which of its items are in the gallery, and what judges the upgrade.
        seed: Of the upgrade.
        folder: Where the gallery is made.
    """

    def __init__(self, data: EmbeddedSet, draw: Draw, seed: int, folder: str) -> None:
        self.data, self.draw, self.seed = data, draw, seed
        self.ids = [id_of(row) for row in draw.rows]
        native = dict(zip(self.ids, self.vectors(TARGET), strict=True))
        source, target = (self._version(*names) for names in (("v1", SOURCE), (NEW, TARGET)))
        self.gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), source)
        classes = np.unique(data.labels, return_inverse=True)[1][draw.rows]
        self.gallery.add({"id": self.ids, "vector": self.vectors(SOURCE), "label": classes})
        self.gallery.register(replace(target, encoder=cs.encoders.Precomputed(native)))

    def _version(self, name: str, model: str) -> cs.EmbeddingVersion:
        dim = self.data.vectors[model].shape[1]
        return cs.EmbeddingVersion(name, dim=dim, metric="cosine", normalised=True)

    def vectors(self, model: str, rows: Sequence[int] | Positions | None = None) -> FloatArray:
        """(n, dim) float32 of unit length, of one model: of the gallery's items, or of other rows of the set."""
        return unit(self.data.vectors[model][self.draw.rows if rows is None else rows])

    def upgrade(self, share: float) -> UpgradeResult:
        """Upgrade to a native share."""
        budget = cs.Backfill(share=share, seed=self.seed)
        return self.gallery.upgrade(NEW, backfill=budget, gates=self.draw.gates)

    def lesson(self, natives: int) -> WaveFigures:
        """Upgrade to a number of natives that ends a wave, 100 or a double of it; what its lesson found."""
        learner = WholeBudget(first=100)
        budget = cs.Backfill(share=natives / len(self.ids), seed=self.seed)
        wave = self.gallery.upgrade(NEW, backfill=budget, gates=self.draw.gates, learn=learner).waves[-1]
        if wave.native != natives:
            raise RuntimeError(f"a lesson of {wave.native} natives, not of {natives}")
        return wave

    @property
    def native(self) -> BoolArray:
        """(n,) bool, items that are native."""
        return np.isin(
            self.ids,
            self.gallery.scan([self.gallery.columns.id], native=[NEW]).to_arrow()[self.gallery.columns.id].to_pylist(),
        )

    @property
    def served(self) -> Fusion:
        """How the gallery is searched now; a weight of 0 for the status quo."""
        return served_by(self.gallery, NEW)

    @property
    def factors(self) -> Doubles:
        """(n,) float64, as of `factors_of`; 1 where no transform was learned."""
        learned = self.gallery._catalog.registry().runs[NEW].path
        return factors_of(self.gallery, NEW, self.ids) if learned else np.ones(len(self.ids))

    @property
    def neighbours(self) -> int:
        """Items that the last lesson has counted as right for a query, where nothing is told."""
        estimate = load_estimate(self.gallery._catalog, NEW)
        if estimate is None:
            raise RuntimeError("no lesson yet")
        return estimate.table.neighbours

    def stored(self, native: BoolArray) -> FloatArray:
        """The target's column; zeros, which no search finds before the others, for items that have no vector yet."""
        if not self.gallery._catalog.registry().runs[NEW].path:
            return np.where(native[:, None], self.vectors(TARGET), np.float32(0))
        return np.asarray(self.gallery.vectors(self.ids, NEW), np.float32)
