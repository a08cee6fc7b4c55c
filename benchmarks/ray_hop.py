"""What the engine ray costs: the same hops by the local engine and by a local Ray with a worker for each core.

    python -m benchmarks.ray_hop [--rows 40000] [--dim 64] [--fragments 4 64] [--repeats 3]
        [--precision float32|bfloat16]

Hops `rows` and twice as many, in few and in many fragments, in turn by both engines. Prints the time that Ray takes to
start, the seconds of each hop (medians), by how much a fragment and a row make a hop by Ray longer than one by the
local engine, and whether both wrote the same bits.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import ray

import compatstore as cs
from benchmarks.hop import make
from compatstore.storage.snapshot import lance  # as a gallery imports it, with its settings
from compatstore.upgrade.engines import ray_engine


def split(path: Path, fragments: int) -> None:
    """Write the rows of a gallery into a number of fragments of equal size."""
    table = lance.dataset(str(path)).to_table()
    lance.dataset(str(path)).delete("true")
    rows = -(-table.num_rows // fragments)
    for part in range(fragments):
        lance.write_dataset(table.slice(part * rows, rows), str(path), mode="append")


def digest(path: Path) -> str:
    """Of all columns of a table."""
    table = lance.dataset(str(path)).to_table().sort_by("id").combine_chunks()
    found = hashlib.sha256()
    for column in table.columns:
        found.update(repr(column.chunk(0).to_pylist()).encode())
    return found.hexdigest()


def hop(template: Path, folder: Path, engine: str, precision: str) -> tuple[float, str]:
    """Seconds of a hop, and the digest of the table after it."""
    path = Path(shutil.copytree(template, folder / "copy.lance"))
    gallery = cs.Gallery.open(str(path))
    started = time.perf_counter()
    gallery.upgrade("v2", run=cs.RunSettings(engine=engine, precision=precision))
    seconds = time.perf_counter() - started
    found = digest(path)
    shutil.rmtree(path)
    return seconds, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--fragments", type=int, nargs=2, default=[4, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    arguments = parser.parse_args()
    few, many = arguments.fragments
    shapes = [(arguments.rows, few), (arguments.rows, many), (2 * arguments.rows, few)]
    started = time.perf_counter()
    ray_engine.connect(None, num_cpus=os.cpu_count() or 1)
    print(f"starting Ray took {time.perf_counter() - started:.1f} s")
    taken = dict[tuple[str, int, int], float]()
    same = True
    folder = Path(tempfile.mkdtemp())
    try:
        for rows, fragments in shapes:
            place = folder / f"{rows}-{fragments}"
            place.mkdir()
            make(place, rows, arguments.dim)
            template = place / "gallery.lance"
            split(template, fragments)
            hop(template, place, "ray", arguments.precision)  # starts the workers
            runs: dict[str, list[float]] = {"local": [], "ray": []}
            for _ in range(arguments.repeats):
                digests = set()
                for engine, seconds in runs.items():
                    spent, found = hop(template, place, engine, arguments.precision)
                    seconds.append(spent)
                    digests.add(found)
                same &= len(digests) == 1
            for engine, seconds in runs.items():
                taken[engine, rows, fragments] = statistics.median(seconds)
            local, other = (taken[engine, rows, fragments] for engine in runs)
            print(f"{rows} rows, {fragments} fragments: local {local:.2f} s, ray {other:.2f} s ({other / local:.2f})")
    finally:
        ray.shutdown()
        shutil.rmtree(folder)

    def longer(rows: int, fragments: int) -> float:
        return taken["ray", rows, fragments] - taken["local", rows, fragments]

    base, spread, double = (longer(*shape) for shape in shapes)
    print(f"a fragment more: {1e3 * (spread - base) / (many - few):.1f} ms more than by the local engine")
    print(f"a row more: {1e6 * (double - base) / arguments.rows:.1f} us more than by the local engine")
    print(f"the same bits: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
