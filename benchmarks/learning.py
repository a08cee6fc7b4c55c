r"""Quality of an upgrade that teaches itself, by what it has embedded: no pairs given.

    python -m benchmarks.learning caltech.npz characters.npz glosses.npz --journal docs/results/learning.jsonl \
        --page docs/results/learning.md [--seeds 2 3 4] [--items 6000] [--queries 1500] [--labels] [--asked nouns.npz] \
        [--beforehand] [--rebasis PYTHON] [--jobs 1]

The sets are made by `benchmarks.pairs.images`, `benchmarks.pairs.plain` and `benchmarks.pairs.texts`; only items that
no model was trained on are taken. One gallery is upgraded by `Gallery.upgrade(backfill=share)` to one share after
another. What is served then is what the gallery has decided: the status quo, or both versions as one. Beside it, with
the same natives: the target's column alone, as it is and by expected distances, a merge without any transform, and the
full backfill. With `--beforehand`
also what is learned from as many pairs of other items: FastFill, whose sigma orders a backfill of as many natives; and
with `--rebasis`, an interpreter where the package of that name is installed, the best of its maps from target queries
to source vectors.
Queries are other items. `--labels` tells the upgrade the items' labels. `--asked` names queries that are no items and
what is correct for them (`benchmarks.pairs.texts`): some judge the upgrade, others report in nDCG@10 and recall@10. A
run that was stopped goes on from its journal, whose lines are written when a gallery has been through all shares.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fusion.page import fill
from benchmarks.fusion.strategies import written
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.journal import Journal, Record, Task
from benchmarks.taught import ALONE, BY_LABELS, BY_QRELS, TaughtGallery, add_options, drawn, setting_of, size_of
from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.evaluation.curve import native_count
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import Fusion, fused_blocks
from compatstore.trainers import FastFill, Pairs

SHARES = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
STATUS_QUO, SERVED, COLUMN, MERGED, FULL = "status quo", "served", "target's column", "merged by distance", "full"
DOUBTED = "target's column, expected distances"
FASTFILL, REBASIS = "FastFill beforehand", "rebasis, best map"
STRATEGIES = (STATUS_QUO, SERVED, COLUMN, DOUBTED, MERGED, FASTFILL, REBASIS, FULL)
BEFOREHAND = "; learned beforehand"  # ends the setting of these records
ERRORS = 2  # standard errors that a cell may be below the status quo by chance
_BLOCK = 64  # queries


class Curve:
    """Figures of a gallery that teaches itself, and of what else could be done with as many natives.

    Args:
        taught: The gallery.
    """

    def __init__(self, taught: TaughtGallery) -> None:
        self._taught, self._outside = taught, taught.draw.outside

    def served(self, share: float) -> Record:
        """Upgrade to a share; figures by strategy, from 0 to 1, and what the gallery has decided."""
        taught = self._taught
        result = taught.upgrade(share)
        native, fusion = taught.native, taught.served
        found: Record = {
            "natives": int(native.sum()),
            "transformed": result.transformed,
            "chosen": written(fusion),
        }
        ways = {
            STATUS_QUO: replace(fusion, weight=0.0),
            SERVED: fusion,
            COLUMN: replace(fusion, weight=1.0, shrinkage=False),
        }
        found |= self._fused(ways, taught.stored(native), native, taught.factors)
        full = {FULL: replace(fusion, weight=1.0)}
        found |= self._fused(full, taught.vectors(TARGET), np.ones(len(native), bool), np.ones(len(native)))
        doubted = self._ranked(self._outside.target, taught.stored(native), taught.factors)
        return found | {DOUBTED: doubted, MERGED: self._merged(native)}

    def beforehand(self, share: float, rebasis: str | None) -> Record:
        """What is learned from as many pairs of other items gives, as far as there are others."""
        taught, outside = self._taught, self._outside
        natives = native_count(share, len(taught.ids))
        pairs = taught.draw.others[: max(natives, 2)]
        source, target = taught.vectors(SOURCE, pairs), taught.vectors(TARGET, pairs)
        made = (
            FastFill(holdout=0.0, seed=taught.seed, batch_size=1024)
            .fit(Pairs(source, target))
            .apply(taught.vectors(SOURCE))
        )
        if made.uncertainty is None:
            raise RuntimeError("FastFill predicts sigma")
        stored = made.vectors.copy()
        urgent = np.argsort(-made.uncertainty, kind="stable")[:natives]
        stored[urgent] = taught.vectors(TARGET)[urgent]
        found = {FASTFILL: self._ranked(outside.target, stored)}
        if rebasis is None:
            return found
        maps = mapped_queries(rebasis, target, source, outside.target)
        decides = list(found[FASTFILL])[-1]
        best = max((self._ranked(queries, taught.vectors(SOURCE)) for queries in maps), key=lambda one: one[decides])
        return found | {REBASIS: best}

    def _ranked(self, queries: FloatArray, gallery: FloatArray, factors: Doubles | None = None) -> dict[str, float]:
        blocks = measure(queries, gallery, "cosine", block=_BLOCK, undirected="lose", factors=factors).blocks()
        return self._outside.figures(((start, block[:, self._order]) for start, block in blocks), 1)[0]

    @property
    def _order(self) -> Positions:
        return self._outside.relevance.order

    def _fused(
        self, ways: Mapping[str, Fusion], stored: FloatArray, native: BoolArray, factors: Doubles
    ) -> dict[str, Any]:
        outside = self._outside
        source = measure(outside.source, self._taught.vectors(SOURCE), "cosine", block=_BLOCK)
        target = measure(outside.target, stored, "cosine", block=_BLOCK, undirected="lose")
        blocks = fused_blocks(source, target, native, outside.relevance, list(ways.values()), factors)
        return dict(zip(ways, outside.figures(blocks, len(ways)), strict=True))

    def _merged(self, native: BoolArray) -> dict[str, float]:
        """Natives found by the target's queries and the others by the source's, merged by cosine: no transform."""
        outside, taught = self._outside, self._taught
        source = measure(outside.source, taught.vectors(SOURCE), "cosine", block=_BLOCK)
        target = measure(outside.target, taught.vectors(TARGET), "cosine", block=_BLOCK)

        def blocks() -> Iterator[tuple[int, Doubles]]:
            for (start, left), (_, right) in zip(source.blocks(), target.blocks(), strict=True):
                yield start, np.where(native, right, left)[:, self._order]

        return outside.figures(blocks(), 1)[0]


def measured(path: Path, seed: int, options: argparse.Namespace, *, beforehand: bool) -> list[Record]:
    """One gallery of a set, share by share."""
    data = EmbeddedSet.load(path)
    with tempfile.TemporaryDirectory() as folder:
        curve = Curve(TaughtGallery(data, drawn(data, seed, options), seed, folder))
        if beforehand:
            return [curve.beforehand(share, options.rebasis) for share in options.shares]
        return [curve.served(share) for share in options.shares]


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
    cells = defaultdict[tuple[str, str], dict[str, list[Record]]](dict)
    before = {_case(record): record for record in records if record["setting"].endswith(BEFOREHAND)}
    for record in records:
        if not record["setting"].endswith(BEFOREHAND):
            case = (record["set"], record["setting"])
            cells[case].setdefault(record["method"], []).append(before.get(_case(record), {}) | record)
    parts = ["\n".join(_table(*case, found)) for case, found in cells.items()]
    return "\n\n".join([*parts, "\n".join(_gains(cells))])


def _case(record: Record) -> tuple[str, ...]:
    """What a measurement and the one of what was learned beforehand have in common."""
    return (record["set"], record["setting"].removesuffix(BEFOREHAND), str(record["seed"]), record["method"])


def _title(name: str, setting: str) -> str:
    return name if setting == ALONE else f"{name}, {setting}"


def _metrics(found: Mapping[str, Sequence[Record]]) -> dict[str, str]:
    """Name -> title, of the figures in records of one setting; the last one decides."""
    known = BY_LABELS | BY_QRELS
    return {name: known[name] for name in next(iter(found.values()))[0][STATUS_QUO]}


def _table(name: str, setting: str, found: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    metrics, seeds = _metrics(found), len(next(iter(found.values())))
    yield f"**{_title(name, setting)}**, {seeds} seeds:\n"
    yield f"| {' / '.join(metrics.values())} | {' | '.join(found)} |"
    yield "|---" * (1 + len(found)) + "|"
    for strategy in STRATEGIES:
        if any(strategy not in record for records in found.values() for record in records):
            continue
        means = [[_mean(records, strategy, metric) for metric in metrics] for records in found.values()]
        yield f"| {strategy} | {' | '.join(f'{first:.1f} / {second:.1f}' for first, second in means)} |"
    weights = [", ".join(dict.fromkeys(record["chosen"] for record in records)) for records in found.values()]
    yield f"| w chosen | {' | '.join(weights)} |"


def _mean(records: Sequence[Record], strategy: str, metric: str) -> float:
    """A figure in percent, over seeds."""
    return float(100 * np.mean([record[strategy][metric] for record in records]))


def _gains(cells: Mapping[tuple[str, str], Mapping[str, Sequence[Record]]]) -> Iterator[str]:
    shares = list(dict.fromkeys(share for found in cells.values() for share in found))
    below = counted = 0
    yield "What is served against the status quo, in points, in parentheses the standard error over seeds; and as a"
    yield "share of the full backfill's gain:\n"
    yield f"| set | figure | {' | '.join(shares)} |"
    yield "|---" * (2 + len(shares)) + "|"
    for case, found in cells.items():
        for metric, title in _metrics(found).items():
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
                of_full = f", {gains.mean() / full:.0%}" if metric != "cmc1" else ""
                row.append(f"{gains.mean():+.1f} ({error:.1f}){of_full}")
            yield f"| {_title(*case)} | {title} | {' | '.join(row)} |"
    yield f"\nBelow the status quo by more than {ERRORS} standard errors: in {below} of {counted} cells."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, items=6000, queries=1500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 4], help="0 and 1 have chosen the trust")
    parser.add_argument("--shares", nargs="+", type=float, default=SHARES)
    parser.add_argument("--beforehand", action="store_true", help="also measure what is learned from other pairs")
    parser.add_argument("--rebasis", metavar="PYTHON", help="an interpreter where rebasis is installed")
    options = parser.parse_args()
    journal, tasks = Journal(options.journal), []
    for path in options.sets:
        name = EmbeddedSet.load(path).name
        for seed, before in itertools.product(options.seeds, (False, True) if options.beforehand else (False,)):
            setting = setting_of(options) + BEFOREHAND * before
            key = {"size": size_of(options), "set": name, "setting": setting, "seed": seed}
            keys = [key | {"method": f"{share:.0%}"} for share in options.shares]
            tasks.append(Task(keys, partial(measured, path, seed, options, beforehand=before)))
    for done in journal.measure(tasks, options.jobs):
        print(done[-1]["set"], done[-1]["seed"], flush=True)
    text = tables([record for record in journal.records if record["size"] == size_of(options)])
    print(text)
    if options.page:
        fill(options.page, text)


if __name__ == "__main__":
    main()
