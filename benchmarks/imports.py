"""What `import compatstore` and single commands cost: seconds, seconds of the processor, and heavy libraries.

python benchmarks/imports.py [--runs 9]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

BOUND = 0.3
HEAVY = ("torch", "lance", "lancedb", "pandas", "pyarrow")
MADE = """
import numpy as np, compatstore as cs
gallery = cs.Gallery.create({path!r}, cs.EmbeddingVersion("v1", dim=8, model="m@1"))
gallery.add({{"id": [f"{{n}}" for n in range(100)], "vector": np.eye(100, 8, dtype=np.float32) + 1}})
"""
LOADED = """
import sys
from compatstore.cli.app import app
try:
    app({words!r}, prog_name="compatstore")
except SystemExit:
    pass
print(*[name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


def seconds(statement: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - started


def processor_seconds(words: Sequence[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "compatstore", *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def loaded(words: Sequence[str]) -> str:
    program = LOADED.format(words=list(words), heavy=HEAVY)
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return ran.stderr.strip().replace(" ", ", ") or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="of which the median is taken")
    runs = range(parser.parse_args().runs)
    bare = statistics.median(seconds("pass") for _ in runs)
    for statement in ("import compatstore", "import compatstore; compatstore.Gallery"):
        cost = statistics.median(seconds(statement) for _ in runs) - bare
        print(
            f"{statement}: {cost:.3f} s over {bare:.3f} s of a bare start, bound <= {BOUND} s, share {cost / BOUND:.2f}"
        )
    program = "import compatstore, sys; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    print(f"torch is loaded: {found.stdout.strip()}")
    with tempfile.TemporaryDirectory() as folder:
        gallery = str(Path(folder, "g.lance"))
        subprocess.run([sys.executable, "-c", MADE.format(path=gallery)], check=True)
        for words in (
            *(["--help"], ["upgrade", "--help"], ["search", "--help"], ["train", "fastfill", "--help"]),
            *(["status", gallery], ["search", gallery, "--id", "1"]),
        ):
            cost = statistics.median(processor_seconds(words) for _ in runs)
            shown = " ".join(words).replace(gallery, "GALLERY")
            print(f"compatstore {shown}: {cost:.2f} s of the processor; loads {loaded(words)}")


if __name__ == "__main__":
    main()
