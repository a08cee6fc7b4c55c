"""A derivation, end to end: the first values of a Matryoshka model's vectors, scaled to unit length, beside two limits.

    python benchmarks/derive.py [--rows 1000000] [--dim 768] [--shorter 256] [--repeats 3]

The limits are of the same run and the same rows: the storage path, which is the same upgrade with nothing computed (the
first values as they are), and Lance alone, which reads the long vectors and writes their first values to a table of
their own. Prints rows per second and the ratios, medians, by the clock and by the processor's seconds, which other
programs on the machine change less; then how far the vectors are from what the model itself gives at the shorter
length: a torch module with a Matryoshka head.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import lance
import numpy as np
import pyarrow as pa
import torch

import compatstore as cs
from compatstore.encoders import Derived, Module

BOUND = 0.90
INPUTS, BLOCK = 64, 50_000
EPSILON = float(np.finfo(np.float32).eps)


class Seconds(NamedTuple):
    """What something took: by the clock, and of the processor in all threads."""

    clock: float
    processor: float


def timed(work: Callable[[], object]) -> Seconds:
    """Do something and say what it took."""
    started = time.perf_counter(), time.process_time()
    work()
    return Seconds(time.perf_counter() - started[0], time.process_time() - started[1])


class Matryoshka(torch.nn.Module):
    """A linear model that gives the first values of its vector, as many as are asked for; weights at random."""

    def __init__(self, dim: int, shorter: int) -> None:
        super().__init__()
        self.shorter = shorter
        weights = torch.randn(INPUTS, dim, generator=torch.Generator().manual_seed(0))
        self.weights = torch.nn.Parameter(weights, requires_grad=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(n, 64) -> (n, shorter)."""
        return (inputs @ self.weights)[:, : self.shorter]


def encoder(dim: int, shorter: int) -> Module:
    """The model at a length, with unit vectors, as its own code makes them."""
    model = Matryoshka(dim, shorter)
    return Module(model, shorter, torch.as_tensor, normalise=True, device="cpu", batch_size=BLOCK, identity="numbers")


def blocks(rows: int) -> Iterator[tuple[list[str], np.ndarray]]:
    """Ids of items, and what the model reads of them: (n, 64) float32."""
    for start in range(0, rows, BLOCK):
        size = min(BLOCK, rows - start)
        inputs = np.random.default_rng(start).normal(size=(size, INPUTS)).astype(np.float32)
        yield [f"{start + row:09d}" for row in range(size)], inputs


def make(folder: Path, rows: int, dim: int) -> cs.Gallery:
    """A gallery of the model's whole vectors."""
    whole = encoder(dim, dim)
    version = cs.EmbeddingVersion("v1", dim=dim, normalised=True, encoder=whole)
    gallery = cs.Gallery.create(str(folder / "gallery.lance"), version)
    for ids, inputs in blocks(rows):
        gallery.add({"id": ids, "vector": whole.encode(list(inputs))})
    return gallery


def lance_alone(folder: Path, shorter: int) -> Seconds:
    """What it takes that Lance reads the long vectors and writes their first values, and nothing else."""
    source = lance.dataset(str(folder / "gallery.lance"))
    kind = pa.list_(pa.float32(), shorter)

    def cut() -> Iterator[pa.RecordBatch]:
        for batch in source.to_batches(columns=["v1"]):
            column = batch.column(0)
            first = column.flatten().to_numpy().reshape(len(column), -1)[:, :shorter]
            values = pa.array(np.ascontiguousarray(first).reshape(-1))
            yield pa.record_batch([pa.FixedSizeListArray.from_arrays(values, type=kind)], names=["v"])

    schema, place = pa.schema([pa.field("v", kind)]), str(folder / "plain.lance")
    seconds = timed(lambda: lance.write_dataset(cut(), place, schema=schema))
    shutil.rmtree(folder / "plain.lance")
    return seconds


def upgraded(gallery: cs.Gallery, target: str, rows: int) -> Seconds:
    """What an upgrade by a derivation takes, from a table without the target's columns."""
    seconds, report = timed(lambda: gallery.upgrade(target)), gallery.upgrade(target)
    status = {version.name: version for version in gallery.status().versions}[target]
    assert (report.transformed, report.backfilled, status.native, status.missing) == (0, 0, rows, 0)
    return seconds


def apart(folder: Path, rows: int, dim: int, shorter: int) -> tuple[float, int]:
    """The largest difference of a value from the model's own shorter output, and values unlike the encoder's bits."""
    own, derived = encoder(dim, shorter), Derived(encoder(dim, dim), cs.Derivation(dim=shorter, normalise=True))
    largest, unlike = 0.0, 0
    table, start = lance.dataset(str(folder / "gallery.lance")), 0
    for ids, inputs in blocks(rows):
        stored = table.to_table(columns=["id", "short"], offset=start, limit=len(ids)).sort_by("id")
        assert stored["id"].to_pylist() == ids
        vectors = stored["short"].combine_chunks().storage.flatten().to_numpy().reshape(len(ids), shorter)
        largest = max(largest, float(np.abs(vectors - own.encode(list(inputs))).max()))
        unlike += int((vectors != derived.encode(list(inputs))).sum())
        start += len(ids)
    return largest, unlike


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--shorter", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the gallery is made and removed again")
    arguments = parser.parse_args()
    rows, dim, shorter = arguments.rows, arguments.dim, arguments.shorter
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    measured = list[tuple[Seconds, Seconds, Seconds]]()
    try:
        gallery = make(folder, rows, dim)
        gallery.register("cut", dim=shorter, normalised=False)
        gallery.register("short", dim=shorter)
        for repeat in range(arguments.repeats):
            plain, taken = lance_alone(folder, shorter), dict[str, Seconds]()
            for name in ("cut", "short") if repeat % 2 else ("short", "cut"):
                if name in {version.name for version in gallery.status().versions if version.state == "live"}:
                    gallery.retire(name)
                taken[name] = upgraded(gallery, name, rows)
            measured.append((plain, taken["cut"], taken["short"]))
            rates = (f"{rows / each.clock:,.0f}" for each in measured[-1])
            print("Lance alone {} rows/s, storage path {} rows/s, derivation {} rows/s".format(*rates), flush=True)
        largest, unlike = apart(folder, rows, dim, shorter)
    finally:
        shutil.rmtree(folder)
    for kind in ("clock", "processor"):
        plain, path, own = ([getattr(each, kind) for each in column] for column in zip(*measured, strict=True))
        figures = ", ".join(f"{statistics.median(column):.1f}" for column in (plain, path, own))
        ratio = statistics.median(limit / each for limit, each in zip(path, own, strict=True))
        alone = statistics.median(limit / each for limit, each in zip(plain, own, strict=True))
        print(f"seconds by the {kind}: Lance alone, storage path, derivation {figures} (medians of {len(measured)})")
        print(f"derivation / storage path {ratio:.2f}, bound >= {BOUND}; / Lance alone {alone:.2f}")
    print(f"largest difference from the model's own shorter vectors: {largest:.1e}, {largest / EPSILON:.1f} epsilon")
    print(f"values unlike those of the derived version's encoder: {unlike} of {rows * shorter}")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB")


if __name__ == "__main__":
    main()
