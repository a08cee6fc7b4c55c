r"""Quality of an upgrade that teaches itself, by what it has embedded: no labels, no pairs given.

    python -m benchmarks.learning caltech.npz characters.npz glosses.npz --journal docs/results/learning.jsonl \
        --page docs/results/learning.md [--seeds 2 3 4] [--items 6000] [--queries 1500] [--labels] [--rebasis PYTHON]

The sets are made by `benchmarks.pairs.images`, `benchmarks.pairs.plain` and `benchmarks.pairs.texts`; only items that
no model was trained on are taken. One gallery is upgraded by `Gallery.upgrade(backfill=share)` to one share after
another. What is served then is what the gallery has decided: the status quo, or both versions as one. Beside it, with
the same natives: the target's column alone, a merge without any transform, and the full backfill. With as many pairs of
other items, learned from beforehand: FastFill, whose sigma orders a backfill of as many natives; and with `--rebasis`,
an interpreter where the package of that name is installed, the best of its maps from target queries to source vectors.
`--labels` tells the upgrade the items' labels. Queries are other items. A run that was stopped goes on from its journal
where a whole gallery is measured.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from benchmarks.fusion.page import fill
from benchmarks.fusion.strategies import figures
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.journal import Journal, Record
from compatstore.arrays import BoolArray, FloatArray
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion, fused_blocks
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import Relevance, relevance_from_labels
from compatstore.trainers import FastFill, Pairs
from compatstore.upgrade.estimates.estimate import load_estimate
from compatstore.upgrade.estimates.waves import WaveFigures

NEW = "v2"
SHARES = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
STATUS_QUO, SERVED, COLUMN, MERGED, FULL = "status quo", "served", "target's column", "merged by distance", "full"
FASTFILL, REBASIS = "FastFill beforehand", "rebasis, best map"
STRATEGIES = (STATUS_QUO, SERVED, COLUMN, MERGED, FASTFILL, REBASIS, FULL)
SETTINGS = {False: "self-taught", True: "self-taught, labels"}
METRICS = {"cmc1": "CMC-1", "map": "mAP"}
ERRORS = 2  # standard errors that a cell may be below the status quo by chance
_BLOCK = 64  # queries


class TaughtGallery:
    """A gallery on disk that is upgraded from one share to the next, and the queries that report.

    Args:
        data: The set.
        items: Items of the gallery.
        queries: Queries.
        seed: Of the choice, and of the upgrade.
        folder: Where the gallery is made.
        labels: Whether the upgrade is told the items' labels.
        rebasis: An interpreter where rebasis is installed, or None.
    """

    def __init__(
        self,
        data: EmbeddedSet,
        items: int,
        queries: int,
        seed: int,
        folder: str,
        *,
        labels: bool = False,
        rebasis: str | None = None,
    ) -> None:
        rows = np.random.default_rng(seed).permutation(np.flatnonzero(data.fresh))
        queries = min(queries, len(rows) // 4)
        self.asked, self.rows, self.others = np.split(rows, [queries, queries + items])
        self._gates, self._rebasis = cs.Gates(labels="label" if labels else None), rebasis
        self.data, self.seed = data, seed
        self.ids = [f"item-{row:06d}" for row in self.rows]
        native = dict(zip(self.ids, self.vectors(TARGET, self.rows), strict=True))
        source, target = self._version("v1", SOURCE), self._version(NEW, TARGET)
        self.gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), source)
        classes = np.unique(data.labels, return_inverse=True)[1][self.rows]
        self.gallery.add({"id": self.ids, "vector": self.vectors(SOURCE, self.rows), "label": classes})
        self.gallery.register(replace(target, encoder=cs.encoders.Precomputed(native)))

    @property
    def neighbours(self) -> int:
        """Items that the last lesson has counted as right for a query, where no labels are told."""
        estimate = load_estimate(self.gallery._catalog, NEW)
        if estimate is None:
            raise RuntimeError("no lesson yet")
        return estimate.table.neighbours

    def lesson(self, natives: int) -> WaveFigures:
        """Upgrade to a number of natives that ends a wave, 100 or a double of it; what its lesson found."""
        learner = cs.Learn(first=100, least_gain=None)
        budget = cs.Backfill(share=natives / len(self.rows), seed=self.seed)
        wave = self.gallery.upgrade(NEW, backfill=budget, gates=self._gates, learn=learner).waves[-1]
        if wave.native != natives:
            raise RuntimeError(f"a lesson of {wave.native} natives, not of {natives}")
        return wave

    def _version(self, name: str, model: str) -> cs.EmbeddingVersion:
        dim = self.data.vectors[model].shape[1]
        return cs.EmbeddingVersion(name, dim=dim, metric="cosine", normalised=True)

    def vectors(self, name: str, rows: Any) -> FloatArray:
        """(n, dim) float32 of unit length, of one model."""
        vectors = self.data.vectors[name][rows]
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)

    def upgraded(self, share: float) -> dict[str, Any]:
        """Upgrade to a share; CMC-1 and mAP by strategy, from 0 to 1, and what the gallery has decided."""
        budget = cs.Backfill(share=share, seed=self.seed)
        result = self.gallery.upgrade(NEW, backfill=budget, gates=self._gates)
        native = np.isin(self.ids, self.gallery.native_ids(NEW))
        labels = self.data.labels
        relevance = relevance_from_labels(labels[self.asked], labels[self.rows])
        registry = self.gallery._catalog.registry()
        chosen, serving = registry.fusion_of(NEW), registry.serving.get(NEW)
        fused = chosen is not None and serving is not None and serving.serving == "fused"
        fusion = chosen if chosen is not None and fused else Fusion(weight=0.0)
        found: dict[str, Any] = {
            "natives": int(native.sum()),
            "transformed": result.transformed,
            "chosen": f"{fusion.weight:g}{' apart' * fusion.per_origin}",
        }
        ways = {STATUS_QUO: replace(fusion, weight=0.0), SERVED: fusion, COLUMN: replace(fusion, weight=1.0)}
        stored = self.stored(native)
        found |= self._figures(ways, stored, native, relevance)
        exact = self.vectors(TARGET, self.rows)
        found |= self._figures({FULL: replace(fusion, weight=1.0)}, exact, np.ones(len(native), bool), relevance)
        found |= {MERGED: self._merged(native, relevance)}
        if not self._gates.labels:
            found |= self._beforehand(int(native.sum()), relevance)
        return found

    def _beforehand(self, natives: int, relevance: Relevance) -> dict[str, Any]:
        """What is learned from as many pairs of other items gives, as far as there are others."""
        pairs = self.others[: max(natives, 2)]
        source, target = self.vectors(SOURCE, pairs), self.vectors(TARGET, pairs)
        made = FastFill(holdout=0.0, seed=self.seed).fit(Pairs(source, target)).apply(self.vectors(SOURCE, self.rows))
        if made.uncertainty is None:
            raise RuntimeError("FastFill predicts sigma")
        exact, asked = self.vectors(TARGET, self.rows), self.vectors(TARGET, self.asked)
        stored = made.vectors.copy()
        urgent = np.argsort(-made.uncertainty, kind="stable")[:natives]
        stored[urgent] = exact[urgent]
        found = {FASTFILL: self._ranked(asked, stored, relevance)}
        if self._rebasis is None:
            return found
        maps = mapped_queries(self._rebasis, target, source, asked)
        old = self.vectors(SOURCE, self.rows)
        best = max((self._ranked(queries, old, relevance) for queries in maps), key=lambda one: one["map"])
        return found | {REBASIS: best}

    def _ranked(self, queries: FloatArray, gallery: FloatArray, relevance: Relevance) -> dict[str, float]:
        found = measure(queries, gallery, "cosine", block=_BLOCK)
        blocks = ((start, block[:, relevance.order]) for start, block in found.blocks())
        return figures(rank_blocks(blocks, len(queries), relevance, [np.arange(len(gallery))])[0])

    def stored(self, native: BoolArray) -> FloatArray:
        """The target's column; zeros, which no search finds before the others, for items that have no vector yet."""
        if not self.gallery._catalog.registry().runs[NEW].path:
            return np.where(native[:, None], self.vectors(TARGET, self.rows), np.float32(0))
        return np.asarray(self.gallery.vectors(self.ids, NEW), np.float32)

    def _figures(
        self, ways: Mapping[str, Fusion], stored: FloatArray, native: BoolArray, relevance: Relevance
    ) -> dict[str, Any]:
        source = measure(self.vectors(SOURCE, self.asked), self.vectors(SOURCE, self.rows), "cosine", block=_BLOCK)
        target = measure(self.vectors(TARGET, self.asked), stored, "cosine", block=_BLOCK)
        blocks = fused_blocks(source, target, native, relevance, list(ways.values()))
        columns = [np.arange(len(native)) + len(native) * number for number in range(len(ways))]
        rankings = rank_blocks(blocks, len(self.asked), relevance, columns)
        return {name: figures(ranking) for name, ranking in zip(ways, rankings, strict=True)}

    def _merged(self, native: BoolArray, relevance: Relevance) -> dict[str, float]:
        """Natives found by the target's queries and the others by the source's, merged by cosine: no transform."""
        source = measure(self.vectors(SOURCE, self.asked), self.vectors(SOURCE, self.rows), "cosine", block=_BLOCK)
        target = measure(self.vectors(TARGET, self.asked), self.vectors(TARGET, self.rows), "cosine", block=_BLOCK)
        order = relevance.order

        def blocks() -> Iterator[tuple[int, Any]]:
            for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
                yield start, np.where(native, right, left)[:, order]

        return figures(rank_blocks(blocks(), len(self.asked), relevance, [np.arange(len(native))])[0])


