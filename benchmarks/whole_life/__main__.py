r"""A gallery's whole life at several sizes: time, processor, memory and bytes of each step, and how they grow.

    python -m benchmarks.whole_life --journal docs/results/whole_life.jsonl --page docs/results/whole_life.md \
        [--rows 100000 1000000 10000000] [--dim 128] [--share 0.01] [--folder FOLDER]

Each step runs in a process of its own: add, hop, a backfill by sigma, index, search, verify, a no-op upgrade, cutover.
Before them, at the same size: the disk alone, the transform's bare matrix products and Lance's own append; after them
Lance's own index of the target. A run that was stopped goes on from its journal, where the folder is still there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.fusion.page import fill
from benchmarks.pairs.journal import Journal, Record
from benchmarks.whole_life.measure import measured
from benchmarks.whole_life.page import tables
from benchmarks.whole_life.steps import STEPS, Life, Step

ROOT = Path(__file__).parents[2]
KEY = ("rows", "dim", "step")


def run(life: Life, step: Step) -> Record:
    """Measure a step in a process of its own; one that was cut off before is marked where it went on."""
    mark = life.folder / "begun"
    cut_off = mark.exists() and mark.read_text() == step.name and not step.again
    mark.write_text(step.name)
    words = ["--folder", str(life.folder), "--rows", str(life.rows), "--dim", str(life.dim)]
    words += ["--share", str(life.share), "--step", step.name]
    process = [sys.executable, "-m", "benchmarks.whole_life", *words]
    said = subprocess.run(process, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    record: Record = json.loads(said.splitlines()[-1])
    return record | {"cut_off": True} if cut_off else record


def live(life: Life, journal: Journal) -> None:
    """All steps at one size that the journal has not yet."""
    life.folder.mkdir(parents=True, exist_ok=True)
    for step in STEPS:
        key = {"rows": life.rows, "dim": life.dim, "step": step.name}
        there = len(journal.records)
        journal.once(key, lambda one=step: run(life, one))
        for record in journal.records[there:]:
            print(json.dumps(record), flush=True)
        if step.drops:
            shutil.rmtree(life.folder / step.drops, ignore_errors=True)
            (life.folder / step.drops).unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--folder", type=Path, help="where galleries are made; a temporary one by default")
    parser.add_argument("--journal", type=Path, help="one JSON line for each step")
    parser.add_argument("--page", type=Path, help="a page whose tables are written from the journal")
    parser.add_argument("--step", choices=[step.name for step in STEPS], help="what one of the processes does")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        lives = [Life(folder=folder, rows=rows, dim=arguments.dim, share=arguments.share) for rows in arguments.rows]
        if arguments.step:
            step = next(step for step in STEPS if step.name == arguments.step)
            print(json.dumps(measured(step.prepare(lives[0]), folder)))
            return
        journal = Journal(arguments.journal or Path(temporary, "journal.jsonl"), key=KEY)
        for life in lives:
            live(life, journal)
        text = tables([record for record in journal.records if record["dim"] == arguments.dim])
    print(text)
    if arguments.page:
        fill(arguments.page, text)


if __name__ == "__main__":
    main()
