"""Latency and recall of searches while a backfill runs, beside a process that writes, for both versions of an upgrade.

    python benchmarks/index_upgrade.py [--rows 20000] [--dim 64] [--kind IVF_PQ] [--share 1.0] [--steps 20]
    python benchmarks/index_upgrade.py --builds 20000 80000 [--dim 64]

Sentence-like vectors in clusters; the target's are a non-linear function of the same items, and a ridge regression from
5 % of them transforms the rest. Every 5 % of the backfill, and before and after it, single searches are timed while the
writer goes on adding items, and the 10 nearest are compared with those of an exact search of the same table version.
Searches use the settings that the gallery has chosen. The second form prints what builds cost in processor seconds.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import compatstore as cs
from compatstore.arrays import FloatArray
from compatstore.search.execute import execute
from compatstore.search.plan import SearchPlan
from compatstore.search.serving import plan_serving
from compatstore.storage import indexes
from compatstore.storage.vector_form import to_matrix
from compatstore.trainers import Pairs, Ridge
from compatstore.upgrade.progress import Progress

NEAREST = 10
BOUND = 0.95
HEADINGS = ("state", "v1 ms", "v1 recall", "v2 ms", "v2 recall", "v2 not indexed", "v2 deltas", "v2 settings", "rows")


@dataclass(frozen=True, eq=False)
class World:
    """Items, as both models see them.

    Args:
        dim: Values of a vector.
        clusters: Number of clusters.
    """

    dim: int
    clusters: int

    def source(self, rows: int, seed: int) -> FloatArray:
        """Vectors of the source model: (rows, dim) float32."""
        rng = np.random.default_rng(seed)
        centres = np.random.default_rng(0).normal(size=(self.clusters, self.dim))
        return (centres[rng.integers(0, self.clusters, rows)] + 0.7 * rng.normal(size=(rows, self.dim))).astype(
            np.float32
        )

    def target(self, source: FloatArray) -> FloatArray:
        """Vectors of the target model of the same items: (n, dim) float32."""
        rng = np.random.default_rng(1)
        first, second = (rng.normal(size=(self.dim, self.dim)) / math.sqrt(self.dim) for _ in range(2))
        found: FloatArray = (4 * np.tanh(source @ first) @ second + 2 * np.sin(source)).astype(np.float32)
        return found


@dataclass(eq=False)
class Writer:
    """Adds items to a gallery, again and again, until the block ends.

    Args:
        path: The gallery.
        world: Where the items come from.
        rows: Items a commit.
        pause: Seconds between two commits.
    """

    path: str
    world: World
    rows: int
    pause: float
    added: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Writer:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        gallery = cs.Gallery.open(self.path)
        while not self._over.wait(self.pause):
            source = self.world.source(self.rows, seed=1000 + self.added)
            gallery.add({"id": [f"late-{self.added + row}" for row in range(self.rows)], "vector": source})
            self.added += self.rows


@dataclass(eq=False)
class Meter:
    """Measures searches of both versions.

    Args:
        gallery: Where.
        queries: (q, dim) float32 for each version.
    """

    gallery: cs.Gallery
    queries: dict[str, FloatArray]
    lowest: dict[str, float] = field(default_factory=dict)

    def row(self, state: str, rows: int) -> str:
        """One row of the table."""
        cells = [state]
        for version in self.queries:
            if self.gallery._catalog.recorded().record(version).columns is None:
                cells += ["", ""]
                continue
            recall = self._recall(version)
            self.lowest[version] = min(recall, self.lowest.get(version, 1.0))
            cells += [f"{self._milliseconds(version):.1f}", f"{recall:.3f}"]
        target = self.gallery.maintenance.index("v2").status() if cells[-1] else None
        cells += ["", "", ""] if target is None else [str(target.unindexed_rows), str(target.deltas), ""]
        if target is not None and target.settings is not None:
            cells[-1] = str(target.settings)
        return "| " + " | ".join([*cells, str(rows)]) + " |"

    def _milliseconds(self, version: str) -> float:
        """The median of single searches."""
        times = []
        for query in self.queries[version]:
            started = time.perf_counter()
            self.gallery.search(query, k=NEAREST, version=version, columns=["id"])
            times.append(time.perf_counter() - started)
        return 1e3 * float(np.median(times))

    def _recall(self, version: str) -> float:
        """Share of the nearest by exact distances that a search of the same table version finds."""
        catalog, queries = self.gallery._catalog, self.queries[version]
        snapshot = catalog.store.snapshot()
        registry = catalog.registry(snapshot)
        plan = plan_serving(catalog, registry, queries, NEAREST, version, None, None)
        assert isinstance(plan, SearchPlan)
        found = execute(catalog, snapshot, plan, {version: queries}, ["id"])["id"].to_pylist()
        columns = registry.columns(version)
        table = snapshot.to_table(columns=["id", columns.vector], filter=columns.present)
        matrix, _ = to_matrix(table[columns.vector], columns.width)
        ids, hits = np.array(table["id"].to_pylist(), object), 0
        for number, query in enumerate(queries):
            near = np.argpartition(((matrix - query) ** 2).sum(axis=1), NEAREST)[:NEAREST]
            hits += len(set(ids[near]) & set(found[number * NEAREST : (number + 1) * NEAREST]))
        return hits / (NEAREST * len(queries))


def make(path: str, world: World, rows: int) -> cs.Gallery:
    """A gallery that is ready to be upgraded."""
    v1 = cs.EmbeddingVersion("v1", dim=world.dim, metric="l2")
    gallery = cs.Gallery.create(path, v1)
    source, ids = world.source(rows, seed=2), [f"item-{row}" for row in range(rows)]
    target = world.target(source)
    gallery.add({"id": ids, "vector": source})
    encoder = cs.encoders.Precomputed(dict(zip(ids, target, strict=True)))
    v2 = cs.EmbeddingVersion("v2", dim=world.dim, metric="l2", encoder=encoder)
    gallery.register(v2)
    some = slice(0, max(rows // 20, 2 * world.dim))
    gallery.artifacts.link(Ridge().fit(Pairs(source[some], target[some], source_version=v1, target_version=v2)))
    return gallery


def watch(arguments: argparse.Namespace) -> bool:
    """Print the table of an upgrade; whether every recall was high enough."""
    world = World(arguments.dim, clusters=200)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "gallery.lance"))
        gallery = make(path, world, arguments.rows)
        source = world.source(arguments.queries, seed=3)
        meter = Meter(gallery, {"v1": source, "v2": world.target(source)})
        gallery.maintenance.index("v1").create(kind=arguments.kind)
        print("| " + " | ".join(HEADINGS) + " |\n" + "|---" * len(HEADINGS) + "|")
        shown = -1

        def look(at: Progress) -> None:
            nonlocal shown
            step = arguments.steps * at.done // max(at.total, 1)
            if at.step == "backfill" and step > shown:
                shown = step
                print(meter.row(f"backfill {step / arguments.steps:.0%}", len(gallery)), flush=True)

        with Writer(path, world, arguments.writes, arguments.pause):
            print(meter.row("before", len(gallery)), flush=True)
            run = cs.RunSettings(batch_rows=max(arguments.rows // arguments.steps // 4, 1))
            backfill = cs.Backfill(share=arguments.share, write_mode="move_rows")
            gallery.upgrade("v2", backfill=backfill, run=run, progress=look)
            print(meter.row("ready", len(gallery)), flush=True)
            gallery.cutover("v2")
            print(meter.row("after the cutover", len(gallery)), flush=True)
        note = next(entry.note for entry in gallery.maintenance.history() if entry.step == "ready")
        print(f"\nat ready: {note or 'nothing to do'}")
        for version, lowest in meter.lowest.items():
            print(f"lowest recall@{NEAREST} of {version}: {lowest:.3f} (bound {BOUND})")
        return min(meter.lowest.values()) >= BOUND


def build_costs(sizes: list[int], dim: int, kind: str) -> None:
    """Print processor seconds of builds with the cells that are chosen by default, and how they grow."""
    world, costs = World(dim, clusters=200), []
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            gallery = cs.Gallery.create(str(Path(folder, "g.lance")), cs.EmbeddingVersion("v1", dim=dim, metric="l2"))
            gallery.add({"id": [str(row) for row in range(rows)], "vector": world.source(rows, seed=2)})
            parts = indexes.sub_vectors(dim, dim // 8) if kind.endswith("PQ") else None
            index = indexes.VectorIndex(kind, "l2", indexes.cells_for(rows, quantised=parts is not None), parts)
            started = time.process_time()
            indexes.build(gallery._catalog.store, "v1", index)
            costs.append(time.process_time() - started)
            print(f"{kind} of {rows} x {dim}, {index.num_partitions} cells: {costs[-1]:.1f} processor seconds")
    if len(sizes) > 1:
        exponent = math.log(costs[-1] / costs[0]) / math.log(sizes[-1] / sizes[0])
        print(f"cost grows with the power {exponent:.2f} of the rows (bound 1.5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--kind", default="IVF_PQ", choices=indexes.KINDS)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--writes", type=int, default=20, help="items that the writer adds at once")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two of its writes")
    parser.add_argument("--builds", type=int, nargs="+", default=[])
    arguments = parser.parse_args()
    if arguments.builds:
        build_costs(arguments.builds, arguments.dim, arguments.kind)
    elif not watch(arguments):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