def mapped_queries(python: str, target: FloatArray, source: FloatArray, asked: FloatArray) -> list[FloatArray]:
    """Queries of the target's model by each of rebasis' maps into the source's space.

    Args:
        python: An interpreter where rebasis is installed.
        target: (n, target dim) float32, what the maps learn from.
        source: (n, source dim) float32, what they learn.
        asked: (q, target dim) float32.
    """
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "pairs.npz"), Path(folder, "maps.npz")
        np.savez(given, target=target, source=source, asked=asked)
        subprocess.run([python, Path(__file__).with_name("rebasis_maps.py"), given, made], check=True)
        with np.load(made) as maps:
            return [np.asarray(maps[name], np.float32) for name in maps.files]


def tables(records: Sequence[Record]) -> str:
    """Markdown: a table for each set, and what is served against the status quo."""
    cells = defaultdict[str, dict[str, list[Record]]](dict)
    for record in records:
        told = ", labels told" if record["setting"] == SETTINGS[True] else ""
        cells[record["set"] + told].setdefault(record["method"], []).append(record)
    parts = ["\n".join(_table(name, found)) for name, found in cells.items()]
    return "\n\n".join([*parts, "\n".join(_gains(cells))])


def _table(name: str, found: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    seeds = len(next(iter(found.values())))
    yield f"**{name}**, {seeds} seeds:\n"
    yield f"| CMC-1 / mAP | {' | '.join(found)} |"
    yield "|---" * (1 + len(found)) + "|"
    for strategy in STRATEGIES:
        if any(strategy not in record for records in found.values() for record in records):
            continue
        means = [
            [100 * np.mean([r[strategy][metric] for r in records]) for metric in METRICS] for records in found.values()
        ]
        yield f"| {strategy} | {' | '.join(f'{cmc:.1f} / {average:.1f}' for cmc, average in means)} |"
    weights = [", ".join(dict.fromkeys(record["chosen"] for record in records)) for records in found.values()]
    yield f"| w chosen | {' | '.join(weights)} |"


def _mean(records: Sequence[Record], strategy: str, metric: str) -> float:
    """A figure in percent, over seeds."""
    return float(100 * np.mean([record[strategy][metric] for record in records]))


def _gains(cells: Mapping[str, Mapping[str, Sequence[Record]]]) -> Iterator[str]:
    shares = list(dict.fromkeys(share for found in cells.values() for share in found))
    below = counted = 0
    yield "What is served against the status quo, in points, in parentheses the standard error over seeds; of mAP also"
    yield "as a share of the full backfill's gain:\n"
    yield f"| set | metric | {' | '.join(shares)} |"
    yield "|---" * (2 + len(shares)) + "|"
    for name, found in cells.items():
        for metric, title in METRICS.items():
            row = []
            for share in shares:
                if share not in found:
                    row.append("")
                    continue
                gains = 100 * np.array([r[SERVED][metric] - r[STATUS_QUO][metric] for r in found[share]])
                full = _mean(found[share], FULL, metric) - _mean(found[share], STATUS_QUO, metric)
                error = gains.std() / np.sqrt(max(len(gains) - 1, 1))
                below += int(gains.mean() < -ERRORS * error)
                counted += 1
                of_full = f", {gains.mean() / full:.0%}" if metric == "map" else ""
                row.append(f"{gains.mean():+.1f} ({error:.1f}){of_full}")
            yield f"| {name} | {title} | {' | '.join(row)} |"
    yield f"\nBelow the status quo by more than {ERRORS} standard errors: in {below} of {counted} cells."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path)
    parser.add_argument("--journal", type=Path, required=True, help="one JSON line for each measurement")
    parser.add_argument("--page", type=Path, help="a page whose tables are written from the journal")
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 4], help="0 and 1 have chosen the trust")
    parser.add_argument("--items", type=int, default=6000)
    parser.add_argument("--queries", type=int, default=1500)
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--labels", action="store_true", help="tell the upgrade the items' labels")
    parser.add_argument("--rebasis", metavar="PYTHON", help="an interpreter where rebasis is installed")
    options = parser.parse_args()
    size, journal = f"{options.items} items, {options.queries} queries", Journal(options.journal)
    for data in map(EmbeddedSet.load, options.sets):
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as folder:
                told = {"labels": options.labels, "rebasis": options.rebasis}
                taught = TaughtGallery(data, options.items, options.queries, seed, folder, **told)
                for share in options.shares:
                    key = {"size": size, "set": data.name, "setting": SETTINGS[options.labels], "seed": seed}
                    journal.once({**key, "method": f"{share:.0%}"}, lambda g=taught, s=share: g.upgraded(s))
                    print(data.name, seed, f"{share:.0%}", flush=True)
    text = tables([record for record in journal.records if record["size"] == size])
    print(text)
    if options.page:
        fill(options.page, text)


if __name__ == "__main__":
    main()
