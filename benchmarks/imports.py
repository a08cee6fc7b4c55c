"""What `import compatstore` costs, beside an interpreter that imports nothing.

python benchmarks/imports.py [--runs 9]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

BOUND = 0.3


def seconds(statement: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True)
    return time.perf_counter() - started


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
    loaded = subprocess.run(
        [sys.executable, "-c", "import compatstore, sys; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    print(f"torch is loaded: {loaded.stdout.strip()}")


if __name__ == "__main__":
    main()
