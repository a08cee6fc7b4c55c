"""Transforms learned from pairs: hop, orders of a backfill, training on what a backfill embeds.

    python -m benchmarks pairs --sets glyphs-embedded.npz caltech.npz glosses.npz

Sets are files of `benchmarks.sets`; without any, scikit-learn's digits. Gallery and queries are of classes that the
pairs have ("seen"), or of the other half of the classes ("unseen"). Parts "left out", pairs of 80 classes and a gallery
of 120 others, and "unpaired", no pairs at all, are run alone by `--parts "left out" unpaired`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.dots import chart_of
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, apart, by_seed, cases, cell, less, mean, signed, where
from benchmarks.served import Served, ranked
from benchmarks.sets.embedded import SOURCE, TARGET, Trial, draw, read, trials, unit
from compatstore.arrays import FloatArray, Positions
from compatstore.artifacts import Artifact, Transformed
from compatstore.evaluation import backfill_curve, retrieval_metrics
from compatstore.trainers import FCT, Auto, FastFill, KernelRidge, Pairs, Procrustes, Residual, Ridge, Unpaired
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

METHODS, CLOSED = ("Ridge", "Residual", "FCT", "FastFill"), ("Unpaired", "Procrustes", "Ridge")
ORDERS = ("random", "sigma", "spread-sigma", "entropy", "oracle")
FIRST_PAIRS, SHARE = (500, 6000), 0.1  # of the second training


def trainers(epochs: int, width: int, seed: int) -> Mapping[str, Callable[[], Any]]:
    """The methods by name, networks of one size; FastFill chooses the balance of its losses."""
    branches = {"branch_width": width // 2, "mixer_width": width, "epochs": epochs, "precision": "bfloat16"}
    loop: dict[str, Any] = {"epochs": epochs, "width": width, "precision": "bfloat16", "seed": seed}
    return {
        "Ridge": lambda: Ridge(seed=seed),
        "FCT": lambda: FCT(batch_size=256, seed=seed, **branches),
        "Residual": lambda: Residual(loss="l2", holdout_by="row", **loop),
        "FastFill": lambda: FastFill(seed=seed, **branches),
    }


def figures(trial: Trial, version: str, gallery: FloatArray, name: str) -> Row:
    """CMC-1 and mAP of a trial's queries in a version, on gallery vectors (n, d), by L2."""
    labels, queries = trial.data.labels, trial.data.vectors[version][trial.queries]
    found = retrieval_metrics(queries, gallery, labels[trial.queries], labels[trial.gallery], ks=(1,))
    return {f"{name} cmc1": round(100 * found.cmc[1], 2), f"{name} map": round(100 * found.map, 2)}


def pairs_of(trial: Trial, rows: Positions, *, labels: bool = False) -> Pairs:
    """Pairs of some rows of a set; with labels also the head of the target's own training, if there is one."""
    data = trial.data
    vectors = (data.vectors[SOURCE][rows], data.vectors[TARGET][rows])
    if not labels:
        return Pairs(*vectors)
    classes, own = np.unique(data.labels[rows], return_inverse=True)
    head = data.heads.get(TARGET)
    return Pairs(*vectors, labels=own, head=None if head is None else head[classes])


def backfilled(trial: Trial, hopped: Transformed, policy: str) -> Row:
    """Area under the curve of a backfill, and mAP with a tenth of the gallery native."""
    source, native = (trial.data.vectors[name] for name in (SOURCE, TARGET))
    labels, rows = trial.data.labels, trial.gallery
    items = ArrayRows(ids=rows.tolist(), sigma2=hopped.uncertainty, source=source[rows])
    if policy == "oracle":
        urgent = np.argsort(-np.square(hopped.vectors - native[rows]).sum(axis=1), kind="stable")
    else:
        urgent = order(policy, items, trial.seed)
    searched = (native[trial.queries], hopped.vectors, native[rows], labels[trial.queries], labels[rows])
    found = backfill_curve(*searched, urgent, alphas=11, ks=(1,))
    areas = {f"area {policy} {key}": round(100 * found.area[name], 2) for key, name in NAMES.items()}
    return areas | {f"10% {policy} map": round(100 * float(found.map[1]), 2)}


NAMES = {"cmc1": "cmc@1", "map": "map"}


def methods(trial: Trial, epochs: int, width: int) -> Iterator[Row]:
    """Each version alone, and each method: its hop, and the orders that it allows."""
    vectors, rows = trial.data.vectors, trial.gallery
    alone = {"s/s": SOURCE, "t/t": TARGET}
    own = [figures(trial, version, vectors[version][rows], name) for name, version in alone.items()]
    yield {"method": "none", **own[0], **own[1]}
    for name, trainer in trainers(epochs, width, trial.seed).items():
        hopped = trainer().fit(pairs_of(trial, trial.pairs, labels=True)).apply(vectors[SOURCE][rows])
        orders = ("random", "oracle") if hopped.uncertainty is None else ("random", "sigma", "spread-sigma", "oracle")
        found = figures(trial, TARGET, hopped.vectors, "t/h")
        for policy in orders:
            found |= backfilled(trial, hopped, policy)
        yield {"method": name, **found}


