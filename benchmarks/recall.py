"""What searches find in an index by Lance's own settings and by those that were measured, and what a batch costs.

    python -m benchmarks.recall [--rows 20000] [--dim 64] [--queries 100] [--cells 64]

Vectors lie in 200 clusters; queries are near items, and not among them. The first table has for each kind of index the
share of the 10 nearest items that is found, and the median time of a query. The second compares all queries in one call
with one call for each, in turns, without an index and with one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import compatstore as cs
from compatstore.storage.indexes import KINDS

K, CLUSTERS, REPEATS = 10, 200, 5


def seconds(call: Callable[[], object]) -> float:
    """Median seconds of a few calls."""
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def ids_of(gallery: cs.Gallery, queries: np.ndarray, settings: cs.SearchSettings | None) -> np.ndarray:
    """(q, k) ids."""
    found = gallery.search(queries, K, columns=["id"], settings=settings)["id"]
    return np.asarray(found.to_numpy(zero_copy_only=False)).reshape(len(queries), -1)


def recall(found: np.ndarray, exact: np.ndarray) -> float:
    """Share of the exact neighbours that were found."""
    hits = [len(set(mine) & set(truth)) for mine, truth in zip(found, exact, strict=True)]
    return float(np.mean(hits)) / exact.shape[1]


def batch(gallery: cs.Gallery, queries: np.ndarray, name: str) -> str:
    """One row of the second table."""
    together = seconds(lambda: gallery.search(queries, K, columns=["id"]))
    alone = seconds(lambda: [gallery.search(query, K, columns=["id"]) for query in queries])
    return f"| {name} | {together * 1e3:.1f} | {alone * 1e3:.1f} | {alone / together:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--cells", type=int, default=64)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLUSTERS, arguments.dim))
    places = rng.integers(0, CLUSTERS, arguments.rows + arguments.queries)
    drawn = (centres[places] + 0.6 * rng.normal(size=(len(places), arguments.dim))).astype(np.float32)
    vectors, queries = drawn[: arguments.rows], drawn[arguments.rows :]
    with tempfile.TemporaryDirectory() as folder:
        version = cs.EmbeddingVersion("v1", dim=arguments.dim, metric="l2")
        gallery = cs.Gallery.create(str(Path(folder, "gallery.lance")), version)
        gallery.add({"id": [str(row) for row in range(len(vectors))], "vector": vectors})
        exact, batches = ids_of(gallery, queries, None), [batch(gallery, queries, "without an index")]
        print("| index | Lance's own recall | ms | chosen | recall | ms |\n|---|---:|---:|---|---:|---:|")
        for kind in KINDS:
            gallery.maintenance.index().create(kind=kind, num_partitions=arguments.cells)
            chosen = gallery.explain().parts[0].settings
            cells = [f"| {kind}"]
            for settings in (cs.SearchSettings(), chosen):
                found = recall(ids_of(gallery, queries, settings), exact)
                each = seconds(lambda: ids_of(gallery, queries, settings)) / len(queries)  # noqa: B023
                cells += [f"{chosen}"] * (settings is chosen) + [f"{found:.3f}", f"{each * 1e3:.2f}"]
            print(" | ".join(cells) + " |", flush=True)
        print(f"\n| {len(queries)} queries | one call, ms | a call each, ms | ratio |\n|---|---:|---:|---:|")
        print("\n".join([*batches, batch(gallery, queries, f"with {KINDS[-1]}")]))


if __name__ == "__main__":
    main()
