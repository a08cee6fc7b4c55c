"""Rows that lie all over a gallery, read by their ids and by their addresses: time, and memory that stays.

    python -m benchmarks.addresses [--rows 1000000 10000000] [--dim 16] [--read 100000]

Batches of 1,024 rows, as a backfill reads them, each way in a process of its own, on one gallery by turns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lance
import numpy as np

from benchmarks.memory import make
from compatstore.storage.ids import ADDRESS, read_rows

BATCH = 1024
WAYS = ("ids", "addresses")


def resident() -> float:
    """Resident memory of this process, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def read(path: str, way: str, count: int) -> None:
    table = lance.dataset(path)
    rows = table.count_rows()
    drawn = np.random.default_rng(0).permutation(rows)[:count].tolist()
    named = table.take(drawn, columns=["id", ADDRESS])
    ids, addresses = named["id"].to_pylist(), named[ADDRESS].to_numpy().astype(np.int64)
    before, started, found = resident(), time.perf_counter(), 0
    for start in range(0, count, BATCH):
        batch = slice(start, start + BATCH)
        at = addresses[batch] if way == "addresses" else None
        found += read_rows(table, "id", ids[batch], at, ["id", "source"]).num_rows
    seconds = time.perf_counter() - started
    print(f"{rows:>10,} rows, {found:,} by their {way}: {seconds:.1f} s, {resident() - before:+.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--read", type=int, default=100_000)
    parser.add_argument("--step", choices=WAYS, help="what one of the processes does")
    parser.add_argument("--path", help="its gallery")
    arguments = parser.parse_args()
    if arguments.step:
        read(arguments.path, arguments.step, arguments.read)
        return
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "g.lance"))
            make(path, rows, arguments.dim)
            for way in (*WAYS, *WAYS):
                words = ["--step", way, "--path", path, "--read", str(min(arguments.read, rows))]
                subprocess.run([sys.executable, "-m", "benchmarks.addresses", *words], check=True)


if __name__ == "__main__":
    main()
