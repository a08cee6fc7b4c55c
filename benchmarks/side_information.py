"""Each kind of side-information: what it adds to a hop of FCT, and the bytes of an item that it takes.

    python -m benchmarks side_information --glyphs glyphs.npz

Source and side-information are trained on every second character, the target on all; gallery and queries are of fonts
that no model has seen. Without `--glyphs`, scikit-learn's digits.
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
from benchmarks.images.measure import figures, gallery_of
from benchmarks.images.models import embed
from benchmarks.images.sizes import SIZES, Size
from benchmarks.images.trial import Trial, draw, read
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from benchmarks.seeds import Interval, apart, both, cell, mean, signed, values_of
from compatstore.arrays import FloatArray, signs
from compatstore.evaluation import linear_cka
from compatstore.trainers import FCT, Alternate, Augmentation, Autoencoder, Independent, Pairs, SimCLR
from compatstore.versions import SideDType

SIZE = Size(
    pixels=16, images=6000, gallery=2000, queries=2000, epochs=12, batch_size=64, transform_epochs=30,
    transform_width=256, branch_width=128,
)  # fmt: skip
ITEMS_TO_WEIGH = 100_000


@dataclass(frozen=True)
class Kind:
    """A kind of side-information.

    Args:
        trainer: Makes it.
        settings: Of the trainer.
        dtype: How it is stored.
        centred: Take the mean over the training images away before the sign.
    """

    trainer: Any
    settings: Row
    dtype: SideDType = "float32"
    centred: bool = False


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
    "its signs about the mean": Kind(SimCLR, _LONG, "bits", centred=True),
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
        trial = draw(data, "classes", size, seed)
        loop: Row = {"size": size.pixels, "width": size.width, "epochs": size.epochs, "precision": size.precision}
        classifier = {**loop, "dim": size.dim, "head": "cosine", "seed": seed}
        models = [Independent(**classifier).fit(images).encoder for images in (trial.source, trial.target)]
        images = (trial.target, trial.gallery, trial.queries)
        source, target = ([embed(model, each) for each in images] for model in models)
        about = {"set": data.name, "seed": seed}
        alone = {"s/s": source, "t/t": target}
        bounds = [figures(trial, parts[2], parts[1], name) for name, parts in alone.items()]
        yield {**about, "method": "bounds", **bounds[0], **bounds[1]}
        yield {**about, "method": "none", **hop(trial, source, target)}
        for name, kind in KINDS.items():
            own_seed = seed + (1000 if kind.trainer is Alternate else 0)
            encoder = kind.trainer(**{**loop, "seed": own_seed, **kind.settings}).fit(trial.source).encoder
            side = [embed(encoder, each) for each in images]
            side = [each - side[0].mean(axis=0) for each in side] if kind.centred else side
            found = hop(trial, source, target, side, kind.dtype)
            read_values = signs(side[1]) if kind.dtype == "bits" else side[1]
            cka, width = linear_cka(read_values, source[1]), side[1].shape[1]
            added = (_stored(width, kind.dtype) - _stored(None, "float32")) / ITEMS_TO_WEIGH
            yield {**about, "method": name, **found, "cka": round(cka, 3), "bytes": round(added, 1)}


def hop(
    trial: Trial,
    source: list[FloatArray],
    target: list[FloatArray],
    side: list[FloatArray] | None = None,
    dtype: SideDType = "float32",
) -> Row:
    """Hop a real gallery by FCT, and search it with target queries, and with transformed ones."""
    size, ids = trial.size, list(range(len(source[1])))
    dim = None if side is None else side[0].shape[1]
    versions = [
        cs.EmbeddingVersion("v1", dim=source[0].shape[1], normalised=True, side_dim=dim, side_dtype=dtype),
        cs.EmbeddingVersion("v2", dim=target[0].shape[1], normalised=True),
    ]
    shape: Row = {"branch_width": size.branch_width, "mixer_width": size.transform_width}
    trainer = FCT(epochs=size.transform_epochs, batch_size=128, seed=trial.seed, **shape)
    pairs = Pairs(
        source[0], target[0], side=side[0] if side else None, source_version=versions[0], target_version=versions[1]
    )
    artifact = trainer.fit(pairs)
    with tempfile.TemporaryDirectory() as folder:
        gallery = gallery_of(folder, versions[0], source[1], side[1] if side else None)
        gallery.register(versions[1])
        gallery.artifacts.link(artifact)
        gallery.upgrade("v2")
        hopped = gallery.vectors(ids, "v2")
    asked = artifact.apply(source[2], side[2] if side else None).vectors
    return figures(trial, target[2], hopped, "t/h") | figures(trial, asked, hopped, "h/h")


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
        kinds = {name for name in names if (KINDS[name].dtype == "bits") == (stored == "bits")}
        bits[f"stored as {stored}"] = [one if name in kinds else None for name, one in added.items()]
    labels = [name.replace(", Mixup", ",\nMixup").replace(" trained for 128", "\ntrained for 128") for name in names]
    return chart_of(labels, bits, height=0.42 * len(names) + 1.0, label="mAP added to the hop, points")


SMOKE = {"seeds": 1, "smoke_size": True}
TABLES = {"kinds": table}
