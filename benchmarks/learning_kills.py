"""Kills all over upgrades that teach themselves: nothing is lost, and the same end is reached.

    python -m benchmarks.learning_kills [--kills 300] [--jobs 1] [--journal FILE]

A process upgrades a gallery and is killed at a random moment, and the next one goes on, until one comes to the end.
What it leaves is compared with what an uninterrupted upgrade left: the same items native, the same transform, the same
vectors to the last bit, the same way to serve; `verify` finds nothing; and no item was embedded more often than once
more for each kill. Meanwhile a reader searches as the gallery is served. The exit status is 1 where anything differs.

Every second gallery has a writer as well, which adds, changes and deletes items. It has no uninterrupted twin: there
each item must be found by its own vector in the end, and `verify` must find nothing.

A process is started ahead of time and begins when the one before it is dead, so that a kill meets work and no imports.
With a journal each gallery is written down as its upgrade ends, and the same command again goes on after the last one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

import compatstore as cs
from compatstore.arrays import FloatArray
from compatstore.trainers.pairs.learn import CLOSED_FORMS
from compatstore.upgrade.estimates.waves import read_waves

ITEMS, CLASSES, SHORT, LONG, SHARE = 600, 30, 12, 16, 0.45
IDS = [f"item-{number:04d}" for number in range(ITEMS)]
VERSIONS = {"v1": SHORT, "v2": LONG}
LONGER = 1.3  # how much longer the next process may live than one that came no further than the one before it
ASKED = "asked.txt"  # what upgrades, not searches, have embedded


class Model:
    """Embeds an item by what its source says, and writes down what it was asked for.

    Args:
        version: Which model it is.
        log: File of a line for each item, or None.
    """

    spec: str = ""
    reads: Literal["source", "id"] = "source"

    def __init__(self, version: str, log: Path | None = None) -> None:
        self.dim, self.fingerprint, self._log = VERSIONS[version], f"model of {version}", log
        self._map = np.random.default_rng(len(version) + self.dim).normal(size=(CLASSES, self.dim))

    def encode(self, sources: Sequence[str]) -> FloatArray:
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
    from compatstore.trainers.pairs.residual import Residual

    candidates = (*CLOSED_FORMS, Residual(width=64, epochs=10))
    learn, run = cs.Learn(first=60, candidates=candidates), cs.RunSettings(batch_rows=20)
    opened(folder, folder / ASKED).upgrade("v2", backfill=SHARE, learn=learn, run=run)


def outcome(folder: Path) -> dict[str, Any]:
    """What two upgrades of one gallery must have in common."""
    gallery = opened(folder)
    registry = gallery._catalog.registry()
    run, serving = registry.runs["v2"], registry.serving.get("v2")
    return {
        "state": run.state,
        "natives": sorted(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist()),
        "transform": [registry.artifacts[step].weights for step in run.path],
        "serving": None if serving is None else (serving.serving, serving.fusion),
        "vectors": gallery.vectors(IDS, "v2").tobytes(),
    }


@dataclass
class Lives:
    """What happened so far."""

    kills: Counter[str] = field(default_factory=Counter)  # by what the upgrade had reached
    finished: int = 0
    searches: int = 0
    writes: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, others: Lives) -> None:
        """Count what happened elsewhere as well."""
        for name in ("kills", "finished", "searches", "writes", "violations"):
            setattr(self, name, getattr(self, name) + getattr(others, name))


class Journal:
    """The galleries whose upgrades have ended, one JSON object a line.

    Args:
        path: The file, or None for none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> list[Lives]:
        """All so far."""
        if self._path is None or not self._path.exists():
            return []
        rows = [json.loads(line) for line in self._path.read_text().splitlines()]
        return [Lives(**{**row, "kills": Counter(row["kills"])}) for row in rows]

    def add(self, life: Lives) -> None:
        """Write one down."""
        if self._path is not None:
            with self._path.open("a") as file:
                print(json.dumps(vars(life)), file=file)


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
            time.sleep(0.1)

    def _write(self, gallery: cs.Gallery) -> None:
        draw = random.Random(self._seed)
        while self._seed is not None and not self._over.is_set():
            number = draw.randrange(ITEMS, 2 * ITEMS)
            gallery.add({"id": [f"new-{number}"], "source": [source_of(number)]}, upsert=True)
            if draw.random() < 0.3:
                gallery.delete([f"new-{draw.randrange(ITEMS, 2 * ITEMS)}"])
            self._lives.writes += 1
            time.sleep(0.1)


