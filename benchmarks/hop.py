"""The hop, end to end, beside a bare loop of the same matrix products.

Rows a second of both, of the hop in bfloat16 and by Ray, and of reading the source's vectors alone; ratios and peak
memory with their limits. A processor without instructions for bfloat16 misses the limit of that ratio. A derivation
cuts stored vectors off and scales them, in place of a hop.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np

import compatstore as cs
from benchmarks.bounds import bound
from benchmarks.measuring import ADDED_AT_ONCE, by_turns, filled, transform
from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from compatstore.artifacts.network import Precision

BATCH = 512
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
PAPER = {"source_branch": (256, 256), "mixer": (2048, 2048)}  # the paper's transform without side-information


def make(path: Path, rows: int, dim: int) -> cs.Gallery:
    """A gallery of random vectors, ready to hop."""
    gallery = filled(path, rows, dim)
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, metric="l2"))
    gallery.artifacts.link(transform(gallery, **PAPER))
    return gallery


def products(weights: list[np.ndarray], rows: int) -> None:
    """The bare matrix products for that many rows."""
    inputs = [np.ones((BATCH, weight.shape[1]), np.float32) for weight in weights]
    outputs = [np.empty((BATCH, weight.shape[0]), np.float32) for weight in weights]
    for _ in range(0, rows, BATCH):
        for x, weight, y in zip(inputs, weights, outputs, strict=True):
            np.matmul(x, weight.T, out=y)


def hop(gallery: cs.Gallery, target: str = "v2", **settings: Any) -> None:
    """Hop."""
    gallery.upgrade(target, run=cs.RunSettings(**settings))


def read(path: Path) -> None:
    """Read the vectors of the source, batch by batch."""
    for _ in lance.dataset(str(path)).to_batches(columns=["v1"]):
        pass


def derivation(path: Path, rows: int, dim: int, shorter: int) -> Row:
    """An upgrade to the first values scaled to unit length, beside one to the first values as they are."""
    encoder = cs.encoders.Function(lambda ids: np.eye(len(ids), dim, dtype=np.float32), dim, fingerprint="ones")
    gallery = filled(path, rows, dim, unit=True, encoder=encoder)
    gallery.register("cut", dim=shorter, normalised=False)
    gallery.register("short", dim=shorter)
    taken = by_turns({name: lambda _, name=name: hop(gallery, name) for name in ("cut", "short")}, [None])  # type: ignore[misc]
    what = "a derivation to shorter vectors / the same upgrade with nothing computed"
    return bound(what, float(taken["cut"][0] / taken["short"][0]), 0.90, least=True)


def run(
    *, rows: int = 60_000, dim: int = 128, repeats: int = 5, derived_rows: int = 1_000_000, ray: bool = False
) -> Iterator[Row]:
    """Hop a gallery again and again: in float32, in bfloat16 and by Ray; then derive shorter vectors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gallery.lance")
        gallery = make(path, rows, dim)
        weights = [one for name, one in transform(gallery, **PAPER).tensors.items() if name.endswith("weight")]
        hops: dict[str, dict[str, Any]] = {precision: {"precision": precision} for precision in PRECISIONS}
        hops |= {"by Ray": {"engine": "ray"}} if ray else {}
        ways = {"bare products": lambda _: products(weights, rows), "reading": lambda _: read(path)}
        for name, settings in hops.items():
            ways[name] = lambda _, settings=settings: hop(gallery, **settings)  # type: ignore[misc]
            ways[f"undo {name}"] = lambda _: gallery.retire("v2")
        median = {name: float(np.median(seconds)) for name, seconds in by_turns(ways, range(repeats)).items()}
        shape = {"items": rows, "fragments": -(-rows // ADDED_AT_ONCE)}
        for name in ("bare products", "reading", *hops):
            row = {"step": name, "rows_per_second": round(rows / median[name]), **shape}
            yield row | ({"seconds": round(median[name], 3)} if ray and name in ("float32", "by Ray") else {})
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        ratio = median["bare products"] / median["float32"]
        yield bound("hop / bare matrix products, float32", ratio, 0.90, least=True)
        yield bound("hop in bfloat16 / in float32", median["float32"] / median["bfloat16"], 2.5, least=True)
        yield bound("peak memory of the hop, torch included", peak, 2048, "MiB")
        yield derivation(Path(folder, "long.lance"), derived_rows, 6 * dim, 2 * dim)


def engines(record: Record) -> str:
    """A hop by Ray beside the local engine."""
    sizes: dict[tuple[int, int], list[float]] = {}
    for row in record.rows:
        if "seconds" in row:
            sizes.setdefault((row["items"], row["fragments"]), []).append(row["seconds"])
    cells = [(f"{n:,}", m, *both, f"{both[1] / both[0]:.2f}") for (n, m), both in sizes.items() if len(both) == 2]
    return markdown(("items", "fragments", "local engine, s", "by Ray, s", "ratio"), cells)


SMOKE = {"rows": 600, "repeats": 1, "derived_rows": 600}
TABLES = {"engines": engines}
