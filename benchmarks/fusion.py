"""Fused search over both versions of an upgrade beside other ways to serve it, and its weight without labels.

    python -m benchmarks fusion --sets caltech.npz characters.npz fonts.npz glosses.npz

Sets are files of `benchmarks.sets`; without any, scikit-learn's digits. A ridge regression makes the target's vectors
of items that are not native. Queries are no items, and their labels define which items are correct.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.charts import panels
from benchmarks.dots import curves, legend
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import by_seed, cases, less, signed, values_of, where
from benchmarks.served import Outside, Served, ranked, split
from benchmarks.sets.embedded import SOURCE, TARGET, EmbeddedSet, Trial, read, trials, unit
from compatstore.arrays import Positions
from compatstore.trainers import Ridge

SHARES, RULE_SHARES, GRID = (0.0, 0.25, 0.5, 0.75, 1.0), (0.02, 0.1, 0.25, 0.5, 1.0), (0.1, 0.3, 0.5, 0.7, 0.9)
FIRST = 10  # candidates that a cascade embeds
RANK_OFFSET = 60  # of reciprocal rank fusion
MODELS = {"Glosses": "texts: Universal Sentence Encoder → MiniLM", "Caltech-101": "photos: EfficientNet-Lite0 → Lite2"}


def linked(data: EmbeddedSet, rows: Positions, pairs: Positions, folder: str, seed: int) -> Served:
    """A gallery whose items are hopped by a ridge regression of some pairs."""
    served = Served(data, rows, folder, seed)
    served.link(Ridge(seed=seed), *(unit(data.vectors[name][pairs]) for name in (SOURCE, TARGET)))
    served.gallery.upgrade("v2")
    return served


def ways(served: Served, outside: Outside) -> Row:
    """Figures of each way to serve the gallery as it is."""
    native = served.native
    source, exact = (-outside.source @ served.source.T, -outside.target @ served.target.T)
    found = outside.figures(ranked(source), "baseline")
    alone = served.search(outside.target, version="v2", serving="target")
    found |= outside.figures(alone, "target alone")
    found |= outside.figures(ranked(np.where(native, exact, source)), "merge by distance")
    chosen = served.gallery.evaluate("v2", labels="label", sample=len(served.rows), weight="best")
    fused = served.search(outside.both) if chosen.weight else ranked(source)
    found |= outside.figures(fused, "fused") | {"weight": f"{chosen.weight:g}"}
    best = np.take_along_axis(exact, fused[:, :FIRST], axis=1)
    again = np.take_along_axis(fused[:, :FIRST], ranked(best), axis=1)
    found |= outside.figures(np.concatenate([again, fused[:, FIRST:]], axis=1), f"fused, first {FIRST} native")
    places = sum(1 / (RANK_OFFSET + 1 + np.argsort(each, axis=1)) for each in (ranked(source), alone))
    found |= outside.figures(ranked(-places), "reciprocal ranks")
    served.gallery.evaluate("v2", weight=0.5)
    return found | outside.figures(served.search(outside.both), "fused, weight 0.5")


def of_set(trial: Trial) -> Iterator[Row]:
    """Each way to serve, share by share."""
    with tempfile.TemporaryDirectory() as folder:
        served = linked(trial.data, trial.gallery, trial.pairs, folder, trial.seed)
        outside = served.outside(trial.queries)
        for share in SHARES:
            if share:
                served.upgrade(share, order="random")
            yield {"share": f"{share:.0%}", **ways(served, outside)}


def unlabelled(data: EmbeddedSet, seed: int, items: int, queries: int, share: float) -> Row:
    """The weight that is chosen without labels, and the best of a grid by labels."""
    asked, rows = split(data, seed, items, queries)
    natives = max(round(share * len(rows)), 100)
    with tempfile.TemporaryDirectory() as folder:
        served = Served(data, rows, folder, seed)
        outside = served.outside(asked)
        served.upgrade(natives / len(rows))
        chosen = served.gallery.evaluate("v2", weight="best", sample=min(len(rows), 1000))
        before = outside.average_precision(ranked(-outside.source @ served.source.T))
        gains = outside.average_precision(served.search(outside.both)) - before if chosen.weight else 0 * before
        best = [0.0]
        for weight in GRID:
            served.gallery.evaluate("v2", weight=weight)
            best.append(float((outside.average_precision(served.search(outside.both)) - before).mean()))
    error = float(2 * gains.std() / len(gains) ** 0.5)
    found = {"baseline map": before.mean(), "weight": chosen.weight, "gain map": gains.mean(), "error": error}
    found["best weight gain map"] = max(best)
    rounded = {key: round(float(value), 2) for key, value in found.items()}
    return {"share": f"{share:.0%}", **rounded, "below": int(gains.mean() < -error), "seeds": 1}


def run(
    *,
    sets: tuple[Path, ...] = (),
    seeds: int = 3,
    pairs: int = 6000,
    items: int = 1500,
    queries: int = 600,
) -> Iterator[Row]:
    """Measure each set: ways to serve, weight without labels for either direction."""
    for data in read(sets):
        swapped = replace(data, vectors={SOURCE: data.vectors[TARGET], TARGET: data.vectors[SOURCE]})
        for about, trial in trials(data, seeds, pairs=pairs, gallery=items, queries=queries):
            yield from ({"part": "fusion", **about, **row} for row in of_set(trial))
        for seed in range(seeds):
            for direction, each in {"better model": data, "worse model": swapped}.items():
                about = {"part": "weight without labels", "set": data.name, "direction": direction, "seed": seed}
                for share in RULE_SHARES:
                    yield about | unlabelled(each, seed, items, queries, share)


WAYS = ("target alone", "merge by distance", "reciprocal ranks", "fused, weight 0.5", "fused", "fused, first 10 native")


def ways_table(classes: str) -> Callable[[Record], str]:
    """A table of the mAP of each way less the old model's: nothing re-embedded, half and all of it."""

    def table(record: Record) -> str:
        found = cases(where(record.rows, part="fusion", classes=classes), "set")
        lines = []
        for way, share in itertools.product(WAYS, ("0%", "50%", "100%")):
            gains = [
                less(by_seed(rows, f"{way} map", share=share), by_seed(rows, "baseline map", share=share))
                for rows in found.values()
            ]
            if any(one and one.mean for one in gains):
                lines.append([way, share, *(signed([one]) for one in gains)])
        return markdown(["way to serve", "native", *found], lines)

    return table


