"""Kill and suspend real processes all over an upgrade; print where that was and what did not hold.

    python -m benchmarks.crashes [--kills 300] [--suspensions 100] [--seeds 20] [--store disk|s3] [--waves]
        [--journal FILE]

With a journal each life is written down as it ends, and the same command again goes on after the last one. The exit
code is 1 when anything did not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

# Before NumPy and Lance are loaded, here and in every victim.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LANCE_LOG": "error"}

from benchmarks.crashes.life import AIMS, Life, Lived
from benchmarks.crashes.place import BucketPath, Place, copy_folder, remove_folder
from benchmarks.crashes.rehearsal import prepare
from benchmarks.crashes.script import SCRIPT
from benchmarks.crashes.template import KINDS
from benchmarks.crashes.victim import WAVES
from benchmarks.object_store.servers import moto


def total(lives: list[Lived]) -> Lived:
    """The sum of lives."""
    return Lived(
        kills=sum((life.kills for life in lives), Counter()),
        suspensions=sum((life.suspensions for life in lives), Counter()),
        violations=[violation for life in lives for violation in life.violations],
        writes=sum(life.writes for life in lives),
        lost_races=sum(life.lost_races for life in lives),
        searches=sum(life.searches for life in lives),
        natives_apart=sum(life.natives_apart for life in lives),
        seconds=sum(life.seconds for life in lives),
    )


class Journal:
    """The lives that have ended, one JSON object a line.

    Args:
        path: The file, or None for none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> list[Lived]:
        """All lives so far, in the order of their seeds."""
        if self._path is None or not self._path.exists():
            return []
        return [_lived(json.loads(line)) for line in self._path.read_text().splitlines()]

    def add(self, lived: Lived) -> None:
        """Write one life down."""
        if self._path is not None:
            landed = {name: sorted((*aim, n) for aim, n in getattr(lived, name).items()) for name in _COUNTED}
            with self._path.open("a") as file:
                print(json.dumps({**dataclasses.asdict(dataclasses.replace(lived, **_NONE)), **landed}), file=file)


_COUNTED = ("kills", "suspensions")
_NONE: dict[str, Any] = {name: Counter() for name in _COUNTED}


def _lived(data: dict[str, Any]) -> Lived:
    landed = {name: Counter({(position, step): n for position, step, n in data[name]}) for name in _COUNTED}
    return Lived(**{**data, **landed})


def print_table(lived: Lived) -> None:
    """Kills and suspensions by command and step, then the figures of all lives together."""
    print("| command | step | kills | suspensions |\n|---|---|---|---|")
    landed = lived.kills | lived.suspensions
    for aim in sorted(landed, key=lambda aim: (aim[0], AIMS.index(aim) if aim in AIMS else 0)):
        print(f"| {SCRIPT[aim[0]].name} | {aim[1]} | {lived.kills[aim]} | {lived.suspensions[aim]} |")
    print(
        f"\n{lived.kills.total()} kills and {lived.suspensions.total()} suspensions in {lived.seconds:.0f} s; "
        f"{lived.writes} writes of the app's "
        f"({lived.lost_races} plain ones lost a race and were tried again), {lived.searches} searches and gets; "
        f"{lived.natives_apart} items nobody wrote to are native in one life and not in its undisturbed copy; "
        f"{len(lived.violations)} violations"
    )


def enough(lived: Lived, kills: int, suspensions: int) -> bool:
    """Whether there were as many as asked for."""
    return lived.kills.total() >= kills and lived.suspensions.total() >= suspensions


@contextmanager
def empty_place(store: str) -> Iterator[Place]:
    """A folder for galleries, on the disk or in a bucket of a server that all processes find by the environment."""
    if store == "disk":
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
        return
    with moto() as server:
        os.environ |= server.environment
        yield BucketPath(PurePosixPath())  # a bucket for each gallery: a list of moto's goes through all of a bucket


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--suspensions", type=int, default=100, help="past the term of a lease")
    parser.add_argument("--seeds", type=int, default=20, help="lives, at least; half of them in an adopted table")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--fragments", type=int, default=8, help="of each gallery as a life begins")
    parser.add_argument("--rows", type=int, default=200, help="of each fragment")
    parser.add_argument("--store", choices=("disk", "s3"), default="disk", help="s3: moto's server, on this machine")
    parser.add_argument("--waves", action="store_true", help="natives are staged, and their rows move in waves")
    parser.add_argument(
        "--keep", type=Path, help="folder for the galleries, of a disk, in which something did not hold"
    )
    parser.add_argument("--journal", type=Path, help="file of the lives that have ended; the next run goes on from it")
    arguments = parser.parse_args()
    journal = Journal(arguments.journal)
    lives = journal.read()
    if arguments.waves:
        os.environ[WAVES] = "1"
    with empty_place(arguments.store) as folder:
        templates = [prepare(folder, kind, arguments.fragments, arguments.rows) for kind in KINDS]
        for seed in itertools.count(arguments.first_seed + len(lives)):
            if len(lives) >= arguments.seeds and enough(total(lives), arguments.kills, arguments.suspensions):
                break
            template = templates[seed % len(templates)]
            home = folder / f"life-{seed}"
            kills, suspensions = arguments.kills // arguments.seeds, arguments.suspensions // arguments.seeds
            lived = Life(template, home, seed, kills, suspensions).run()
            lives.append(lived)
            journal.add(lived)
            if lived.violations and arguments.keep and isinstance(home, Path):
                copy_folder(home, arguments.keep / home.name)
            remove_folder(home)
            print(
                f"seed {seed} ({template.kind.name}): {lived.kills.total()} kills, "
                f"{lived.suspensions.total()} suspensions",
                *lived.violations,
                sep="\n",
                flush=True,
            )
    summed = total(lives)
    print_table(summed)
    sys.exit(bool(summed.violations))


if __name__ == "__main__":
    main()
