"""Kills all over upgrades that teach themselves: nothing is lost, and the same end is reached.

    python -m benchmarks.learning_kills [--kills 300] [--jobs 1]

A process upgrades a gallery and is killed at a random moment, and the next one goes on, until one comes to the end.
What it leaves is compared with what an uninterrupted upgrade left: the same items native, the same transform, the same
vectors to the last bit, the same way to serve; `verify` finds nothing; and no item was embedded more often than once
more for each kill. Meanwhile a reader searches as the gallery is served. The exit status is 1 where anything differs.

Every second gallery has a writer as well, which adds, changes and deletes items. It has no uninterrupted twin: there
each item must be found by its own vector in the end, and `verify` must find nothing.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from compatstore.arrays import FloatArray

ITEMS, CLASSES, SHORT, LONG, SHARE = 600, 30, 12, 16, 0.45
IDS = [f"item-{number:04d}" for number in range(ITEMS)]
VERSIONS = {"v1": SHORT, "v2": LONG}
ASKED = "asked.txt"  # what upgrades, not searches, have embedded


class Model:
    """Embeds an item by what its source says, and writes down what it was asked for.

    Args:
        version: Which model it is.
        log: File of a line for each item, or None.
    """

    spec, reads = "", "source"

    def __init__(self, version: str, log: Path | None = None) -> None:
        self.dim, self.fingerprint, self._log = VERSIONS[version], f"model of {version}", log
        self._map = np.random.default_rng(len(version) + self.dim).normal(size=(CLASSES, self.dim))

    def encode(self, sources: list[str]) -> FloatArray:
        """An item's class and number are in its source: "class 3, item 17"."""
        rows = []
        for source in sources:
            label, number = (int(word) for word in source.replace(",", "").split()[1::2])
            noise = np.random.default_rng((self.dim, label, number)).normal(size=self.dim)
            rows.append(self._map[label] + noise)
        if self._log is not None:
            with self._log.open("a") as file:
                file.write("".join(f"{source}\n" for source in sources))
        vectors = np.array(rows)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def source_of(number: int) -> str:
    return f"class {number % CLASSES}, item {number}"


def opened(folder: Path, log: Path | None = None) -> cs.Gallery:
    encoders = {"v1": Model("v1"), "v2": Model("v2", log)}
    return cs.Gallery.open(str(folder / "gallery.lance"), encoders=encoders, lease_term=1.5)


def made(folder: Path) -> None:
    """A gallery that knows both versions and has vectors of the first."""
    folder.mkdir()
    v1, v2 = (
        cs.EmbeddingVersion(name, dim=dim, metric="cosine", normalised=True, encoder=Model(name))
        for name, dim in VERSIONS.items()
    )
    gallery = cs.Gallery.create(str(folder / "gallery.lance"), v1)
    gallery.add({"id": IDS, "source": [source_of(number) for number in range(ITEMS)]})
    gallery.register(v2)


def upgrade(folder: Path) -> None:
    settings = cs.RunSettings(batch_rows=20)
    opened(folder, folder / ASKED).upgrade("v2", backfill=SHARE, learn=cs.Learn(first=60), run=settings)


def outcome(folder: Path) -> dict[str, Any]:
    """What two upgrades of one gallery must have in common."""
    gallery = opened(folder)
    registry = gallery._catalog.registry()
    run, serving = registry.runs["v2"], registry.serving.get("v2")
    return {
        "state": run.state,
        "natives": sorted(gallery.native_ids("v2")),
        "transform": [registry.artifacts[step].weights for step in run.path],
        "serving": None if serving is None else (serving.serving, serving.fusion),
        "vectors": gallery.vectors(IDS, "v2").tobytes(),
    }


@dataclass
class Lives:
    """What happened so far."""

    kills: int = 0
    finished: int = 0
    searches: int = 0
    writes: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, others: Lives) -> None:
        """Count what happened elsewhere as well."""
        for name in ("kills", "finished", "searches", "writes", "violations"):
            setattr(self, name, getattr(self, name) + getattr(others, name))