def second_training(trial: Trial, epochs: int, width: int) -> Iterator[Row]:
    """A residual network from few pairs, trained again on these and on a tenth that a backfill has embedded."""
    gallery = pairs_of(trial, trial.gallery)
    items = ArrayRows(ids=trial.gallery.tolist())
    native = order("random", items, trial.seed)[: round(SHARE * len(gallery))]
    filled = np.isin(np.arange(len(gallery)), native)[:, None]
    for first in FIRST_PAIRS:
        chosen = np.random.default_rng(trial.seed).permutation(trial.pairs)[:first]
        trainer = Residual(loss="l2", holdout=0.0, epochs=epochs, width=width, precision="bfloat16", seed=trial.seed)
        more = np.concatenate([chosen, trial.gallery[native]])
        hopped, again = (trainer.fit(pairs_of(trial, rows)).apply(gallery.source).vectors for rows in (chosen, more))
        kept, refit = (np.where(filled, gallery.target, made) for made in (hopped, again))
        about: Row = {"pairs": len(chosen), "few": first == FIRST_PAIRS[0], "order": "random", "share": SHARE}
        for name, made in {"hop": hopped, "kept": kept, "refit": refit}.items():
            about |= figures(trial, TARGET, made, name)
        yield about


def aligned(trial: Trial, clusters: int) -> Artifact:
    """A map without pairs, refused or not: from old vectors, the gallery's among them, to new ones of other items."""
    rows, vectors = np.random.default_rng(trial.seed).permutation(len(trial.data.labels)), trial.data.vectors
    rest = rows[~np.isin(rows, np.concatenate([trial.gallery, trial.queries]))]
    old = np.concatenate([trial.gallery, rest[::2]])
    trainer = Unpaired(clusters=clusters, agreement=-1.0, seed=trial.seed)
    return trainer.fit(vectors[SOURCE][old], vectors[TARGET][rest[1::2]])


def closed_forms(trial: Trial, clusters: int) -> Iterator[Row]:
    """Hops without pairs, and by closed forms with pairs."""
    pairs, old = pairs_of(trial, trial.pairs), trial.data.vectors[SOURCE][trial.gallery]
    yield {"method": "none", **figures(trial, SOURCE, old, "s/s")}
    for found in (aligned(trial, clusters), Procrustes().fit(pairs), Ridge(seed=trial.seed).fit(pairs)):
        about = {"method": found.manifest.method, "agreement": found.manifest.figures["h"].get("agreement")}
        yield about | figures(trial, TARGET, found.apply(old).vectors, "t/h")


def left_out(trial: Trial, clusters: int, epochs: int, width: int) -> Iterator[Row]:
    """A gallery of classes that the pairs lack: its hop, fused search, and fused search with a tenth embedded."""
    trial = replace(trial, data=replace(trial.data, vectors={k: unit(v) for k, v in trial.data.vectors.items()}))
    pairs, fastfill = pairs_of(trial, trial.pairs, labels=True), trainers(epochs, width, trial.seed)["FastFill"]
    own = {kind.__name__: kind(seed=trial.seed).fit for kind in (Ridge, KernelRidge, Auto)}
    for name, fit in ({"Unpaired": lambda _: aligned(trial, clusters)} | own | {"FastFill": fastfill().fit}).items():
        artifact = fit(pairs)
        with tempfile.TemporaryDirectory() as folder:
            served = Served(trial.data, trial.gallery, folder, trial.seed)
            outside = served.outside(trial.queries)
            served.gallery.artifacts.link(artifact, "v1", "v2")
            served.gallery.upgrade("v2")
            found = outside.figures(ranked(-outside.source @ served.source.T), "s/s")
            found |= outside.figures(ranked(-outside.target @ served.target.T), "t/t")
            found |= outside.figures(served.search(outside.target, version="v2", serving="target"), "hop")
            for key, share in {"fused": 0.0, "10%": 0.1}.items():
                if share:
                    served.upgrade(share, order="random")
                served.gallery.evaluate("v2", weight=0.5)
                found |= outside.figures(served.search(outside.both), key)
        agreement = artifact.manifest.figures["h"].get("agreement")
        yield {"classes": "unseen", "method": name, "agreement": agreement, **found}


