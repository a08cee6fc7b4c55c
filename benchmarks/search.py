"""One-part search through compatstore beside the very same Lance search.

    python benchmarks/search.py [--rows 200000] [--dim 128] [--queries 300]

The two take turns, query by query; prints the medians, their ratio and its bound, with an index and without one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np

import compatstore as cs

BOUND = 1.1
COLUMNS = ["id", "source"]


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def compare(gallery: cs.Gallery, path: Path, queries: np.ndarray, name: str) -> None:
    """Print one row of the table."""
    table = lance.dataset(str(path))
    wanted = [*COLUMNS, "_distance", "v1__origin"]
    ours, plain = [], []
    for query in queries:
        nearest = {"column": "v1", "q": query, "k": 10, "metric": "l2"}
        plain.append(seconds(lambda: table.to_table(columns=wanted, nearest=nearest)))  # noqa: B023
        ours.append(seconds(lambda: gallery.search(query, k=10, columns=COLUMNS)))  # noqa: B023
    ratio = statistics.median(ours) / statistics.median(plain)
    print(
        f"{name}: Lance {statistics.median(plain) * 1e3:.2f} ms, compatstore {statistics.median(ours) * 1e3:.2f} ms, "
        f"ratio {ratio:.2f}, bound <= {BOUND}, share {ratio / BOUND:.2f}"
    )


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
        for start in range(0, arguments.rows, 50_000):
            size = min(50_000, arguments.rows - start)
            vectors = rng.normal(size=(size, arguments.dim)).astype(np.float32)
            gallery.add({"id": [str(start + i) for i in range(size)], "vector": vectors})
        queries = rng.normal(size=(arguments.queries, arguments.dim)).astype(np.float32)
        compare(gallery, path, queries[:50], "no index")
        gallery.create_index(kind="IVF_PQ", num_partitions=256, num_sub_vectors=16)
        compare(gallery, path, queries, "IVF_PQ")


if __name__ == "__main__":
    main()
