"""An app that uses its table through plain LanceDB, while that table is upgraded from another process.

The app searches, adds, merges, updates and deletes at a steady rate, with one handle for good. After a third of the
time another process runs the hop, a backfill and the cutover. Operations, errors and latencies before, during and
after, beside the same app left alone; lost, stale and doubled items are violations.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before NumPy and Lance are loaded, here and in the operator's process.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANCE_LOG": "error"}

import numpy as np

from benchmarks.pages import markdown
from benchmarks.record import Record, Row
from tests.known.plain_app import measure


def run(*, rows: int = 5_000, rate: float = 50.0, seconds: float = 60.0) -> Iterator[Row]:
    """The app left alone, and beside an upgrade: rows by phase, and one of errors and violations."""
    for name, upgrade in (("left alone", False), ("upgraded", True)):
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(Path(folder), rows=rows, rate=rate, seconds=seconds, upgrade=upgrade)
        for phase, operations in measured.phases().items():
            for kind in ("search", "write"):
                chosen = [o for o in operations if (o.name == "search") == (kind == "search")]
                row = {"app": name, "phase": phase, "operation": kind, "number": len(chosen)}
                row |= {"violations": sum(bool(o.error) for o in chosen)}
                quantiles = np.percentile([1e3 * o.seconds for o in chosen] or [0.0], [50, 99])
                yield row | dict(zip(("p50_ms", "p99_ms"), (round(float(ms), 1) for ms in quantiles), strict=True))
        yield {"app": name, "first": (*measured.violations, "")[0], "violations": len(measured.violations)}


def table(record: Record) -> str:
    """Operations, errors and latencies by phase."""
    head = ("app", "phase", "operation", "number", "errors", "p50, ms", "p99, ms")
    keys = ("app", "phase", "operation", "number", "violations", "p50_ms", "p99_ms")
    return markdown(head, [[row[key] for key in keys] for row in record.rows if "phase" in row])


SMOKE = {"seconds": 3.0, "rows": 500}
TABLES = {"operations": table}
