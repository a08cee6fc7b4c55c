"""Seconds of `import compatstore` and of single commands, beside an interpreter that imports nothing."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.bounds import bound
from benchmarks.record import Row

STATEMENTS = ("import compatstore", "import compatstore; compatstore.Gallery")
LOADED = "import compatstore, sys; sys.exit('torch' in sys.modules)"
HELP = (["--help"], ["upgrade", "--help"], ["search", "--help"], ["train", "fastfill", "--help"])
GALLERY = """
import sys, numpy as np, compatstore as cs
gallery = cs.Gallery.create(sys.argv[1], cs.EmbeddingVersion("v1", dim=8, model="m@1"))
gallery.add({"id": [f"{n}" for n in range(100)], "vector": np.eye(100, 8, dtype=np.float32) + 1})
"""


def seconds(statement: str, runs: int) -> float:
    """Median seconds of a fresh interpreter that runs a statement."""
    taken = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def processor_seconds(words: Sequence[str], runs: int) -> float:
    """Median processor seconds of a fresh interpreter with these arguments."""
    taken = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(taken)


def run(*, runs: int = 9) -> Iterator[Row]:
    """Time the statements and the commands; then see whether torch was loaded."""
    bare = seconds("pass", runs)
    for statement in STATEMENTS:
        yield bound(f"`{statement}`", seconds(statement, runs) - bare, 0.3, "s")
    loaded = subprocess.run([sys.executable, "-c", LOADED], check=False).returncode
    yield bound("torch is loaded by it", loaded, 0)
    for words in HELP:
        taken = processor_seconds(["-m", "compatstore", *words], runs)
        yield bound(f"`compatstore {' '.join(words)}`", taken, 0.3, "CPU s")
    lance = processor_seconds(["-c", "import lance"], runs)
    with tempfile.TemporaryDirectory() as folder:
        gallery = str(Path(folder, "g.lance"))
        subprocess.run([sys.executable, "-c", GALLERY, gallery], check=True)
        for verb, *words in (["status"], ["search", "--id", "1"]):
            taken = processor_seconds(["-m", "compatstore", verb, gallery, *words], runs)
            yield bound(f"`compatstore {verb}` / `import lance`", taken / lance, 1.7)


SMOKE = {"runs": 1}
