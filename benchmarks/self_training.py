"""Self-training upgrades: quality by share of the gallery, with labels or without, and whether their intervals hold.

    python -m benchmarks self_training --sets caltech.npz glosses.npz characters.npz fonts.npz
    python -m benchmarks self_training --sets caltech.npz characters.npz --labels
    python -m benchmarks self_training --sets more.npz --queries-file kinds.npz --items 20000 --judging 300

Sets are files of `benchmarks.sets`; without any, scikit-learn's digits. One gallery is upgraded from one share to the
next, and searched as it has decided: by the old version, or by both. Beside it, with the same natives: the target
alone, a merge without a transform, and everything re-embedded. Queries are other items, whose labels define which items
are correct. `--queries-file` has queries that are no items: some judge the upgrade, others report. First samples were
measured once, by `benchmarks/spread.py` of the commit that these rows name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import compatstore as cs
from benchmarks.charts import panels
from benchmarks.dots import curves, legend
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, by_seed, cases, less, signed, values_of, where
from benchmarks.served import Outside, Served, ranked, split
from benchmarks.sets.embedded import SOURCE, TARGET, EmbeddedSet, QuerySet, read, unit
from compatstore.trainers import Residual

SHARES = (0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
LEARNED = 0.3  # share of a gallery that the transform of an estimate has learned from
FIGURES = ("cmc@1", "map")


def served_rows(served: Served, outside: Outside, shares: Sequence[float], gates: cs.Gates) -> Iterator[Row]:
    """Upgrade from share to share; figures of each way to serve."""
    source, exact = (-outside.source @ served.source.T, -outside.target @ served.target.T)
    for share in shares:
        served.upgrade(share, gates=gates)
        native = served.native
        found = outside.figures(ranked(source), "baseline")
        found |= outside.figures(served.search(outside.both), "served")
        alone = served.search(outside.target, version="v2", serving="target")
        found |= outside.figures(alone, "target alone")
        found |= outside.figures(ranked(np.where(native, exact, source)), "merge")
        yield {"share": f"{share:.0%}", "natives": int(native.sum()), **found, **outside.figures(ranked(exact), "full")}


def with_queries(served: Served, given: QuerySet, judging: int, reporting: int) -> tuple[cs.Gates, Outside]:
    """Queries of a file: some judge the upgrade in nDCG@10, others report."""
    place = np.full(len(served.data.labels), -1)
    place[served.rows] = np.arange(len(served.rows))
    there = place[given.items] >= 0
    queries, items = given.queries[there], place[given.items[there]]
    known = np.random.default_rng(served.seed).permutation(np.unique(queries))
    mine, others = known[:judging], known[judging : judging + reporting]
    right = np.zeros((len(given.vectors[SOURCE]), len(served.rows)), bool)
    right[queries, items] = True
    qrels: dict[str, dict[Any, float]] = {
        f"query-{query}": dict.fromkeys(np.flatnonzero(right[query]).tolist(), 1.0) for query in mine
    }
    vectors = {name: unit(given.vectors[role][mine]) for name, role in (("v1", SOURCE), ("v2", TARGET))}
    columns: dict[str, Any] = {**vectors, "id": list(qrels)}
    source, target = (unit(given.vectors[name][others]) for name in (SOURCE, TARGET))
    gates = cs.Gates(labels=cs.Queries(queries=columns, qrels=qrels), criterion="ndcg@10")
    return gates, Outside(source=source, target=target, correct=right[others], graded=True)


def intervals(data: EmbeddedSet, seed: int, items: int, queries: int, sample: int) -> Iterator[Row]:
    """Intervals of an estimate by labels, and of rounds without labels, against all queries from outside."""
    asked, rows = split(data, seed, items, queries)
    with tempfile.TemporaryDirectory() as folder:
        served = Served(data, rows, folder, seed)
        outside = served.outside(asked)
        learned = np.random.default_rng(seed).permutation(len(rows))[: round(LEARNED * len(rows))]
        trainer = Residual(epochs=6, width=256, seed=seed, holdout=0.1, holdout_by="row")
        transform = served.link(trainer, served.source[learned], served.target[learned])
        hopped = unit(transform.apply(served.source).vectors)
        galleries = {"hop alone": hopped, "full backfill": served.target}
        truth = {name: outside.figures(ranked(-outside.target @ each.T), name) for name, each in galleries.items()}
        truth["status quo"] = outside.figures(ranked(-outside.source @ served.source.T), "status quo")
        table = served.gallery.evaluate("v2", labels="label", sample=sample, backfill=cs.Backfill(seed=seed))
    for way in (each for each in table.rows if each.name in truth):
        row: Row = {"what": "estimate", "truth": "labels", "way": way.name}
        for figure in (name for name in FIGURES if name in way.figures):
            true, before = (truth[name][f"{name} {figure.replace('@', '')}"] / 100 for name in (way.name, "status quo"))
            printed = {figure: (way.figures[figure], true)}
            if figure in way.gains and way.name != "status quo":
                printed[f"{figure} gained"] = (way.gains[figure], true - before)
            for name, (interval, exact) in printed.items():
                holds = int(interval.low - 1e-4 <= exact <= interval.high + 1e-4)
                yield row | {"figure": name, "hold": holds, "printed": 1}


def run(
    *,
    sets: tuple[Path, ...] = (),
    labels: bool = False,
    queries_file: Path | None = None,
    judging: int = 500,
    seeds: int = 3,
    first_seed: int = 0,
    items: int = 4000,
    queries: int = 1000,
    shares: tuple[float, ...] = SHARES,
    draws: int = 20,
    sample: int = 300,
) -> Iterator[Row]:
    """Measure each set: what is served share by share, and intervals."""
    for data in read(sets):
        for seed in range(first_seed, first_seed + seeds):
            asked, rows = split(data, seed, items, queries)
            about: Row = {"set": data.name, "seed": seed}
            with tempfile.TemporaryDirectory() as folder:
                served = Served(data, rows, folder, seed)
                outside, gates = served.outside(asked), cs.Gates(labels="label" if labels else None)
                known = "labels" if labels else "nothing"
                if queries_file is not None:
                    given = QuerySet.load(queries_file)
                    gates, outside = with_queries(served, given, judging, queries)
                    known = f"queries: {given.name}"
                for row in served_rows(served, outside, shares, gates):
                    yield {"part": "served", **about, "given": known, "items": len(rows), **row}
        for draw in range(draws):
            for row in intervals(data, draw, min(items, 1200), 3500, sample):
                yield {"part": "intervals", "set": data.name, "seed": draw, **row}


def galleries(record: Record) -> dict[str, list[Row]]:
    """The rows of what is served: "set: given" -> rows."""
    found = cases(where(record.rows, part="served"), "set", "given").values()
    return {f"{rows[0]['set']}: {rows[0]['given']}": rows for rows in found}


def figure_of(rows: list[Row]) -> str:
    """The figure that a case is judged by."""
    return "map" if "served map" in rows[0] else "ndcg@10"


def served_table(record: Record) -> str:
    """What is served less the old model, share by share, and its part of the gain of everything re-embedded."""
    found = galleries(record)
    rows = [row for each in found.values() for row in each]
    shares = [share for share in ("2%", "10%", "25%", "100%") if where(rows, share=share)]
    lines = []
    for name, rows in found.items():
        figure, cells = figure_of(rows), []

        def gain(rows: list[Row], way: str, figure: str = figure) -> Interval | None:
            return less(by_seed(rows, f"{way} {figure}"), by_seed(rows, f"baseline {figure}"))

        for share in shares:
            served, full = (gain(where(rows, share=share), way) for way in ("served", "full"))
            part = f", {100 * served.mean / full.mean:.0f} %" if served and full and full.mean else ""
            cells.append(signed([served]) + part)
        by = figure.replace("map", "mAP").replace("ndcg", "nDCG")
        lines.append([name, by, *cells, signed([gain(rows, "full")])])
    return markdown(["set: given", "figure", *(f"{share} native" for share in shares), "all re-embedded"], lines)


def intervals_table(record: Record) -> str:
    """Printed intervals that hold the truth, by what prints them and the figure."""
    lines = []
    for own in cases(where(record.rows, part="intervals"), "what", "truth").values():
        shares = [_share(kind) for kind in cases(own, "set", "way", "figure").values()]
        printed, sets = f"{sum(row['printed'] for row in own):,}", ", ".join(values_of(own, "set"))
        what = [own[0][key] for key in ("what", "truth")]
        lines.append([*what, sets, printed, f"{_share(own):.1f} %", f"{min(shares):.0f} %"])
    return markdown(["intervals of", "correct by", "sets", "printed", "hold", "of the worst kind"], lines)


def _share(rows: list[Row]) -> float:
    return 100 * sum(row["hold"] for row in rows) / sum(row["printed"] for row in rows)


def chart(record: Record) -> Figure:
    """The deciding figure by share of the gallery, without labels."""
    found = galleries(record)
    found = {name: rows for name, rows in found.items() if rows[0]["given"] == "nothing"} or found
    figure, axes = panels(1.7 * len(found) + 0.7, len(found))
    for one, rows in zip(axes, found.values(), strict=True):
        curves(one, rows, LABELS, figure_of(rows))
        one.set_xscale("log")
        ticks = [1, 2, 5, 10, 25, 50, 100]
        one.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
        one.minorticks_off()
        one.set_title(f"{rows[0]['set']}: {figure_of(rows).replace('map', 'mAP')}")
    axes[-1].set_xlabel("share of the gallery that is embedded, %")
    legend(axes[0])
    return figure


LABELS = {
    "baseline": "old model",
    "merge": "merge, no transform",
    "target alone": "target alone",
    "served": "as served",
    "full": "all re-embedded",
}
SMOKE = {"seeds": 1, "items": 400, "queries": 60, "shares": (0.3, 0.5), "draws": 1, "sample": 200}
TABLES = {"served": served_table, "intervals": intervals_table}