def unlabelled_table(record: Record) -> str:
    """The weight that is chosen without labels: weight, gain in mAP, that of the best weight, galleries below."""
    rows = where(record.rows, part="weight without labels")
    shares = [share for share in values_of(rows, "share") if share in ("2%", "10%", "50%", "100%")]
    lines = []
    for own in cases(rows, "set", "direction").values():
        cells = []
        for share in shares:
            each = where(own, share=share)
            gain, best = (sum(row[key] for row in each) / len(each) for key in ("gain map", "best weight gain map"))
            cells.append(f"{gain:+.1f} of {best:+.1f}")
        below, galleries = (sum(row[key] for row in own) for key in ("below", "seeds"))
        chosen = ", chosen on it" if own[0].get("chosen on") else ""
        lines.append([f"{own[0]['set']}{chosen}", own[0]["direction"], *cells, f"{below} of {galleries}"])
    return markdown(["set", "upgrade to a", *(f"{share} native" for share in shares), "galleries below"], lines)


def readme_table(record: Record) -> str:
    """The mAP of what searches find while an upgrade without labels runs, on two sets."""
    lines = []
    for name, models in MODELS.items():
        rows = where(record.rows, part="weight without labels", direction="better model", set=name)
        gains = [0, *(row["gain map"] for row in rows if row["share"] in ("2%", "10%", "100%"))]
        lines.append([models, *(f"{rows[0]['baseline map'] + gain:.1f} %" for gain in gains if rows)])
    return markdown(["old model → new model", "old model", "2 % embedded", "a tenth", "everything"], lines)


def chart(record: Record) -> Figure:
    """MAP of four ways to serve while a gallery is backfilled, of classes that the pairs lack."""
    found = cases(where(record.rows, part="fusion", classes="unseen"), "set")
    figure, axes = panels(1.7 * len(found) + 0.7, len(found))
    names = {"baseline": "old model", "merge by distance": "merge", "target alone": "target alone", "fused": "fused"}
    for one, (title, rows) in zip(axes, found.items(), strict=True):
        curves(one, rows, names, "map")
        one.set_title(f"{title}: mAP")
    axes[-1].set_xlabel("share of the gallery that is native, %")
    legend(axes[0], columns=4)
    return figure


SMOKE = {"seeds": 1, "pairs": 300, "items": 200, "queries": 40}
TABLES = {
    "seen": ways_table("seen"),
    "unseen": ways_table("unseen"),
    "unlabelled": unlabelled_table,
    "readme": readme_table,
}
