"""Seconds of `import compatstore`, beside an interpreter that imports nothing."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.bounds import bound, bounds_table
from benchmarks.record import Row

STATEMENTS = ("import compatstore", "import compatstore; compatstore.Gallery")
LOADED = "import compatstore, sys; sys.exit('torch' in sys.modules)"


def seconds(statement: str, runs: int) -> float:
    """Median seconds of a fresh interpreter that runs a statement."""
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def run(*, runs: int = 9) -> Iterator[Row]:
    """Time the statements; then see whether torch was loaded."""
    bare = seconds("pass", runs)
    for statement in STATEMENTS:
        yield bound(f"`{statement}`", seconds(statement, runs) - bare, 0.3, "s")
    loaded = subprocess.run([sys.executable, "-c", LOADED], check=False).returncode
    yield bound("torch is loaded by it", loaded, 0)


SMOKE = {"runs": 1}
TABLES = {"bounds": lambda record: bounds_table(record.rows)}
