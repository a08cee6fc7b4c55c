"""Measure a kind of side-information in a real gallery: what a hop with it finds, and the bytes that it takes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import compatstore as cs
from benchmarks.pairs.journal import Record
from benchmarks.side_information.embedded import GALLERY, LEARNT, QUERIES, Embedded, Parts
from compatstore.arrays import signs
from compatstore.evaluation import linear_cka, retrieval_metrics
from compatstore.trainers import FCT, Pairs
from compatstore.versions import SideDType

ITEMS_TO_WEIGH = 100_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table.

    Args:
        kind: Of the side-information, or "" for none.
        dtype: How it is stored.
        centred: Take the mean over what was learnt from away before the sign.
    """

    kind: str = ""
    dtype: SideDType = "float32"
    centred: bool = False

    def side(self, trial: Embedded) -> Parts | None:
        """(n, side_dim) of each part, or None."""
        if not self.kind:
            return None
        parts = trial.side(self.kind)
        mean = parts[LEARNT].mean(axis=0) if self.centred else 0
        return {name: values - mean for name, values in parts.items()}


ROWS = {
    "none": Row(),
    "autoencoder": Row(kind="autoencoder"),
    "another seed": Row(kind="another seed"),
    "another seed, Mixup on images": Row(kind="another seed, Mixup"),
    "SimCLR": Row(kind="SimCLR"),
    "SimCLR, 128 values": Row(kind="SimCLR, 128 values"),
    "its signs": Row(kind="SimCLR, 128 values", dtype="bits"),
    "its signs about the mean": Row(kind="SimCLR, 128 values", dtype="bits", centred=True),
    "trained for signs": Row(kind="SimCLR, 128 values, for codes", dtype="bits"),
    "another seed, Mixup, trained for 128 signs": Row(kind="another seed, Mixup, for codes", dtype="bits"),
}


def measure(trial: Embedded, row: Row) -> Record:
    """Learn a transform, hop a gallery by it, and search it with target queries, and with hopped ones."""
    side, size = row.side(trial), trial.lesson.size
    source, target = _versions(trial, row, side)
    pairs = Pairs(
        trial.source[LEARNT], trial.target[LEARNT], side=None if side is None else side[LEARNT],
        source_version=source, target_version=target,
    )  # fmt: skip
    width = size.transform_width
    trainer = FCT(
        epochs=size.transform_epochs, batch_size=128, branch_width=width // 2, mixer_width=width, seed=trial.lesson.seed
    )
    artifact = trainer.fit(pairs)
    hopped = _hopped(trial, source, target, artifact, side)
    queries = artifact.apply(trial.source[QUERIES], None if side is None else side[QUERIES]).vectors
    found = {"t/h": _figures(trial, trial.target[QUERIES], hopped), "h/h": _figures(trial, queries, hopped)}
    if side is not None:
        read = signs(side[GALLERY]) if row.dtype == "bits" else side[GALLERY]
        found["cka"] = linear_cka(read, trial.source[GALLERY])
    return found


def bounds(trial: Embedded) -> Record:
    """The source alone, and the target alone."""
    alone = {"s/s": trial.source, "t/t": trial.target}
    return {name: _figures(trial, parts[QUERIES], parts[GALLERY]) for name, parts in alone.items()}


def bytes_per_item(trial: Embedded) -> Record:
    """What each row's side-information adds to the data files of a gallery of 100,000 items, an item."""
    sides = {name: (row, row.side(trial)) for name, row in ROWS.items()}
    alone = _stored(None, "float32")
    return {
        name: (_stored(side[LEARNT].shape[1], row.dtype) - alone) / ITEMS_TO_WEIGH
        for name, (row, side) in sides.items()
        if side is not None
    }


@cache
def _stored(side_dim: int | None, dtype: SideDType) -> int:
    random = np.random.default_rng(0)
    version = cs.EmbeddingVersion("v1", dim=8, side_dim=side_dim, side_dtype=dtype)
    items = {"id": np.arange(ITEMS_TO_WEIGH), "vector": random.normal(size=(ITEMS_TO_WEIGH, 8)).astype(np.float32)}
    if side_dim is not None:
        items["side"] = random.normal(size=(ITEMS_TO_WEIGH, side_dim)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        cs.Gallery.create(f"{folder}/gallery.lance", version, id_type="int64").add(items)
        return sum(path.stat().st_size for path in Path(folder, "gallery.lance", "data").rglob("*"))


def _versions(trial: Embedded, row: Row, side: Parts | None) -> tuple[cs.EmbeddingVersion, cs.EmbeddingVersion]:
    dims = (trial.source[LEARNT].shape[1], trial.target[LEARNT].shape[1])
    side_dim = None if side is None else side[LEARNT].shape[1]
    return (
        cs.EmbeddingVersion("v1", dim=dims[0], normalised=True, side_dim=side_dim, side_dtype=row.dtype),
        cs.EmbeddingVersion("v2", dim=dims[1], normalised=True),
    )


def _hopped(
    trial: Embedded, source: cs.EmbeddingVersion, target: cs.EmbeddingVersion, artifact: cs.Artifact, side: Parts | None
) -> np.ndarray:
    """The gallery's vectors in the target, after an upgrade without backfill."""
    ids = list(range(len(trial.source[GALLERY])))
    items = {"id": ids, "vector": trial.source[GALLERY]} | ({} if side is None else {"side": side[GALLERY]})
    with tempfile.TemporaryDirectory() as folder:
        gallery = cs.Gallery.create(f"{folder}/gallery.lance", source, id_type="int64")
        gallery.add(items)
        gallery.register(target)
        gallery.artifacts.link(artifact)
        gallery.upgrade("v2")
        return gallery.vectors(ids, "v2")


def _figures(trial: Embedded, queries: np.ndarray, gallery: np.ndarray) -> Record:
    labels = trial.lesson.queries.labels, trial.lesson.gallery.labels
    found = retrieval_metrics(queries, gallery, *labels, ks=(1,), metric="cosine")
    return {"cmc1": found.cmc[1], "map": found.map}
