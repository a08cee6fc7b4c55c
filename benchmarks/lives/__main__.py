"""Run random lives; print how many, what hit them, and what did not hold.

    python -m benchmarks.lives [--lives 300] [--first-seed 0] [--kills 4] [--suspensions 2] [--journal FILE]

With a journal each life is written down as it ends, and the same command again goes on after the last one. The exit
code is 1 when anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

# Before NumPy and Lance are loaded, here and in every process.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HAYSTACK_TELEMETRY_ENABLED": "False"}
os.environ |= {"LANCE_LOG": "error", "PYTHONWARNINGS": "ignore"}

from benchmarks.lives.life import Lived
from benchmarks.lives.stages import Stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=300)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=4, help="of each life, at most")
    parser.add_argument("--suspensions", type=int, default=2, help="of each life, at most")
    parser.add_argument("--journal", type=Path, help="file of the lives that have ended; the next run goes on from it")
    parser.add_argument("--keep", type=Path, help="folder for the tables of lives in which something did not hold")
    arguments = parser.parse_args()
    lived = Lived()
    if arguments.journal is not None and arguments.journal.exists():
        for line in arguments.journal.read_text().splitlines():
            read = json.loads(line)
            lived += Lived(**{k: Counter(v) if isinstance(v, dict) else v for k, v in read.items()})
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        for seed in range(arguments.first_seed + lived.lives, arguments.first_seed + arguments.lives):
            one = stage.live(seed, arguments.kills, arguments.suspensions, arguments.keep)
            print(f"seed {seed}: {one.seconds:.0f} s", *one.violations, sep="\n", flush=True)
            lived += one
            if arguments.journal is not None:
                with arguments.journal.open("a") as file:
                    print(json.dumps(vars(one)), file=file)
    print_table(lived)
    sys.exit(bool(lived.violations))


def print_table(lived: Lived) -> None:
    """By role, then the figures of all lives together."""
    print("| process | kills | suspensions | writes |\n|---|---|---|---|")
    for role in sorted(lived.kills | lived.suspensions | lived.writes):
        print(f"| {role} | {lived.kills[role]} | {lived.suspensions[role]} | {lived.writes[role]} |")
    print("\n| refused | times |\n|---|---|")
    for error, times in lived.refused.most_common():
        print(f"| {error} | {times} |")
    searches = ", ".join(f"{count} {how}" for how, count in lived.searches.most_common())
    print(
        f"\n{lived.lives} lives, {lived.kills.total()} kills ({lived.half} in a write), "
        f"{lived.suspensions.total()} suspensions, {lived.writes.total()} acknowledged writes, "
        f"{lived.searches.total()} searches ({searches}), {lived.looks} comparisons of all rows, "
        f"{len(lived.violations)} violations, in {lived.seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
