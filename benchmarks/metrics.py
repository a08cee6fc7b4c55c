"""CMC and mAP of every item against all others: time and memory, beside a bare matrix product of the same size."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.bounds import bound
from benchmarks.record import Row
from compatstore.evaluation import retrieval_metrics

BLOCK = 320  # rows of a product


def run(*, n: int = 50_000, dim: int = 128, classes: int = 1_000) -> Iterator[Row]:
    """Rank items around class centres, each without itself; then multiply all vectors with all, in double precision."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, n)
    vectors = (rng.standard_normal((classes, dim))[labels] + 2 * rng.standard_normal((n, dim))).astype(np.float32)
    started = time.perf_counter()
    retrieval_metrics(vectors, vectors, labels, labels, np.arange(n), np.arange(n))
    seconds, gib = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    doubles, started = vectors.astype(np.float64), time.perf_counter()
    for start in range(0, n, BLOCK):
        doubles[start : start + BLOCK] @ doubles.T
    yield {"bare_product_s": round(time.perf_counter() - started, 2)}
    yield bound(f"CMC and mAP, {n:,} x {n:,} x {dim}", seconds, 90, "s")
    yield bound("peak memory of CMC and mAP", gib, 2, "GiB")


SMOKE = {"n": 300, "classes": 10}
