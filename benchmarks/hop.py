"""The hop, end to end, beside the machine's own limit: a bare loop of the same matrix products.

    python benchmarks/hop.py [--rows 100000] [--dim 128] [--repeats 3]

Prints rows per second of both, of the hop in bfloat16, of the clock and of the processor's seconds, the
ratios and their bounds, the peak memory, and the bytes that the hop wrote; and how much of each hop it takes to read
the source's vectors, which is all that one pass for two targets would save of the second hop. Run it with two sizes to
see that memory does not grow with the gallery.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.artifacts.network import Precision

BOUND = 0.90
BFLOAT16_BOUND = 2.5
MEMORY_BOUND = 2 << 30
BATCH = 512
FASTER: tuple[Precision, ...] = ("bfloat16",)


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


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def read(folder: Path) -> None:
    """Read the vectors of the source, batch by batch."""
    for _ in lance.dataset(str(folder / "gallery.lance")).to_batches(columns=["v1"]):
        pass


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    ratios, gains, processor = [], {name: list[float]() for name in FASTER}, {name: list[float]() for name in FASTER}
    reading = {name: list[float]() for name in ("float32", *FASTER)}
    try:
        gallery = make(folder, arguments.rows, arguments.dim)
        before = size_of(folder)
        tensors = network(arguments.dim)[1]
        for repeat in range(arguments.repeats):
            bare = products(tensors, arguments.dim, arguments.rows)
            hop, cpu = timed(lambda: gallery.upgrade("v2"))
            if repeat == 0:
                written = (size_of(folder) - before) / arguments.rows
                print(f"bytes written per row: {written:.0f}, the vector's own: {4 * arguments.dim}")
            ratios.append(bare / hop)
            read_once, _ = timed(lambda: read(folder))
            reading["float32"].append(read_once / hop)
            gallery.retire("v2")
            found = [f"bare products {arguments.rows / bare:,.0f} rows/s, hop {arguments.rows / hop:,.0f}"]
            for name in FASTER:
                run = cs.RunSettings(precision=name)
                taken, cpu_taken = timed(lambda: gallery.upgrade("v2", run=run))  # noqa: B023
                gains[name].append(hop / taken)
                reading[name].append(read_once / taken)
                processor[name].append(cpu / cpu_taken)
                gallery.retire("v2")
                found.append(f"in {name} {arguments.rows / taken:,.0f}")
            print(", ".join(found))
    finally:
        shutil.rmtree(folder)
    ratio = statistics.median(ratios)
    gain = statistics.median(gains["bfloat16"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"hop / bare products: {ratio:.2f} (median of {len(ratios)}), bound >= {BOUND}, share {ratio / BOUND:.2f}")
    products_gain = bfloat16_speed()
    if products_gain < 1:
        print(f"bfloat16 / float32: {gain:.2f}, of bare products {products_gain:.2f}: no bound on this processor")
    else:
        print(f"bfloat16 / float32: {gain:.2f}, bound >= {BFLOAT16_BOUND}, share {gain / BFLOAT16_BOUND:.2f}")
    for name in FASTER:
        clock, share = statistics.median(gains[name]), statistics.median(processor[name])
        print(f"{name} / float32: {clock:.2f} of the clock, {share:.2f} of the processor's seconds")
    shares = ", ".join(f"{statistics.median(share):.3f} in {name}" for name, share in reading.items())
    print(f"reading the source's vectors / hop: {shares}")
    print(f"peak memory: {peak / 2**20:.0f} MiB, bound {MEMORY_BOUND / 2**20:.0f} MiB, share {peak / MEMORY_BOUND:.2f}")


if __name__ == "__main__":
    main()