class Victim:
    """A process that upgrades when it is told to, unless it is killed.

    Args:
        folder: Of the gallery.
    """

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.learning_kills", "--victim", str(folder)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def live(self, seconds: float) -> str | None:
        """Upgrade for so long; gives None where it was killed, else how it ended, "" where that was well."""
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it has imported what it needs
        with suppress(subprocess.TimeoutExpired):
            _, errors = self._process.communicate("\n", timeout=seconds)
            return f"status {self._process.returncode}: {errors[-500:]}" if self._process.returncode else ""
        self.kill()
        return None

    def kill(self) -> None:
        """Kill it now."""
        self._process.kill()
        self._process.communicate()

    @staticmethod
    def work(folder: Path) -> None:
        """What the process does."""
        import compatstore.trainers.pairs.residual  # noqa: F401

        print("ready", flush=True)
        if sys.stdin.readline():
            upgrade(folder)


def reached(folder: Path) -> str:
    """How far an upgrade had come: its state, and its waves so far."""
    catalog = opened(folder)._catalog
    run = catalog.registry().runs.get("v2")
    waves = len(read_waves(catalog, "v2"))
    return "not begun" if run is None else f"{run.state}, {waves} lesson{'s' * (waves != 1)}"


def live(folder: Path, template: Path, whole: dict[str, Any], seconds: float, seed: int, *, writing: bool) -> Lives:
    """Kill one process after the other until one comes to the end, and look at what is left."""
    shutil.copytree(template, folder)
    lives, draw = Lives(finished=1), random.Random(seed)
    with Company(folder, lives, draw.randrange(2**31) if writing else None):
        victim, standby, most, before = Victim(folder), Victim(folder), seconds, ""
        while (end := victim.live(draw.uniform(0, most))) is None:
            now = reached(folder)
            lives.kills[now] += 1
            most, before = (LONGER * most if now == before else seconds), now
            victim, standby = standby, Victim(folder)
        standby.kill()
    kills = lives.kills.total()
    if end:
        lives.violations.append(f"the upgrade ended with {end}")
        return lives
    gallery = opened(folder)
    findings = gallery.maintenance.verify().findings
    lives.violations += [f"verify: {finding}" for finding in findings if finding.severity != "note"]
    if writing:
        ids = gallery.scan([gallery.columns.id], native=[]).to_arrow()[gallery.columns.id].to_pylist()
        found = gallery.get(ids, ["id"])["id"].to_pylist()
        lost = sum(item != near for item, near in zip(ids, found, strict=True))
        if lost:
            lives.violations.append(f"{lost} of {len(ids)} items are not in the table")
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
    parser.add_argument("--journal", type=Path, help="file of what has ended; the next run goes on from it")
    parser.add_argument("--victim", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.victim is not None:
        Victim.work(options.victim)
        return
    journal, lives = Journal(options.journal), Lives()
    ended = journal.read()
    for life in ended:
        lives.add(life)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        made(folder / "template")
        for name in ("warm", "whole"):  # the first one imports what both need
            shutil.copytree(folder / "template", folder / name)
            begun = time.monotonic()
            upgrade(folder / name)
            seconds = time.monotonic() - begun
        whole, numbers = outcome(folder / "whole"), itertools.count(len(ended))

        def next_life() -> Lives:
            number = next(numbers)
            place = folder / f"life-{number}"
            seed = 1000 * options.seed + number
            found = live(place, folder / "template", whole, 1.2 * seconds, seed, writing=number % 2 == 1)
            shutil.rmtree(place, ignore_errors=True)
            return found

        with ThreadPoolExecutor(options.jobs) as pool:
            alive = {pool.submit(next_life) for _ in range(options.jobs) if lives.kills.total() < options.kills}
            while alive:
                over, alive = wait(alive, return_when=FIRST_COMPLETED)
                for ending in over:
                    life = ending.result()
                    lives.add(life)
                    journal.add(life)
                    print(f"{life.kills.total()} kills, {lives.kills.total()} so far", *life.violations, sep="\n")
                    sys.stdout.flush()
                    if lives.kills.total() < options.kills:
                        alive.add(pool.submit(next_life))
    print("\n| an upgrade had reached | kills |\n|---|---|")
    for state, kills in sorted(lives.kills.items()):
        print(f"| {state} | {kills} |")
    print(
        f"\n{lives.kills.total()} kills in {lives.finished} upgrades that all came to their end, {lives.searches} "
        f"searches, {lives.writes} writes: {len(lives.violations)} violations"
    )
    sys.exit(1 if lives.violations else 0)


if __name__ == "__main__":
    main()
