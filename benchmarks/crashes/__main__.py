"""Kill real processes all over an upgrade; print where the kills landed and what did not hold.

    python -m benchmarks.crashes [--kills 300] [--seeds 20]

The exit code is 1 when anything did not hold.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

# Before NumPy and Lance are loaded, here and in every victim.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANCE_LOG": "error"}

from benchmarks.crashes.life import AIMS, Life, Lived
from benchmarks.crashes.rehearsal import prepare
from benchmarks.crashes.script import SCRIPT
from benchmarks.crashes.template import KINDS

FRAGMENTS, ROWS = 8, 200


def total(lives: list[Lived]) -> Lived:
    """The sum of lives."""
    return Lived(
        kills=sum((life.kills for life in lives), Counter()),
        violations=[violation for life in lives for violation in life.violations],
        writes=sum(life.writes for life in lives),
        lost_races=sum(life.lost_races for life in lives),
        searches=sum(life.searches for life in lives),
        natives_apart=sum(life.natives_apart for life in lives),
    )


def print_table(lived: Lived, seconds: float) -> None:
    """Kills by command and step, then the figures of all lives together."""
    print("| command | step | kills |\n|---|---|---|")
    for position, step in sorted(lived.kills, key=lambda aim: (aim[0], AIMS.index(aim) if aim in AIMS else 0)):
        print(f"| {SCRIPT[position].name} | {step} | {lived.kills[position, step]} |")
    kills = lived.kills.total()
    print(
        f"\n{kills} kills in {seconds:.0f} s, {kills / seconds * 60:.0f} a minute; {lived.writes} writes of the app's "
        f"({lived.lost_races} plain ones lost a race and were tried again), {lived.searches} searches and gets; "
        f"{lived.natives_apart} items nobody wrote to are native in one life and not in its undisturbed copy; "
        f"{len(lived.violations)} violations"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=20, help="lives, at least; half of them in an adopted table")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the galleries of lives in which something did not hold")
    arguments = parser.parse_args()
    started = time.monotonic()
    lives: list[Lived] = []
    with tempfile.TemporaryDirectory() as folder:
        templates = [prepare(Path(folder), kind, FRAGMENTS, ROWS) for kind in KINDS]
        for seed in itertools.count(arguments.first_seed):
            if len(lives) >= arguments.seeds and total(lives).kills.total() >= arguments.kills:
                break
            template = templates[seed % len(templates)]
            home = Path(folder, f"life-{seed}")
            lived = Life(template, home, seed, arguments.kills // arguments.seeds).run()
            lives.append(lived)
            if lived.violations and arguments.keep:
                shutil.copytree(home, arguments.keep / home.name)
            shutil.rmtree(home)
            print(
                f"seed {seed} ({template.kind.name}): {lived.kills.total()} kills",
                *lived.violations,
                sep="\n",
                flush=True,
            )
    summed = total(lives)
    print_table(summed, time.monotonic() - started)
    sys.exit(bool(summed.violations))


if __name__ == "__main__":
    main()
