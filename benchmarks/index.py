"""Searches of both versions while a backfill runs and an app writes: their times, and recall@10 against exact search.

Sentence-like vectors in clusters; the target's are a non-linear function of the same items, and a ridge regression from
5 % of them transforms the rest. Every 5 % of the backfill, and before and after it, single searches are timed, with the
settings that the gallery has chosen; the 10 nearest are compared with those of an exact search.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from benchmarks.bounds import bound
from benchmarks.record import Row
from compatstore.arrays import FloatArray
from compatstore.trainers import Pairs, Ridge
from compatstore.upgrade.progress import Progress

NEAREST, CLUSTERS = 10, 200


def sources(rows: int, dim: int, seed: int) -> FloatArray:
    """Vectors of the source model: (rows, dim) float32."""
    rng, centres = np.random.default_rng(seed), np.random.default_rng(0).normal(size=(CLUSTERS, dim))
    return (centres[rng.integers(0, CLUSTERS, rows)] + 0.7 * rng.normal(size=(rows, dim))).astype(np.float32)


def targets(source: FloatArray) -> FloatArray:
    """Vectors of the target model of the same items: (n, dim) float32."""
    rng, dim = np.random.default_rng(1), source.shape[1]
    first, second = (rng.normal(size=(dim, dim)) / math.sqrt(dim) for _ in range(2))
    found: FloatArray = (4 * np.tanh(source @ first) @ second + 2 * np.sin(source)).astype(np.float32)
    return found


def make(path: str, dim: int, rows: int, kind: str) -> cs.Gallery:
    """A gallery that is ready to be upgraded, its source indexed."""
    v1, ids = cs.EmbeddingVersion("v1", dim=dim, metric="l2"), [f"item-{n}" for n in range(rows)]
    gallery, source = cs.Gallery.create(path, v1), sources(rows, dim, seed=2)
    target = targets(source)
    gallery.add({"id": ids, "vector": source})
    encoder = cs.encoders.Precomputed(dict(zip(ids, target, strict=True)))
    v2 = cs.EmbeddingVersion("v2", dim=dim, metric="l2", encoder=encoder)
    gallery.register(v2)
    some = slice(0, max(rows // 20, 2 * dim))
    gallery.artifacts.link(Ridge().fit(Pairs(source[some], target[some], source_version=v1, target_version=v2)))
    gallery.maintenance.index("v1").create(kind=kind)
    return gallery


def look(gallery: cs.Gallery, path: str, queries: Mapping[str, FloatArray], state: str) -> Row:
    """Times and recall of both versions, as far as they are there."""
    row: Row = {"state": state}
    for version, vectors in queries.items():
        if version not in {one.name for one in gallery.status().versions if one.state in ("active", "live")}:
            continue
        times, hits = [], 0
        for query in vectors:
            started = time.perf_counter()
            found = gallery.search(query, NEAREST, version, columns=["id"])["id"].to_pylist()
            times.append(1e3 * (time.perf_counter() - started))
            nearest = {"column": version, "q": query, "k": NEAREST, "metric": "l2", "use_index": False}
            exact = lance.dataset(path).to_table(columns=["id"], nearest=nearest)["id"].to_pylist()
            hits += len({*found} & {*exact})
        row |= {f"{version}_ms": round(float(np.median(times)), 1)}
        row |= {f"{version}_recall": hits / (NEAREST * len(vectors))}
    if "v2_ms" in row:
        row["unindexed"] = gallery.maintenance.index("v2").status().unindexed_rows
    return row


def run(
    *,
    rows: int = 20_000,
    dim: int = 64,
    kind: str = "IVF_PQ",
    steps: int = 20,
    queries: int = 40,
    writes: int = 20,
) -> Iterator[Row]:
    """Upgrade; an app adds `writes` items before each look."""
    with tempfile.TemporaryDirectory() as folder:
        path, asked = str(Path(folder, "gallery.lance")), sources(queries, dim, seed=3)
        gallery, by_version = make(path, dim, rows, kind), {"v1": asked, "v2": targets(asked)}
        app, found, shown = cs.Gallery.open(path), list[Row](), [-1]

        def write_and_look(state: str) -> None:
            ids = [f"late-{len(found)}-{row}" for row in range(writes)]
            app.add({"id": ids, "vector": sources(writes, dim, seed=1000 + len(found))})
            found.append(look(gallery, path, by_version, state))

        def progress(at: Progress) -> None:
            step = steps * at.done // max(at.total, 1)
            if at.step == "backfill" and step > shown[-1]:
                shown.append(step)
                write_and_look(f"backfill {step / steps:.0%}")

        write_and_look("before")
        settings = cs.RunSettings(batch_rows=max(rows // steps // 4, 1))
        gallery.upgrade("v2", backfill=cs.Backfill(share=1.0, write_mode="move_rows"), run=settings, progress=progress)
        write_and_look("ready")
        gallery.cutover("v2")
        write_and_look("after the cutover")
    yield from found
    for version in by_version:
        lowest = min(row[f"{version}_recall"] for row in found if f"{version}_recall" in row)
        what = f"recall@10 of {version}, the least at every step of a backfill"
        yield bound(what, lowest, 0.95, least=True, group="recall@10 during a backfill")


SMOKE = {"rows": 400, "dim": 16, "kind": "IVF_FLAT", "steps": 2, "queries": 3}
