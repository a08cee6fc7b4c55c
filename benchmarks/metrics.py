"""CMC and mAP of every item against all others: time and memory beside a bare matrix product of the same size.

    python benchmarks/metrics.py [--n 50000] [--dim 128] [--classes 1000]

Exits with status 1 when a limit for 50,000 items on 2 cores is missed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from compatstore.evaluation import RetrievalMetrics, retrieval_metrics

SECONDS_LIMIT = 90.0
GIB_LIMIT = 2.0


def clustered(n: int, dim: int, classes: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Make (n, dim) float32 vectors around class centres, and their labels, (n,) int64."""
    random = np.random.default_rng(0)
    labels = random.integers(0, classes, n)
    vectors = random.standard_normal((classes, dim))[labels] + 2 * random.standard_normal((n, dim))
    return vectors.astype(np.float32), labels


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def bare_product(vectors: npt.NDArray[np.float32], block: int = 320) -> None:
    """Multiply all vectors with all, in double precision and in blocks, and do nothing with the products."""
    doubles = vectors.astype(np.float64)
    products = np.empty((block, len(doubles)))
    for start in range(0, len(doubles), block):
        rows = doubles[start : start + block]
        np.matmul(rows, doubles.T, out=products[: len(rows)])


def peak_gib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**30 if sys.platform == "darwin" else peak / 2**20


def measure(n: int, dim: int, classes: int) -> tuple[RetrievalMetrics, float, float, float]:
    """Return the metrics, their seconds, the peak GiB so far and the seconds of the bare product."""
    vectors, labels = clustered(n, dim, classes)
    ids, results = np.arange(n), []
    seconds = timed(lambda: results.append(retrieval_metrics(vectors, vectors, labels, labels, ids, ids)))
    gib = peak_gib()  # before the product below adds its own
    return results[0], seconds, gib, timed(lambda: bare_product(vectors))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--classes", type=int, default=1_000)
    options = parser.parse_args()
    found, seconds, gib, bare = measure(options.n, options.dim, options.classes)
    print(f"{options.n:,} x {options.n:,} x {options.dim}, {options.classes:,} classes, each item without itself")
    print(f"CMC-1 {found.cmc[1]:.4f}  CMC-5 {found.cmc[5]:.4f}  mAP {found.map:.4f}  ties {found.num_ties}")
    print(f"{'':24}{'figure':>10}{'limit':>10}{'share':>8}")
    print(f"{'seconds':24}{seconds:10.1f}{SECONDS_LIMIT:10.1f}{seconds / SECONDS_LIMIT:8.2f}")
    print(f"{'peak memory, GiB':24}{gib:10.2f}{GIB_LIMIT:10.2f}{gib / GIB_LIMIT:8.2f}")
    print(f"{'bare product, seconds':24}{bare:10.1f}   so the metrics take {seconds / bare:.1f} times as long")
    sys.exit(seconds > SECONDS_LIMIT or gib > GIB_LIMIT)


if __name__ == "__main__":
    main()
