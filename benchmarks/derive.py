"""A derivation, end to end: the first values of a Matryoshka model's vectors, scaled to unit length, beside two limits.

    python benchmarks/derive.py [--rows 1000000] [--dim 768] [--shorter 256] [--repeats 3]

The limits are of the same run and the same rows: the storage path, which is the same upgrade with nothing computed (the
first values as they are), and Lance alone, which reads the long vectors and writes their first values to a table of
their own. Prints seconds, rows per second and the ratios, medians; then how far the vectors are from what the model
itself gives at the shorter length: a torch module with a Matryoshka head.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import torch

import compatstore as cs
from compatstore.encoders import Derived, Module

BOUND = 0.90
INPUTS, BLOCK = 64, 50_000
EPSILON = float(np.finfo(np.float32).eps)


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


def lance_alone(folder: Path, shorter: int) -> float:
    """Seconds in which Lance reads the long vectors and writes the first values of each, and does nothing else."""
    source = lance.dataset(str(folder / "gallery.lance"))
    kind = pa.list_(pa.float32(), shorter)

    def cut() -> Iterator[pa.RecordBatch]:
        for batch in source.to_batches(columns=["v1"]):
            column = batch.column(0)
            first = column.flatten().to_numpy().reshape(len(column), -1)[:, :shorter]
            values = pa.array(np.ascontiguousarray(first).reshape(-1))
            yield pa.record_batch([pa.FixedSizeListArray.from_arrays(values, type=kind)], names=["v"])

    started = time.perf_counter()
    lance.write_dataset(cut(), str(folder / "plain.lance"), schema=pa.schema([pa.field("v", kind)]))
    seconds = time.perf_counter() - started
    shutil.rmtree(folder / "plain.lance")
    return seconds


def upgraded(gallery: cs.Gallery, target: str, rows: int) -> float:
    """Seconds of an upgrade by a derivation, from a table without the target's columns."""
    started = time.perf_counter()
    report = gallery.upgrade(target)
    seconds = time.perf_counter() - started
    status = {version.name: version for version in gallery.status().versions}[target]
    assert (report.transformed, report.backfilled, status.native, status.missing) == (rows, 0, rows, 0)
    return seconds


def apart(folder: Path, rows: int, dim: int, shorter: int) -> tuple[float, int]:
    """The largest difference of a value from the model's own shorter output, and values unlike the encoder's bits."""
    own, derived = encoder(dim, shorter), Derived(encoder(dim, dim), cs.Derivation(dim=shorter, normalise=True))
    largest, unlike = 0.0, 0
    table, start = lance.dataset(str(folder / "gallery.lance")), 0
    for ids, inputs in blocks(rows):
        stored = table.to_table(columns=["id", "short"], offset=start, limit=len(ids)).sort_by("id")
        assert stored["id"].to_pylist() == ids
        vectors = stored["short"].combine_chunks().flatten().to_numpy().reshape(len(ids), shorter)
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
    measured = list[tuple[float, float, float]]()
    try:
        gallery = make(folder, rows, dim)
        gallery.derive("cut", dim=shorter, normalised=False)
        gallery.derive("short", dim=shorter)
        for repeat in range(arguments.repeats):
            plain = lance_alone(folder, shorter)
            path = upgraded(gallery, "cut", rows)
            gallery.retire("cut")
            seconds = upgraded(gallery, "short", rows)
            if repeat + 1 < arguments.repeats:
                gallery.retire("short")
            measured.append((plain, path, seconds))
            rates = (f"{rows / each:,.0f}" for each in (plain, path, seconds))
            print("Lance alone {} rows/s, storage path {} rows/s, derivation {} rows/s".format(*rates))
        largest, unlike = apart(folder, rows, dim, shorter)
    finally:
        shutil.rmtree(folder)
    plain, path, seconds = (statistics.median(column) for column in zip(*measured, strict=True))
    print(f"seconds: Lance alone {plain:.1f}, storage path {path:.1f}, derivation {seconds:.1f} (medians)")
    ratio = statistics.median(path / seconds for _, path, seconds in measured)
    alone = statistics.median(plain / seconds for plain, _, seconds in measured)
    print(f"derivation / storage path: {ratio:.2f} (median of {len(measured)}), bound >= {BOUND}")
    print(f"derivation / Lance alone: {alone:.2f}")
    print(f"largest difference from the model's own shorter vectors: {largest:.1e}, {largest / EPSILON:.1f} epsilon")
    print(f"values unlike those of the derived version's encoder: {unlike} of {rows * shorter}")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB")


if __name__ == "__main__":
    main()
