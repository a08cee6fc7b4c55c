"""Latency of a version in memory beside FAISS alone, on the same graph with the same settings, by turns in one thread.

Rows lie around 2,000 centres. The cache is measured as it was built, and once more with one item in a hundred deleted
and 1,000 items added that wait for `sync`. Run with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bounds import bound
from benchmarks.measuring import by_turns, filled, near
from benchmarks.record import Row

K, CENTRES = 10, 2000


def rows_of(cache: Any, state: str, items: int, queries: Any, batches: Sequence[int], repeats: int) -> Iterator[Row]:
    """A row for each call and size of a batch; `nearest` of a fresh cache has a limit."""
    import faiss

    cache.nearest(queries[:1])  # follows the table
    graph, settings = cache._state.held[0].graph._index, faiss.SearchParametersHNSW(efSearch=cache.ef_search)
    for size in batches:
        fresh = itertools.cycle(queries[: len(queries) // size * size].reshape(-1, size, queries.shape[1]))
        # Each call has queries of its own: the one before it would have them in the processor's cache.
        calls: dict[str, Callable[[Any], object]] = {
            "FAISS alone": lambda _: graph.search(next(fresh), K, params=settings),  # noqa: B023
            "nearest": lambda _: cache.nearest(next(fresh), K),  # noqa: B023
            "search, ids": lambda _: cache.search(next(fresh), K, columns=["id"]),  # noqa: B023
        }
        times = max(repeats // size, 10)
        taken = by_turns(calls, range(times + times // 10))
        p50 = {name: 1e3 * float(np.median(seconds[times // 10 :])) for name, seconds in taken.items()}
        for name, each in p50.items():
            row = {"items": items, "cache": state, "queries": size, "call": name, "p50_ms": round(each, 3)}
            ratio = each / p50["FAISS alone"]
            if name == "nearest" and state == "as built":
                what = f"cache / FAISS alone, {items:,} items, {size} queries"
                yield bound(what, ratio, 1.2, group="cache / FAISS alone", **row)
            else:
                yield row | {"figure": round(ratio, 4)}


def run(
    *,
    rows: tuple[int, ...] = (200_000, 1_000_000),
    dim: int = 128,
    batches: tuple[int, ...] = (1, 32, 256),
    repeats: int = 2000,
) -> Iterator[Row]:
    """As built and after writes, at each size."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CENTRES, dim), np.float32)
    for count in rows:
        with tempfile.TemporaryDirectory() as folder:
            gallery = filled(Path(folder, "gallery.lance"), count, dim, centres=centres)
            cache = gallery.cache()
            yield from rows_of(cache, "as built", count, near(rng, centres, 20_000), batches, repeats)
            gallery.delete([f"{number:09d}" for number in range(0, count, 100)])
            gallery.add({"id": [f"new-{n}" for n in range(1000)], "vector": near(rng, centres, 1000)})
            yield from rows_of(cache, "after writes", count, near(rng, centres, 20_000), batches, repeats // 4)


SMOKE = {"rows": (600,), "dim": 8, "batches": (1, 4), "repeats": 10}
