"""The hop, end to end, beside a bare loop of the same matrix products.

Rows a second of both, of the hop in bfloat16 and of reading the source's vectors alone; ratios and peak memory with
their limits. A processor without instructions for bfloat16 has no limit of that ratio.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from benchmarks.bounds import bound, bounds_table
from benchmarks.record import Row
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.artifacts.network import Precision

BATCH = 512
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")


def network(dim: int) -> tuple[Architecture, dict[str, np.ndarray]]:
    """The paper's transformation without side-information, weights at random."""
    architecture = Architecture(source_dim=dim, output_dim=dim, source_branch=(256, 256), mixer=(2048, 2048))
    rng = np.random.default_rng(0)
    shapes = architecture.shapes()
    return architecture, {
        name: rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32) for name, shape in shapes.items()
    }


def bfloat16_speed() -> float:
    """Speed of a matrix product in bfloat16, as a multiple of float32's."""
    import torch

    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        left, right = torch.ones(512, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
        seconds[dtype] = min(timeit.repeat(lambda: left @ right, number=1, repeat=5))  # noqa: B023
    return seconds[torch.float32] / seconds[torch.bfloat16]


def products(tensors: dict[str, np.ndarray], dim: int, rows: int) -> float:
    """Seconds of the bare matrix products for that many rows."""
    weights = [tensor.T for name, tensor in tensors.items() if name.endswith("weight")]
    inputs = [np.random.default_rng(1).normal(size=(BATCH, w.shape[0])).astype(np.float32) for w in weights]
    outputs = [np.empty((BATCH, w.shape[1]), np.float32) for w in weights]
    started = time.perf_counter()
    for _ in range(rows // BATCH):
        for x, w, y in zip(inputs, weights, outputs, strict=True):
            np.matmul(x, w, out=y)
    return (time.perf_counter() - started) * rows / (rows // BATCH * BATCH)


def make(folder: Path, rows: int, dim: int) -> cs.Gallery:
    """A gallery of random vectors, ready to hop."""
    source, target = cs.EmbeddingVersion("v1", dim=dim), cs.EmbeddingVersion("v2", dim=dim)
    gallery = cs.Gallery.create(str(folder / "gallery.lance"), source)
    rng = np.random.default_rng(2)
    for start in range(0, rows, 50_000):
        size = min(50_000, rows - start)
        ids = [f"{start + i:09d}" for i in range(size)]
        gallery.add({"id": ids, "vector": rng.normal(size=(size, dim)).astype(np.float32)})
    gallery.register(target)
    architecture, tensors = network(dim)
    spaces = {"source": Space.of(source), "target": Space.of(target)}
    named = {f"h.{name}": tensor for name, tensor in tensors.items()}
    gallery.artifacts.link(Artifact.create("ForwardTransform", **spaces, networks={"h": architecture}, tensors=named))
    return gallery


def read(folder: Path) -> None:
    """Read the vectors of the source, batch by batch."""
    for _ in lance.dataset(str(folder / "gallery.lance")).to_batches(columns=["v1"]):
        pass


def timed(work: Callable[[], object]) -> float:
    """Seconds of the clock."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run(*, rows: int = 60_000, dim: int = 128, repeats: int = 5) -> Iterator[Row]:
    """Hop a gallery again and again, in float32 and in bfloat16."""
    seconds: dict[str, list[float]] = {"bare products": [], "float32": [], "bfloat16": [], "reading": []}
    tensors = network(dim)[1]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        gallery = make(folder, rows, dim)
        for _ in range(repeats):
            seconds["bare products"].append(products(tensors, dim, rows))
            seconds["reading"].append(timed(lambda: read(folder)))
            for precision in PRECISIONS:
                settings = cs.RunSettings(precision=precision)
                seconds[precision].append(timed(lambda: gallery.upgrade("v2", run=settings)))  # noqa: B023
                gallery.retire("v2")
    median = {name: statistics.median(each) for name, each in seconds.items()}
    for name, each in median.items():
        yield {"step": name, "rows_per_second": round(rows / each)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ratio = median["bare products"] / median["float32"]
    yield bound("hop / bare matrix products, float32", ratio, 0.90, least=True)
    if bfloat16_speed() > 1:
        yield bound("hop in bfloat16 / in float32", median["float32"] / median["bfloat16"], 2.5, least=True)
    yield bound("peak memory of the hop, torch included", peak, 2048, "MiB")


SMOKE = {"rows": 600, "repeats": 1}
TABLES = {"bounds": lambda record: bounds_table(record.rows)}
