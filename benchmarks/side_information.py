"""Each kind of side-information: what it adds to a hop of FCT, and the bytes of an item that it takes.

    python -m benchmarks side_information --glyphs glyphs.npz

Source and side-information are trained on every second character, the target on all; gallery and queries are of fonts
that no model has seen. Without `--glyphs`, scikit-learn's digits. The rows of the record were measured by code of the
commit that it names, with a cosine head in place of softmax.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import compatstore as cs
from benchmarks.dots import chart_of
from benchmarks.images.measure import gallery_of, own, transformed
from benchmarks.images.methods import fitted
from benchmarks.images.models import METRICS, Models, embed
from benchmarks.images.sizes import SIZES, Size
from benchmarks.images.trial import draw, read
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, apart, both, cell, mean, signed, values_of
from compatstore.arrays import signs
from compatstore.evaluation import linear_cka
from compatstore.trainers import FCT, Alternate, Augmentation, Autoencoder, SimCLR
from compatstore.versions import SideDType

LOSS = "softmax"
SIZE = Size(
    pixels=16, images=6000, gallery=2000, queries=2000, epochs=12, batch_size=64, transform_epochs=30,
    transform_width=256, branch_width=128, transform_batch=128, augment=False, one_start=True,
)  # fmt: skip
ITEMS_TO_WEIGH = 100_000


@dataclass(frozen=True)
class Kind:
    """A kind of side-information.

    Args:
        trainer: Makes it.
        settings: Of the trainer.
        dtype: How it is stored.
    """

    trainer: Any
    settings: Row
    dtype: SideDType = "float32"


# As the rows were measured: no projection, and crops as those of classifiers.
_CONTRASTIVE: Row = {"batch_size": 256, "projection": 0, "augmentation": Augmentation()}
_LONG = {**_CONTRASTIVE, "dim": 128}
_ALTERNATE: Row = {"head": "cosine", "mixup": 0.5}
KINDS = {
    "autoencoder": Kind(Autoencoder, {"dim": 64}),
    "another seed": Kind(Alternate, {"dim": 64, "head": "cosine"}),
    "another seed, Mixup on images": Kind(Alternate, {"dim": 64, **_ALTERNATE}),
    "SimCLR": Kind(SimCLR, {"dim": 64, **_CONTRASTIVE}),
    "SimCLR, 128 values": Kind(SimCLR, _LONG),
    "its signs": Kind(SimCLR, _LONG, "bits"),
    "trained for signs": Kind(SimCLR, {**_LONG, "codes": True}, "bits"),
    "another seed, Mixup, trained for 128 signs": Kind(Alternate, {**_ALTERNATE, "dim": 128, "codes": True}, "bits"),
}
# CMC-1 / mAP of t/h: FCT, tables 6 and 13, ImageNet of 500 to 1,000 classes.
PAPER = {
    "none": "61.8 / 39.9", "autoencoder": "62.0 / 40.5", "another seed": "63.5 / 42.1",
    "another seed, Mixup on images": "63.8 / 42.4", "SimCLR, 128 values": "65.0 / 43.6",
    "trained for signs": "64.1 / 42.7", "bounds": "46.5 / 29.9 and 68.1 / 45.0",
}  # fmt: skip


def run(*, glyphs: Path | None = None, seeds: int = 3, smoke_size: bool = False) -> Iterator[Row]:
    """Measure each kind, seed by seed."""
    size = SIZES["smoke"] if smoke_size else SIZE
    data = read(glyphs, "Glyphs", size.pixels)
    for seed in range(seeds):
        models = Models(draw(data, "classes", size, seed, METRICS[LOSS]), LOSS)
        trial, source, target = models.trial, models.source, models.independent
        loop, about = models.loop(target=False), {"set": data.name, "seed": seed}
        yield {**about, "method": "bounds", **own(trial, source, "s/s"), **own(trial, target, "t/t")}
        yield {**about, "method": "none", **transformed(models, target, fitted(FCT, models))}
        for name, kind in KINDS.items():
            own_seed = seed + (1000 if kind.trainer is Alternate else 0)
            side = kind.trainer(**{**loop, "seed": own_seed, **kind.settings}).fit(trial.source).encoder
            found = transformed(models, target, fitted(FCT, models, side, kind.dtype), side, dtype=kind.dtype)
            values = embed(side, trial.gallery)
            cka = linear_cka(signs(values) if kind.dtype == "bits" else values, embed(source.encoder, trial.gallery))
            added = (_stored(side.dim, kind.dtype) - _stored(None, "float32")) / ITEMS_TO_WEIGH
            yield {**about, "method": name, **found, "cka": round(cka, 3), "bytes": round(added, 1)}


def _stored(side_dim: int | None, dtype: SideDType) -> int:
    """Bytes of the data files of a gallery."""
    random = np.random.default_rng(0)
    version = cs.EmbeddingVersion("v1", dim=8, side_dim=side_dim, side_dtype=dtype)
    vectors = random.normal(size=(ITEMS_TO_WEIGH, 8)).astype(np.float32)
    side = random.normal(size=(ITEMS_TO_WEIGH, side_dim)).astype(np.float32) if side_dim else None
    with tempfile.TemporaryDirectory() as folder:
        gallery_of(folder, version, vectors, side)
        return sum(path.stat().st_size for path in Path(folder, "gallery.lance", "data").rglob("*"))


def table(record: Record) -> str:
    """Each kind: bytes, CMC-1 / mAP of the hop, what it adds, and similarity to the source's embedding."""
    rows, lines = record.rows, []
    for name in (one for one in values_of(rows, "method") if one != "bounds"):
        added = both(rows, (name, "t/h"), ("none", "t/h")) if name != "none" else []
        stored, cka = (mean(rows, key, method=name) for key in ("bytes", "cka"))
        own = [f"{stored.mean:.0f}" if stored else "", cell(rows, "t/h", method=name), signed(added)]
        lines.append([name, *own, f"{cka.mean:.2f}" if cka else "", PAPER.get(name, "")])
    ends = [cell(rows, figure, method="bounds") for figure in ("s/s", "t/t")]
    lines.append(["old model alone, everything re-embedded", "", " and ".join(ends), "", "", PAPER["bounds"]])
    return markdown(["side-information", "bytes", "hop", "added: CMC-1, mAP", "CKA", "paper"], lines)


def chart(record: Record) -> Figure:
    """MAP that each kind adds to the hop."""
    rows = record.rows
    names = [name for name in values_of(rows, "method") if name not in ("bounds", "none")]
    added = {name: apart(rows, (name, "t/h map"), ("none", "t/h map")) for name in names}
    bits: dict[str, list[Interval | None]] = {}
    for stored in ("floats", "bits"):
        kinds = {name for name in names if ("sign" in name) == (stored == "bits")}
        bits[f"stored as {stored}"] = [one if name in kinds else None for name, one in added.items()]
    labels = [name.replace(", Mixup", ",\nMixup").replace(" trained for 128", "\ntrained for 128") for name in names]
    return chart_of(labels, bits, height=0.42 * len(names) + 1.0, label="mAP added to the hop, points")


SMOKE = {"seeds": 1, "smoke_size": True}
TABLES = {"kinds": table}
