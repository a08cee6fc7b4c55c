"""Searches through compatstore beside the very same search of one Lance column, batch by batch by turns.

Of one version, in one part; of a compatible model's version that half of the items are native in: two parts, merged;
and fused search over both versions of an upgrade, of a target that turns the source's space, and of one that is
unrelated to it. Both sides use the same settings of the index: Lance's own, and for fused search those that were
measured when it was built. Vectors are random, which has no cells: nearly all of them are compared. Recall during a
backfill, and CMC and mAP of all items, were measured once, by commands of the commits that these rows name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from benchmarks.bounds import bound
from benchmarks.measuring import by_turns, filled
from benchmarks.record import Row
from compatstore.artifacts import Space
from compatstore.trainers import Pairs, Procrustes

COLUMNS, K = ["id", "source"], 10
AT_ONCE = 256  # queries of one call of Lance
BATCHES_AT_LEAST = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One kind of search.

    Args:
        name: Its name.
        ours: Searches a batch through compatstore: (q, dim) queries.
        limit: Of the ratio to Lance's search.
        column: Column that Lance's search reads.
        settings: How Lance's search uses an index.
    """

    name: str
    ours: Callable[[np.ndarray], object]
    limit: float
    column: str = "v1"
    settings: cs.SearchSettings = field(default_factory=cs.SearchSettings)

    def rows(self, path: Path, queries: np.ndarray, batches: Sequence[int], items: int) -> Iterator[Row]:
        """A row for each size of a batch."""
        table = lance.dataset(str(path))
        for size in batches:
            places = [
                np.arange(n * size, (n + 1) * size) for n in range(-1, max(len(queries) // size, BATCHES_AT_LEAST))
            ]
            ways = {"lance": lambda each: self.alone(table, each), "ours": self.ours}
            taken = by_turns(ways, (np.take(queries, place, axis=0, mode="wrap") for place in places))
            (lance_ms, _), (ours_ms, p99) = (1e3 * np.quantile(taken[side][1:], (0.5, 0.99)) for side in ways)
            row = {"items": items, "search": self.name, "queries": size}
            row |= {"lance_ms": round(lance_ms, 2), "ours_ms": round(ours_ms, 2), "ours_p99_ms": round(p99, 2)}
            what = f"{self.name}, {items:,} items, {size} queries"
            yield bound(what, ours_ms / lance_ms, self.limit, group=f"{self.name.rpartition(', ')[0]} / Lance", **row)

    def alone(self, table: lance.LanceDataset, queries: np.ndarray) -> None:
        """The same search by Lance alone."""
        for start in range(0, len(queries), AT_ONCE):
            block = queries[start : start + AT_ONCE]
            query = block[0] if len(block) == 1 else block
            nearest = {"column": self.column, "q": query, "k": K, "metric": "l2", **self.settings.options}
            table.to_table(columns=[*COLUMNS, "_distance", f"{self.column}__origin"], nearest=nearest)


def make(path: Path, rows: int, dim: int) -> cs.Gallery:
    """A gallery of random items, its target registered."""
    gallery, rng = filled(path, rows, dim), np.random.default_rng(4)
    encoder = cs.encoders.Function(
        lambda sources: rng.normal(size=(len(sources), dim)).astype(np.float32), dim, fingerprint="random"
    )
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, metric="l2", encoder=encoder))
    return gallery


def parts(gallery: cs.Gallery, dim: int, index: Row) -> Iterator[Case]:
    """Searches of one version, and of two."""
    own = cs.SearchSettings()  # Lance's

    def search(version: str) -> Callable[[np.ndarray], object]:
        return lambda queries: gallery.search(queries, K, version, columns=COLUMNS, settings=own)

    yield Case(name="one part, no index", ours=search("v1"), limit=1.1)
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    gallery.artifacts.link(cs.Artifact.create("Identity", **spaces))
    gallery.upgrade("v2", backfill=0.5)
    yield Case(name="two parts, no index", ours=search("v2"), limit=2.2)
    for version in ("v1", "v2"):
        gallery.maintenance.index(version).create(**index)
    yield Case(name="one part, IVF_PQ", ours=search("v1"), limit=1.1)
    yield Case(name="two parts, IVF_PQ", ours=search("v2"), limit=2.2)


def fused(gallery: cs.Gallery, dim: int, index: Row) -> Iterator[Case]:
    """Searches by both versions; and by a target that knows nothing of what the source finds near."""
    rng = np.random.default_rng(1)
    source = rng.normal(size=(4 * dim, dim)).astype(np.float32)
    rotation = np.linalg.qr(rng.normal(size=(dim, dim)))[0].astype(np.float32)
    pairs = Pairs(source, source @ rotation, source_version=gallery.version("v1"), target_version=gallery.version("v2"))
    gallery.artifacts.link(Procrustes().fit(pairs))
    gallery.upgrade("v2")
    gallery.evaluate("v2", weight=0.5, sample=100)  # serves both

    def search(turn: np.ndarray) -> Callable[[np.ndarray], object]:
        return lambda queries: gallery.search({"v1": queries, "v2": queries @ turn}, K, columns=COLUMNS)

    yield Case(name="fused, no index", ours=search(rotation), limit=2.5, column="v2")
    alone = np.eye(dim, dtype=np.float32)
    yield Case(name="fused, unrelated models, no index", ours=search(alone), limit=3.5, column="v2")
    for version in ("v1", "v2"):
        gallery.maintenance.index(version).create(**index)
    chosen = gallery.explain(version="v2").parts[0].settings
    yield Case(name="fused, IVF_PQ", ours=search(rotation), limit=2.5, column="v2", settings=chosen)


def run(
    *,
    rows: tuple[int, ...] = (200_000, 1_000_000),
    dim: int = 128,
    queries: int = 300,
    batches: tuple[int, ...] = (1, 32, 256),
    cells: int = 256,
) -> Iterator[Row]:
    """All kinds of search at each size."""
    vectors = np.random.default_rng(2).normal(size=(max(queries, *batches), dim)).astype(np.float32)
    index = {"kind": "IVF_PQ", "num_partitions": cells, "num_sub_vectors": 16}
    for count in rows:
        for kinds in (parts, fused):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, "gallery.lance")
                for case in kinds(make(path, count, dim), dim, index):
                    yield from case.rows(path, vectors, batches, count)


SMOKE = {"rows": (600,), "dim": 32, "queries": 2, "batches": (1, 2), "cells": 2}
