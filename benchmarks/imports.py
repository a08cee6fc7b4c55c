"""Seconds of `import compatstore` and of single commands, beside an interpreter that imports nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.bounds import bound
from benchmarks.measuring import by_turns
from benchmarks.record import Row

STATEMENTS = ("import compatstore", "import compatstore; compatstore.Gallery")
HELP = (["--help"], ["upgrade", "--help"], ["search", "--help"], ["train", "fastfill", "--help"])
GALLERY = """
import sys, numpy as np, compatstore as cs
gallery = cs.Gallery.create(sys.argv[1], cs.EmbeddingVersion("v1", dim=8, model="m@1"))
gallery.add({"id": [f"{n}" for n in range(100)], "vector": np.eye(100, 8, dtype=np.float32) + 1})
"""


def seconds(words: Sequence[str], runs: int) -> float:
    """Median processor seconds of a fresh interpreter with these arguments."""
    start = partial(subprocess.run, [sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    return float(np.median(by_turns({"": lambda _: start()}, range(runs), lambda: sum(os.times()[2:4]))[""]))


def run(*, runs: int = 9) -> Iterator[Row]:
    """Time the statements and the commands."""
    bare, lance = (seconds(["-c", code], runs) for code in ("pass", "import lance"))
    for statement in STATEMENTS:
        yield bound(f"`{statement}`", seconds(["-c", statement], runs) - bare, 0.3, "CPU s")
    for words in HELP:
        taken, what = seconds(["-m", "compatstore", *words], runs), f"`compatstore {' '.join(words)}`"
        yield bound(what, taken, 0.3, "CPU s", group="help of a command")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", GALLERY, gallery := str(Path(folder, "g.lance"))], check=True)
        for verb, *words in (["status"], ["search", "--id", "1"]):
            ratio = seconds(["-m", "compatstore", verb, gallery, *words], runs) / lance
            yield bound(f"`compatstore {verb}` / `import lance`", ratio, 1.7, group="start / `import lance`")


SMOKE = {"runs": 1}