class Company:
    """A reader, and perhaps a writer, beside an upgrade.

    Args:
        folder: Of the gallery.
        lives: Where what they do is counted.
        seed: Of what the writer does; None for no writer.
    """

    def __init__(self, folder: Path, lives: Lives, seed: int | None) -> None:
        self._folder, self._lives, self._seed, self._over = folder, lives, seed, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(work,)) for work in (self._read, self._write)]

    def __enter__(self) -> Company:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, work: Any) -> None:
        try:
            work(opened(self._folder))
        except Exception as error:  # whatever it is, the app beside an upgrade must not see it
            self._lives.violations.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _read(self, gallery: cs.Gallery) -> None:
        while not self._over.is_set():
            found = gallery.search(source_of(self._lives.searches % ITEMS), k=3, columns=["id"])
            if found.num_rows != 3:
                self._lives.violations.append(f"a search found {found.num_rows} of 3")
            self._lives.searches += 1
            time.sleep(0.02)

    def _write(self, gallery: cs.Gallery) -> None:
        draw = random.Random(self._seed)
        while self._seed is not None and not self._over.is_set():
            number = draw.randrange(ITEMS, 2 * ITEMS)
            gallery.add({"id": [f"new-{number}"], "source": [source_of(number)]}, upsert=True)
            if draw.random() < 0.3:
                gallery.delete([f"new-{draw.randrange(ITEMS, 2 * ITEMS)}"])
            self._lives.writes += 1
            time.sleep(0.05)


def live(folder: Path, template: Path, whole: dict[str, Any], seconds: float, seed: int, *, writing: bool) -> Lives:
    """Kill one process after the other until one comes to the end, and look at what is left."""
    shutil.copytree(template, folder)
    kills, lives, draw = 0, Lives(), random.Random(seed)
    with Company(folder, lives, draw.randrange(2**31) if writing else None):
        while True:
            die = draw.uniform(0, seconds)
            victim = subprocess.run(
                [sys.executable, "-m", "benchmarks.learning_kills", "--victim", str(folder), "--die", f"{die:.4f}"],
                capture_output=True,
                text=True,
            )
            if victim.returncode != -signal.SIGKILL:
                break
            kills += 1
    lives.kills, lives.finished = kills, 1
    if victim.returncode:
        lives.violations.append(f"the upgrade ended with {victim.returncode}: {victim.stderr[-500:]}")
        return lives
    gallery = opened(folder)
    findings = gallery.verify().findings
    lives.violations += [f"verify: {finding}" for finding in findings if finding.severity != "note"]
    if writing:
        ids = gallery.native_ids()
        found = gallery.search(gallery.vectors(ids, "v2"), k=1, version="v2", serving="single", columns=["id"])
        lost = sum(item != near for item, near in zip(ids, found["id"].to_pylist(), strict=True))
        if lost:
            lives.violations.append(f"{lost} of {len(ids)} items are not found by their own vectors")
        return lives
    left = outcome(folder)
    lives.violations += [f"another {name} than without kills" for name in whole if left[name] != whole[name]]
    often = Counter((folder / ASKED).read_text().splitlines()).most_common(1)[0]
    if often[1] > kills + 1:
        lives.violations.append(f"{often[0]} was embedded {often[1]} times in {kills} kills")
    return lives


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="galleries at once")
    parser.add_argument("--victim", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--die", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.victim is not None:
        threading.Timer(options.die, os.kill, (os.getpid(), signal.SIGKILL)).start()
        upgrade(options.victim)
        os._exit(0)  # without the timer
    with tempfile.TemporaryDirectory() as place:
        folder, lives = Path(place), Lives()
        made(folder / "template")
        shutil.copytree(folder / "template", folder / "whole")
        begun = time.monotonic()
        upgrade(folder / "whole")
        seconds, whole = time.monotonic() - begun, outcome(folder / "whole")
        numbers = itertools.count()

        def next_life() -> Lives:
            number = next(numbers)
            place = folder / f"life-{number}"
            seed = 1000 * options.seed + number
            found = live(place, folder / "template", whole, 1.2 * seconds, seed, writing=number % 2 == 1)
            shutil.rmtree(place, ignore_errors=True)
            return found

        with ThreadPoolExecutor(options.jobs) as pool:
            alive = {pool.submit(next_life) for _ in range(options.jobs)}
            while alive:
                over, alive = wait(alive, return_when=FIRST_COMPLETED)
                for life in over:
                    lives.add(life.result())
                    if lives.kills < options.kills:
                        alive.add(pool.submit(next_life))
        print(
            f"{lives.kills} kills in {lives.finished} upgrades that all came to their end, {lives.searches} searches, "
            f"{lives.writes} writes: {len(lives.violations)} violations"
        )
        print("\n".join(lives.violations[:20]))
        sys.exit(1 if lives.violations else 0)


if __name__ == "__main__":
    main()
