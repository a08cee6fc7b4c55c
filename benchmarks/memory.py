"""Peak memory of an upgrade: a hop of the whole gallery and a backfill of a part of it.

    python benchmarks/memory.py [--rows 100000 1000000] [--dim 64] [--share 0.01]

Each gallery is made by one process and upgraded by another, whose peak is what is printed, beside the bound and beside
what that process takes before it begins. The policy is sigma: the backfill's order is made of a number for each row.
glibc has as many arenas as in the shell's processes, one a core; `--arenas 0` is glibc's own number.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Space

BOUND_MIB = 2048
ADDED_AT_ONCE = 50_000


def peak() -> float:
    """Peak resident memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def native(dim: int) -> cs.encoders.Function:
    def encode(ids: Sequence[str]) -> np.ndarray:
        return np.stack([np.random.default_rng(int(i)).normal(size=dim).astype(np.float32) for i in ids])

    return cs.encoders.Function(encode, dim, fingerprint="drawn from the id", reads="id")


def make(path: str, rows: int, dim: int) -> None:
    """A gallery in v1, with v2 registered and a linear transform with a sigma head linked."""
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=dim))
    rng = np.random.default_rng(0)
    for start in range(0, rows, ADDED_AT_ONCE):
        ids = [f"{number:012d}" for number in range(start, min(start + ADDED_AT_ONCE, rows))]
        gallery.add({"id": ids, "vector": rng.normal(size=(len(ids), dim)).astype(np.float32)})
    gallery.register(cs.EmbeddingVersion("v2", dim=dim, encoder=native(dim)))
    shape = Architecture(source_dim=dim, output_dim=dim, mixer=(64,), uncertainty=True)
    tensors = {
        f"h.{name}": rng.normal(size=size).astype(np.float32) / size[-1] ** 0.5 for name, size in shape.shapes().items()
    }
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    gallery.artifacts.link(cs.Artifact.create("ForwardTransform", networks={"h": shape}, tensors=tensors, **spaces))


def upgrade(path: str, dim: int, share: float) -> None:
    gallery = cs.Gallery.open(path, encoders={"v2": native(dim)})
    before, started = peak(), time.perf_counter()
    gallery.upgrade("v2")
    hopped, hop_seconds = peak(), time.perf_counter() - started
    report = gallery.upgrade("v2", backfill=cs.Backfill(share=share, order="sigma"))
    seconds = time.perf_counter() - started
    print(
        f"{len(gallery):>10,} rows: {before:.0f} MiB before, {hopped:.0f} after the hop ({hop_seconds:.0f} s), "
        f"{peak():.0f} after {report.backfilled:,} natives ({seconds - hop_seconds:.0f} s); "
        f"bound {BOUND_MIB}, share {peak() / BOUND_MIB:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--arenas", type=int, default=max(os.cpu_count() or 1, 2), help="of glibc's malloc")
    parser.add_argument("--step", choices=["make", "upgrade"], help="what one of the processes does")
    parser.add_argument("--path", help="its gallery")
    arguments = parser.parse_args()
    if arguments.step == "make":
        make(arguments.path, arguments.rows[0], arguments.dim)
    elif arguments.step == "upgrade":
        upgrade(arguments.path, arguments.dim, arguments.share)
    else:
        set_to = os.environ | ({"MALLOC_ARENA_MAX": str(arguments.arenas)} if arguments.arenas else {})
        for rows in arguments.rows:
            with tempfile.TemporaryDirectory() as folder:
                words = ["--path", str(Path(folder, "g.lance")), "--dim", str(arguments.dim)]
                words += ["--rows", str(rows), "--share", str(arguments.share)]
                for step in ("make", "upgrade"):
                    subprocess.run([sys.executable, __file__, *words, "--step", step], check=True, env=set_to)


if __name__ == "__main__":
    main()
