"""A gallery on disk of an embedded set that is upgraded by the public API, and queries that search it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from benchmarks.record import Row
from benchmarks.sets.embedded import SOURCE, TARGET, EmbeddedSet, unit
from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.trainers import Pairs

DEPTH = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Outside:
    """q queries that are no items of a gallery.

    Args:
        source: (q, source dim) float32 of unit length.
        target: (q, target dim) float32 of unit length.
        correct: (q, n) bool, the items that are correct for each.
        graded: Figures are nDCG@10 and recall@10; else CMC-1 and mAP.
    """

    source: FloatArray
    target: FloatArray
    correct: BoolArray
    graded: bool = False

    @property
    def both(self) -> dict[str, FloatArray]:
        """Query vectors by version."""
        return {"v1": self.source, "v2": self.target}

    def figures(self, found: Positions, name: str) -> Row:
        """Figures of rankings, (q, m) items from the nearest on, -1 for none."""
        right = self._right(found)
        if self.graded:
            known = np.maximum(self.correct.sum(axis=1), 1)
            values = {"ndcg@10": self.ndcg(found), "recall@10": 100 * right[:, :DEPTH].sum(axis=1) / known}
        else:
            values = {"cmc1": 100 * right[:, 0], "map": self.average_precision(found)}
        counted = self.correct.any(axis=1)
        return {f"{name} {key}": round(float(each[counted].mean()), 2) for key, each in values.items()}

    def ndcg(self, found: Positions) -> Doubles:
        """(q,) nDCG@10 of rankings (q, m), in points."""
        known, first = np.maximum(self.correct.sum(axis=1), 1), self._right(found)[:, :DEPTH]
        discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
        ideal = np.cumsum(discounts)[np.minimum(known, DEPTH) - 1]
        return np.asarray(100 * (first * discounts[: first.shape[1]]).sum(axis=1) / ideal)

    def average_precision(self, found: Positions) -> Doubles:
        """(q,) average precision of rankings (q, m), in points."""
        right = self._right(found)
        precision = np.cumsum(right, axis=1) / np.arange(1, right.shape[1] + 1)
        return np.asarray(100 * (precision * right).sum(axis=1) / np.maximum(self.correct.sum(axis=1), 1))

    def _right(self, found: Positions) -> BoolArray:
        return np.take_along_axis(self.correct, found, axis=1) & (found >= 0)


class Served:
    """A gallery of some rows of a set, whose other model embeds natively.

    Args:
        data: The set.
        rows: (n,) rows that are items; ids are 0 to n - 1.
        folder: Place of the gallery.
        seed: Of its upgrades.
    """

    def __init__(self, data: EmbeddedSet, rows: Positions, folder: str, seed: int) -> None:
        self.data, self.rows, self.seed = data, rows, seed
        self.source, self.target = (unit(data.vectors[name][rows]) for name in (SOURCE, TARGET))
        native = cs.encoders.Precomputed(dict(enumerate(self.target)))
        dims = (self.source.shape[1], self.target.shape[1])
        self.v1 = cs.EmbeddingVersion("v1", dim=dims[0], metric="cosine", normalised=True)
        self.v2 = cs.EmbeddingVersion("v2", dim=dims[1], metric="cosine", normalised=True, encoder=native)
        self.gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), self.v1, id_type="int64")
        classes = np.unique(data.labels, return_inverse=True)[1][rows]
        self.gallery.add({"id": np.arange(len(rows)), "vector": self.source, "label": classes})
        self.gallery.register(self.v2)

    def link(self, trainer: Any, source: FloatArray, target: FloatArray) -> cs.Artifact:
        """Train a transform on pairs of vectors, and link it."""
        pairs = Pairs(source, target, source_version=self.v1, target_version=self.v2)
        artifact: cs.Artifact = trainer.fit(pairs)
        self.gallery.artifacts.link(artifact)
        return artifact

    def outside(self, rows: Positions) -> Outside:
        """Other rows of the set as queries: items of their class are correct."""
        source, target = (unit(self.data.vectors[name][rows]) for name in (SOURCE, TARGET))
        correct = self.data.labels[rows][:, None] == self.data.labels[self.rows]
        return Outside(source=source, target=target, correct=correct)

    def upgrade(self, share: float, **settings: Any) -> Any:
        """Upgrade to a native share."""
        backfill = cs.Backfill(share=share, seed=self.seed, order=settings.pop("order", None))
        return self.gallery.upgrade("v2", backfill=backfill, **settings)

    @property
    def native(self) -> BoolArray:
        """(n,) bool, items that are native in the target."""
        ids = self.gallery.scan(["id"], native=["v2"]).to_arrow()["id"].to_numpy()
        return np.isin(np.arange(len(self.rows)), ids)

    def search(self, queries: FloatArray | Mapping[str, FloatArray], k: int | None = None, **how: Any) -> Positions:
        """Ranked items of each query, (q, k), -1 for none."""
        k = k or len(self.rows)
        table = self.gallery.search(queries, k=k, columns=["id"], **how)
        asked, ids = table["_query"].to_numpy(), table["id"].to_numpy()
        counts = np.bincount(asked)
        found = np.full((len(counts), k), -1)
        found[asked, np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)] = ids
        return found


def split(data: EmbeddedSet, seed: int, items: int, queries: int) -> tuple[Positions, Positions]:
    """Rows that no model was trained on: queries, and items."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(data.fresh))
    asked, rows = np.split(rows, [min(queries, len(rows) // 4)])
    return asked, rows[:items]


def ranked(distances: FloatArray | Doubles) -> Positions:
    """Items from the nearest on: (q, n) distances -> (q, n)."""
    return np.argsort(distances, axis=1, kind="stable")
