"""Print how many files of the package have functions that run in a verb: `python .ci/walks.py [--files]`."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import compatstore as cs

ROOT = Path(cs.__file__).resolve().parents[1]
FOLDERS = tuple(f"{ROOT / name}/" for name in ("compatstore", "trainers", "cli"))
LIMITS = {"self-training upgrade": 80, "fused search": 15, "status": 20, "cutover": 28, "add": 20}
ROWS, DIM = 600, 16


@contextmanager
def traced(files: set[str]) -> Iterator[None]:
    """Collect the files whose functions begin to run, in every thread; what an import runs is left out."""

    def called(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if code.co_flags & 2 and code.co_filename.startswith(FOLDERS):  # CO_NEWLOCALS: a function, no module
            files.add(str(Path(code.co_filename).relative_to(ROOT)))

    threading.settrace(called)
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


def walks(folder: str) -> dict[str, set[str]]:
    """The files of each verb: each runs once before, so that what runs once per process is left out."""
    rng = np.random.default_rng(0)
    old, rotation = rng.normal(size=(ROWS, DIM)).astype(np.float32), rng.normal(size=(DIM, DIM)).astype(np.float32)
    ids = [f"i{number}" for number in range(ROWS)]
    new = dict(zip(ids, old @ rotation, strict=True))
    found: dict[str, set[str]] = {name: set() for name in LIMITS}
    for turn in range(2):
        files = found if turn else {name: set() for name in LIMITS}
        gallery = cs.Gallery.create(f"{folder}/{turn}.lance", cs.EmbeddingVersion("v1", dim=DIM))
        gallery.add({"id": ids[:-1], "vector": old[:-1], "source": ids[:-1]})
        with traced(files["add"]):
            gallery.add({"id": ids[-1:], "vector": old[-1:], "source": ids[-1:]})
        model = cs.encoders.Function(lambda texts: np.stack([new[text] for text in texts]), DIM, fingerprint="new")
        target = cs.EmbeddingVersion("v2", dim=DIM, encoder=model)
        with traced(files["self-training upgrade"]):
            gallery.upgrade(target, backfill=0.5, learn=cs.Learn(time_share=None))
        gallery.evaluate("v2", sample=100)
        with traced(files["fused search"]):
            gallery.search({"v1": old[0], "v2": new["i0"]}, k=5)
        with traced(files["status"]):
            str(gallery.status())
        with traced(files["cutover"]):
            gallery.cutover("v2")
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        found = walks(folder)
    lines = ["| verb | files | limit |", "|---|---|---|"]
    lines += [f"| {verb} | {len(files)} | {LIMITS[verb]} |" for verb, files in found.items()]
    if "--files" in sys.argv:
        lines += [f"{verb}: {file}" for verb, files in found.items() for file in sorted(files)]
    sys.stdout.write("\n".join([*lines, ""]))
