"""Random lives of a mirror: `python -m stores.lives --engine postgres --lives 200`, with PYTHONPATH=tests."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from stores.lives.life import Life, Lived


def live(engine, seed, **options):
    """Live once with an engine of this name."""
    module = importlib.import_module(f"stores.engines.{engine}")
    with tempfile.TemporaryDirectory(prefix="compatstore-life-") as folder:
        database = Path(folder, "engine")
        database.mkdir()
        started = module.Engine(database)
        try:
            return Life(started, Path(folder), seed, **options).run()
        finally:
            started.close()


def main():
    parser = argparse.ArgumentParser(prog="stores.lives")
    parser.add_argument("--engine", required=True)
    parser.add_argument("--lives", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--quiet", type=int, default=3)
    parser.add_argument("--keep-going", action="store_true")
    parser.add_argument("--track", action="store_true", help="with triggers that record changes")
    given = parser.parse_args()
    os.environ["PYTHONWARNINGS"] = "ignore"  # of lancedb, that a process is forked which has not begun to use it
    lived, ends = Lived(), time.monotonic() + 60 * given.minutes
    for seed in range(given.first_seed, given.first_seed + given.lives):
        one = live(given.engine, seed, sessions=given.sessions, quiet=given.quiet, track=given.track)
        lived += one
        _say(f"{seed}: {one.seconds:.0f} s, {sum(one.kills.values())} kills, {one.checks} checks", *one.violations)
        if (lived.violations and not given.keep_going) or time.monotonic() > ends:
            break
    _say(json.dumps(vars(lived), indent=1, default=str))


def _say(*lines):
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
