r"""Do printed intervals hold? What samples of galleries say, against what whole galleries give to queries from outside.

    python -m benchmarks.stopping characters.npz caltech.npz [--repeats 50] [--sample 300] \
        [--journal docs/results/stopping.jsonl] [--page docs/results/stopping.md]

The sets are made by `benchmarks.pairs.plain` and `benchmarks.pairs.images`. A draw is a call of the gallery's own
estimate, or of its report after a backfill, with another seed of the sample. Every interval that is printed is compared
with the same figure of the whole gallery, all of it embedded, for queries that are not in the gallery. A run that was
stopped goes on from its journal.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import compatstore as cs
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import FloatArray
from compatstore.evaluation import DecisionRow, DecisionTable, Estimate
from compatstore.evaluation.curve import mixed_galleries
from compatstore.evaluation.distances import fit_length, measure
from compatstore.evaluation.fusion import fused_blocks, standardise
from compatstore.evaluation.fusion_choice import WEIGHTS
from compatstore.evaluation.merging import calibrate, merged_blocks
from compatstore.evaluation.ranking import Ranking, rank_blocks, rank_galleries
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.evaluation.strategies import is_fused
from compatstore.trainers import Pairs, Residual
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.estimates.measured import take_measurement
from compatstore.upgrade.estimates.trial import BUDGETS, FUSED_SHARES, SampleSettings, try_upgrade
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.resolve import resolve_run
from compatstore.upgrade.states import run_of

QUALITIES = (0.9, 0.95, 0.98)
LIMIT = 0.9
DRAWS = 5  # samples of one gallery; then gallery, queries and transform are drawn again
BLOCK = 64  # queries whose fused distances are in memory
SHARES = (0.0, *BUDGETS, 1.0)
LEARNED, EMBEDDABLE = 0.3, 0.85  # shares of the gallery
TASKS = ("labels", "fused, labels", "report 25 %", "report 80 %")
BEGIN, END = "<!-- begin: benchmarks.stopping -->", "<!-- end: benchmarks.stopping -->"

Rows = npt.NDArray[np.intp]
Truth = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A gallery, queries from outside, and a transform.

    Args:
        data: The set.
        gallery: Rows that are items.
        queries: Rows that ask, and are no items.
        pairs: Items that the transform has learned from.
        embeddable: (n,) bool, items whose source can be embedded.
        seed: Of all choices.
    """

    data: EmbeddedSet
    gallery: Rows
    queries: Rows
    pairs: Rows
    embeddable: npt.NDArray[np.bool_]
    seed: int

    @classmethod
    def draw(cls, data: EmbeddedSet, items: int, asked: int, seed: int) -> World:
        """Draw items and queries of what no model was trained on; the transform learns from some of the items."""
        random = np.random.default_rng(seed)
        fresh = random.permutation(np.flatnonzero(data.fresh))
        items = min(items, len(fresh) // 2)
        gallery, queries = fresh[:items], fresh[items:][:asked]
        pairs = random.permutation(gallery)[: round(LEARNED * items)]
        embeddable = random.random(items) < EMBEDDABLE
        return cls(data=data, gallery=gallery, queries=queries, pairs=pairs, embeddable=embeddable, seed=seed)

    def make(self, folder: str) -> cs.Gallery:
        """A real gallery with a linked transform; items are named by their rows."""
        source, target, ids = self.vectors(SOURCE), self.vectors(TARGET), self.gallery.tolist()
        natives = {row: target[place] for place, row in enumerate(ids) if self.embeddable[place]}
        v1 = cs.EmbeddingVersion("v1", dim=source.shape[1], metric="l2", model=SOURCE)
        encoder = cs.encoders.Precomputed(natives)
        v2 = cs.EmbeddingVersion("v2", dim=target.shape[1], metric="l2", encoder=encoder)
        gallery = cs.Gallery.create(f"{folder}/gallery.lance", v1, id_type="int64")
        gallery.add({"id": ids, "vector": source, "label": self.data.labels[self.gallery]})
        gallery.register(v2)
        pairs = Pairs(
            self.data.vectors[SOURCE][self.pairs],
            self.data.vectors[TARGET][self.pairs],
            source_version=v1,
            target_version=v2,
        )
        gallery.artifacts.link(Residual(epochs=6, width=256, seed=self.seed, holdout=0.1, holdout_by="row").fit(pairs))
        return gallery

    def vectors(self, version: str) -> FloatArray:
        """(n, dim) float32, of the gallery."""
        vectors: FloatArray = self.data.vectors[version][self.gallery]
        return vectors

    def truths(self, gallery: cs.Gallery) -> Truth:
        """Way -> figure -> what queries from outside get; budgets in the order of a random backfill."""
        transformed = gallery._catalog.artifact(gallery.artifacts[-1].id).apply(self.vectors(SOURCE)).vectors
        native = np.where(self.embeddable[:, None], self.vectors(TARGET), transformed)
        backfilled = order("random", ArrayRows(ids=self.gallery.tolist()), 0)
        backfilled = backfilled[np.argsort(~self.embeddable[backfilled], kind="stable")]
        sources, targets = (self.data.vectors[version][self.queries] for version in (SOURCE, TARGET))
        exact, table = measure(targets, native), measure(targets, np.concatenate([transformed, native]))
        old, labels = measure(sources, self.vectors(SOURCE)), self.data.labels
        swap = measure(fit_length(targets, self.vectors(SOURCE).shape[1]), self.vectors(SOURCE))
        relevance = relevance_from_labels(labels[self.queries], labels[self.gallery])
        everything = [np.arange(len(native))]
        merged = np.isin(np.arange(len(native)), backfilled[: len(native) // 4])
        calibration = calibrate(old, exact, relevance, np.arange(len(self.queries)))
        blocks = merged_blocks(old, exact, merged, relevance, calibration)
        found = {
            "status quo": rank_galleries(old, relevance, everything)[0],
            "naive swap": rank_galleries(swap, relevance, everything)[0],
            "merge 25%": rank_blocks(blocks, len(self.queries), relevance, everything)[0],
        }
        names = ["hop alone", *(f"backfill {100 * share:.4g}%" for share in BUDGETS), "full backfill"]
        shares = mixed_galleries(backfilled, np.array(SHARES))
        found |= dict(zip(names, rank_galleries(table, relevance, shares), strict=True))
        near, target = old.by(BLOCK), measure(targets, native).by(BLOCK)
        hop, nobody = measure(targets, transformed).by(BLOCK), np.full(len(self.queries), -1)
        constants = standardise(near, target, hop, nobody)
        for share, column, kind in ((0.0, hop, np.zeros_like(self.embeddable)), (1.0, target, self.embeddable)):
            fusions = [replace(constants, weight=weight, native_share=float(kind.mean())) for weight in WEIGHTS]
            blocks = fused_blocks(near, column, kind, relevance, fusions)
            columns = [np.arange(len(native)) + len(native) * number for number in range(len(fusions))]
            names = [f"fused {100 * share:.4g}% w {weight:g}" for weight in WEIGHTS]
            found |= dict(zip(names, rank_blocks(blocks, len(self.queries), relevance, columns), strict=True))
        return {name: _figures(ranking, found["status quo"], found["full backfill"]) for name, ranking in found.items()}


def _figures(ranking: Ranking, before: Ranking, full: Ranking) -> dict[str, float]:
    """All that a table may print of a way, measured."""
    some = ranking.counted

    def values(of: Ranking) -> dict[str, npt.NDArray[Any]]:
        found = {f"cmc@{k}": of.first_match[some] <= k for k in (1, 5)}
        return {**found, "map": of.average_precision[some]}

    own, old, whole = values(ranking), values(before), values(full)
    figures = {name: float(value.mean()) for name, value in own.items()}
    gained = {f"{name} gained": figures[name] - float(old[name].mean()) for name in own}
    kept = {f"{name} kept": min(figures[name] / float(whole[name].mean()), 1.0) for name in own}
    return {**figures, **gained, **kept, "negative flips": float((old["cmc@1"] & ~own["cmc@1"]).mean())}


def printed(row: DecisionRow) -> Iterator[tuple[str, Estimate]]:
    """Every interval of a row, by the names of `_figures`."""
    yield from row.figures.items()
    yield from ((f"{name} gained", gain) for name, gain in row.gains.items())
    yield from ((f"{name} kept", kept) for name, kept in row.kept.items())
    if row.broken is not None:
        yield "negative flips", row.broken


def judged(table: DecisionTable, truth: Truth, names: Mapping[str, str]) -> dict[str, Any]:
    """Count the intervals that hold the truth, by way and figure; ways by the names of the truth."""
    inside: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in table.rows:
        # A fusion is compared with what the weight that this draw chose gives in the whole gallery.
        chosen = f" {row.note.partition(';')[0]}" if is_fused(row.notation) else ""
        true = truth[names.get(row.name, row.name) + chosen]
        way = names.get(row.name, "backfills" if row.name.startswith("backfill") else row.name)
        for figure, interval in printed(row):
            # Figures are averages of many: a hair's breadth is not a miss.
            holds = interval.low - 1e-9 <= true[figure] <= interval.high + 1e-9
            inside[f"{way}|{figure}"][0] += int(holds)
            inside[f"{way}|{figure}"][1] += 1
    return {"queries": table.num_queries, "inside": dict(inside)}


def promises(table: DecisionTable, truth: Truth) -> list[list[float]]:
    """[quality, budget promised, share truly kept, budget needed] for each quality, by mAP."""
    true = {row.share: truth[row.name]["map kept"] for row in table.budgets}
    made = []
    for quality in QUALITIES:
        share = table.smallest_share(quality)
        taken = 1.0 if share is None else share
        made.append([quality, taken, true[taken], min(share for share, kept in true.items() if kept >= quality)])
    return made


class Journal:
    """Finished draws, a JSON line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.records: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def has(self, **key: Any) -> bool:
        """Whether a draw is done."""
        return any(all(record.get(name) == value for name, value in key.items()) for record in self.records)

    def add(self, record: dict[str, Any]) -> None:
        """Write a draw down."""
        self.records.append(record)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def run(data: EmbeddedSet, journal: Journal, options: argparse.Namespace) -> None:
    """Make the draws of one set that are missing."""
    for split in range(options.part[0], -(-options.repeats // DRAWS), options.part[1]):
        draws = range(split * DRAWS, min((split + 1) * DRAWS, options.repeats))
        todo = [
            (task, draw) for task in TASKS for draw in draws if not journal.has(set=data.name, task=task, draw=draw)
        ]
        if not todo:
            continue
        world = World.draw(data, options.items, options.queries, split)
        with tempfile.TemporaryDirectory() as folder:
            gallery = world.make(folder)
            truth = world.truths(gallery)
            for task, draw in todo:
                found = one(gallery, truth, task, options.sample, draw)
                journal.add({"set": data.name, "task": task, "draw": draw, **found})
        print(f"{data.name}: {split + 1} of {-(-options.repeats // DRAWS)} galleries", flush=True)


def one(gallery: cs.Gallery, truth: Truth, task: str, sample: int, draw: int) -> dict[str, Any]:
    """One draw: an estimate before the upgrade, or a report after a backfill of a random share."""
    catalog = gallery._catalog
    if not task.startswith("report"):
        fused = task.startswith("fused")
        settings = SampleSettings(sample=sample, labels="label", seed=draw, fused_shares=FUSED_SHARES if fused else ())
        table = try_upgrade(resolve_run(catalog, "v2"), settings)
        if fused:
            return judged(replace(table, rows=tuple(row for row in table.rows if is_fused(row.notation))), truth, {})
        return {**judged(table, truth, {}), "promises": promises(table, truth)}
    share = int(task.split()[1]) / 100
    gallery.upgrade("v2", backfill=share)
    opened = run_of(catalog.registry(), "v2")
    assert opened is not None
    context = UpgradeContext.of(catalog, replace(opened, seed=draw))
    table = take_measurement(context, Gates(sample=sample, labels="label"), 0).table
    served = {"hop alone": "as served"}
    shown = replace(table, rows=tuple(row for row in table.rows if row.notation in ("s/s", "t/h", "t/t")))
    return judged(shown, {**truth, "as served": _nearest(truth, share)}, served)


def _nearest(truth: Truth, share: float) -> Mapping[str, float]:
    return truth[f"backfill {100 * share:.4g}%"]


def tables(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Coverage by set, case and way, and what promises came to."""
    counts: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for record in records:
        for key, (inside, asked) in record["inside"].items():
            way, figure = key.split("|")
            case = (record["set"], record["task"], way)
            counts[case][f"{figure}|in"] += inside
            counts[case][f"{figure}|of"] += asked
    figures = list(dict.fromkeys(key.split("|")[0] for counter in counts.values() for key in counter))
    figures = [name for name in figures if not name.startswith("cmc@5") or name == "cmc@5"]
    draws = Counter((record["set"], record["task"]) for record in records)
    fewest, most = min(draws.values()), max(draws.values())
    yield f"{fewest if fewest == most else f'{fewest} to {most}'} draws of each set and truth are in the journal."
    yield ""
    yield f"| set | truth | way | {' | '.join(figures)} |"
    yield "|---|---|---|" + "---:|" * len(figures)
    for case, counter in counts.items():
        cells = [f"{counter[f'{f}|in']}/{counter[f'{f}|of']}" if counter[f"{f}|of"] else "-" for f in figures]
        yield f"| {' | '.join(case)} | {' | '.join(cells)} |"
    yield ""
    shares = {
        (*case, key.split("|")[0]): counter[key] / counter[key.replace("|in", "|of")]
        for case, counter in counts.items()
        for key in counter
        if key.endswith("|in")
    }
    below = {case: share for case, share in shares.items() if share < LIMIT}
    inside = sum(number for counter in counts.values() for key, number in counter.items() if key.endswith("|in"))
    asked = sum(number for counter in counts.values() for key, number in counter.items() if key.endswith("|of"))
    yield (
        f"{inside} of {asked} printed intervals hold the truth ({inside / asked:.1%}). "
        f"Of the {len(shares)} kinds above, {len(below)} are below {LIMIT:.0%}; the lowest is "
        f"{min(shares.values()):.0%}."
    )
    yield from (f"Below {LIMIT:.0%}: {', '.join(case)}: {share:.0%}." for case, share in below.items())
    yield ""
    yield "| set | truth | promises | kept | saved | possible |"
    yield "|---|---|---:|---:|---:|---:|"
    made: defaultdict[tuple[str, ...], list[list[float]]] = defaultdict(list)
    for record in records:
        made[record["set"], record["task"]] += record.get("promises", [])
    for names, rows in made.items():
        if rows:
            quality, taken, true, needed = np.array(rows).T
            cells = [
                f"{len(rows)}",
                *(f"{x:.0%}" for x in ((true >= quality).mean(), 1 - taken.mean(), 1 - needed.mean())),
            ]
            yield f"| {' | '.join((*names, *cells))} |"


def main() -> None:
    """Draw, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--items", type=int, default=1200)
    parser.add_argument("--queries", type=int, default=3500)
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help="every n-th gallery from the i-th on: i n")
    parser.add_argument("--tables", action="store_true", help="only write the tables of what the journal has")
    parser.add_argument("--journal", type=Path, help="JSON lines; in a temporary folder by default")
    parser.add_argument("--page", type=Path, help="Markdown whose marked part is replaced by the tables")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(options.journal or Path(folder) / "stopping.jsonl")
        for path in [] if options.tables else options.sets:
            run(EmbeddedSet.load(path), journal, options)
        text = "\n".join(tables(journal.records))
    if options.page is None:
        print(text)
        return
    before, _, rest = options.page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    options.page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")


if __name__ == "__main__":
    main()