def run(
    *,
    sets: tuple[Path, ...] = (),
    seeds: int = 5,
    pairs: int = 6000,
    items: int = 3000,
    queries: int = 1000,
    epochs: int = 30,
    width: int = 512,
    parts: tuple[str, ...] = ("methods", "refit", "left out", "unpaired"),
    apart: tuple[int, int] = (80, 120),
    clusters: int = 40,
) -> Iterator[Row]:
    """Measure each set with classes seen and unseen, seed by seed; `apart`: classes of pairs, and others left out."""
    size = {"pairs": pairs, "gallery": items, "queries": queries}
    for data in read(sets):
        for about, trial in trials(data, seeds, **size):
            found = {"methods": methods(trial, epochs, width), "refit": second_training(trial, epochs, width)}
            if about["classes"] == "seen":
                known = draw(data, trial.seed, unseen=apart, **size)
                found["left out"] = left_out(known, clusters, epochs, width)
                found["unpaired"] = closed_forms(trial, clusters)
            yield from ({"part": part, **about, **row} for part in parts for row in found.get(part, ()))


def groups(record: Record) -> dict[str, list[Row]]:
    """The rows with methods, by set and classes."""
    return cases(where(record.rows, part="methods"), "set", "classes")


def methods_table(record: Record) -> str:
    """Source, target and each method's hop by set: means of CMC-1 / mAP."""
    head = ["set, classes", "old model", *METHODS, "all re-embedded", "seeds"]
    lines = []
    for name, rows in groups(record).items():
        hops = [cell(rows, "t/h", method=method) for method in METHODS]
        ends = [cell(rows, figure, method="none") for figure in ("s/s", "t/t")]
        counts = sorted({len(by_seed(rows, "t/h map", method=method)) for method in METHODS} - {0})
        lines.append([name, ends[0], *hops, ends[1], " or ".join(map(str, counts))])
    return markdown(head, lines)


def orders_table(record: Record) -> str:
    """MAP of a backfill by each order of FastFill's transform, less that of a random order."""
    found, lines = groups(record), []
    for policy in ORDERS[1:]:
        figures = (f"area {policy} map", "area random map")
        cells = [
            [apart(rows, *((method, figure) for figure in figures)) for method in ("FastFill", "FastFill, scale 64")]
            for rows in found.values()
        ]
        lines.append([policy, *(next((one.signed for one in pair if one), "") for pair in cells)])
    return markdown(["order", *found], lines)


def refit_table(record: Record) -> str:
    """MAP with a tenth of the gallery native in random order, with and without a second training."""
    rows = where(record.rows, part="refit", order="random", share=0.1)
    lines = []
    for name, case in cases(rows, "set", "classes").items():
        for own in cases(case, "few").values():
            gain = less(by_seed(own, "refit map"), by_seed(own, "kept map"))
            means = [mean(own, f"{each} map") for each in ("hop", "kept", "refit")]
            lines.append([name, f"{own[0]['pairs']:,}", *means, signed([gain])])
    return markdown(["set, classes", "pairs before", "hop alone", "a tenth native", "trained again", "gain"], lines)


def left_out_table(record: Record) -> str:
    """Trainers on pairs that lack the gallery's classes: CMC-1 / mAP of hop, fused search, and a tenth embedded."""
    rows = where(record.rows, part="left out")
    lines = [["old model", *[cell(rows, "s/s")] * 3], ["all re-embedded", *[cell(rows, "t/t")] * 3]]
    for name, own in cases(rows, "method").items():
        lines.append([f"`{name}`", *(cell(own, figure) for figure in ("hop", "fused", "10%"))])
    return markdown(["trained by", "hop alone", "fused, nothing embedded", "fused, a tenth embedded"], lines)


def unpaired_table(record: Record) -> str:
    """Hops without pairs beside closed forms with pairs: CMC-1 / mAP, the agreement of the starts, and the verdict."""
    head, lines = ["set", "old model", "agreement", "verdict"], []
    for name, rows in cases(where(record.rows, part="unpaired"), "set").items():
        agreement = min(by_seed(rows, "agreement", method="Unpaired").values())
        verdict = "taken" if agreement >= Unpaired().agreement else "refused"
        hops = [cell(rows, "t/h", method=method) for method in CLOSED]
        lines.append([name, cell(rows, "s/s"), f"{agreement:.2f}", verdict, *hops])
    return markdown([*head, *(f"`{method}`" for method in CLOSED)], lines)


def chart(record: Record) -> Figure:
    """MAP of each hop over the old model, beside everything re-embedded, set by set."""
    found = groups(record)

    def gains(method: str, figure: str) -> list[Interval | None]:
        return [apart(rows, (method, figure), ("none", "s/s map")) for rows in found.values()]

    series = {method: gains(method, "t/h map") for method in METHODS}
    marks = {"all re-embedded": gains("none", "t/t map")}
    return chart_of(list(found), series, marks, height=0.6 * len(found) + 1.2, label="mAP over the old model, points")


SMOKE = {
    "seeds": 1,
    "pairs": 200,
    "items": 120,
    "queries": 40,
    "epochs": 2,
    "width": 16,
    "apart": (4, 6),
    "clusters": 12,
}
TABLES = {"methods": methods_table, "orders": orders_table, "refit": refit_table}
TABLES |= {"left-out": left_out_table, "unpaired": unpaired_table}
