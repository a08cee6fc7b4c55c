"""Searches through compatstore beside the very same search of one Lance column.

    python benchmarks/search.py [--rows 200000] [--dim 128] [--queries 300]

The two take turns, query by query; prints the medians, their ratio and its bound, with an index and without one. First
of one version, in one part; then of a compatible model's version that half of the items are native in, the others being
searched in the source's column: two parts, merged.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from compatstore.artifacts import Artifact, Space

BOUND = 1.1
BOUND_OF_TWO = 2.2
COLUMNS = ["id", "source"]


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def compare(gallery: cs.Gallery, path: Path, queries: np.ndarray, name: str, version: str, bound: float) -> None:
    """Print one row of the table."""
    table = lance.dataset(str(path))
    wanted = [*COLUMNS, "_distance", "v1__origin"]
    ours, plain = [], []
    for query in queries:
        nearest = {"column": "v1", "q": query, "k": 10, "metric": "l2"}
        plain.append(seconds(lambda: table.to_table(columns=wanted, nearest=nearest)))  # noqa: B023
        ours.append(seconds(lambda: gallery.search(query, k=10, version=version, columns=COLUMNS)))  # noqa: B023
    ratio = statistics.median(ours) / statistics.median(plain)
    print(
        f"{name}: Lance {statistics.median(plain) * 1e3:.2f} ms, compatstore {statistics.median(ours) * 1e3:.2f} ms, "
        f"ratio {ratio:.2f}, bound <= {bound}, share {ratio / bound:.2f}",
        flush=True,
    )


def fill(gallery: cs.Gallery, rows: int, dim: int, rng: np.random.Generator) -> None:
    """Add random items, in four fragments or more."""
    for start in range(0, rows, 50_000):
        size = min(50_000, rows - start)
        vectors = rng.normal(size=(size, dim)).astype(np.float32)
        gallery.add({"id": [str(start + i) for i in range(size)], "vector": vectors, "source": ["-"] * size})


def half_native(gallery: cs.Gallery, dim: int, rng: np.random.Generator) -> None:
    """Begin an upgrade to a compatible model, and embed half of the items natively."""

    def encode(sources: Sequence[str]) -> np.ndarray:
        return rng.normal(size=(len(sources), dim)).astype(np.float32)

    encoder = cs.encoders.Function(encode, dim, fingerprint="random")
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, metric="l2", encoder=encoder))
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    gallery.link(Artifact.create("Identity", **spaces))
    gallery.upgrade("v2", backfill=0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, default=300)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gallery.lance")
        gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=arguments.dim, metric="l2"))
        fill(gallery, arguments.rows, arguments.dim, rng)
        queries = rng.normal(size=(arguments.queries, arguments.dim)).astype(np.float32)
        index = {"kind": "IVF_PQ", "num_partitions": 256, "num_sub_vectors": 16}
        compare(gallery, path, queries[:50], "one part, no index", "v1", BOUND)
        half_native(gallery, arguments.dim, rng)
        compare(gallery, path, queries[:50], "two parts, no index", "v2", BOUND_OF_TWO)
        gallery.create_index(**index)
        compare(gallery, path, queries, "one part, IVF_PQ", "v1", BOUND)
        gallery.create_index(version="v2", **index)
        compare(gallery, path, queries, "two parts, IVF_PQ", "v2", BOUND_OF_TWO)


if __name__ == "__main__":
    main()
