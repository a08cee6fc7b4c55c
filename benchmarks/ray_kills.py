"""Upgrades on Ray whose workers, actors and drivers are killed at random moments; nothing may come of it.

    python -m benchmarks.ray_kills [--kills 100] [--seed 0] [--journal FILE]

Each life is a copy of one gallery. A driver, a process of its own, hops and embeds on a Ray cluster of two workers;
every few seconds a task's process, an actor's or the driver's own gets kill -9. A killed driver is started again by
the same command; every third time the local engine goes on in its place. After each life the content is compared with
what the local engine writes without any kill, bit for bit, and the gallery is verified. Prints kills and violations.
With a journal each life is written down as it ends, and the same command again goes on after the last one. The exit
code is 1 when anything did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import lance
import numpy as np
import psutil
import ray

import compatstore as cs
from benchmarks.hop import make as make_gallery
from benchmarks.hop import network
from benchmarks.ray_hop import split
from compatstore.artifacts import Artifact, Space
from compatstore.upgrade.engines import ray_engine

ROOT = Path(__file__).parents[1]
ROWS, DIM, FRAGMENTS, SHARE = 3_000, 32, 24, 0.3
TITLES = {"worker": "ray::compatstore job", "actor": "ray::_Actor"}
KINDS = ("worker", "actor", "driver")
FAILED = "a driver that failed"  # counted, and no kill


class Slow:
    """A model that takes a millisecond for an item, so that kills land in it."""

    dim, fingerprint, spec = DIM, "numbers of an id", "python:benchmarks.ray_kills:Slow"
    reads: Literal["source", "id"] = "id"

    def encode(self, sources: Sequence[Any]) -> np.ndarray:
        """(n, 32) float32."""
        time.sleep(1e-3 * len(sources))
        made = [np.random.default_rng(int(item)).normal(size=DIM).astype(np.float32) for item in sources]
        return np.stack(made) if made else np.empty((0, DIM), np.float32)


def make(folder: Path) -> Path:
    """A gallery, ready to hop and to embed."""
    gallery = make_gallery(folder, ROWS, DIM)
    target = cs.EmbeddingVersion("v3", dim=DIM, encoder=Slow())
    gallery.register(target)
    architecture, tensors = network(DIM)
    named = {f"h.{name}": tensor for name, tensor in tensors.items()}
    spaces = {"source": Space.of(gallery.version("v1")), "target": Space.of(target)}
    gallery.artifacts.link(Artifact.create("ForwardTransform", **spaces, networks={"h": architecture}, tensors=named))
    split(folder / "gallery.lance", FRAGMENTS)
    return folder / "gallery.lance"


def upgrade(path: Path, address: str) -> None:
    """What a driver does; "" is the local engine."""
    run = cs.RunSettings(engine="ray", encoders=2, batch_rows=40, address=address)
    gallery = cs.Gallery.open(str(path), trust_code=True)
    backfill = cs.Backfill(share=SHARE, order="random")
    gallery.upgrade("v3", backfill=backfill, run=run if address else cs.RunSettings(batch_rows=40))


def victim(kind: str, driver: subprocess.Popen[bytes]) -> int | None:
    """Process to kill, None where there is none of that kind now."""
    if kind == "driver":
        return driver.pid if driver.poll() is None else None
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, IndexError):
            if process.cmdline()[0].startswith(TITLES[kind]):
                found.append(process.pid)
    return random.choice(found) if found else None


def live(path: Path, address: str, most: int) -> Counter[str]:
    """One life: drivers until the upgrade is ready, and `most` kills at the most meanwhile, by what was killed."""
    kills, starts = Counter[str](), 0
    while True:
        starts += 1
        command = [sys.executable, "-m", "benchmarks.ray_kills", "--driver", str(path)]
        command += ["--address", address if starts % 3 else ""]
        driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        kind = random.choice(["worker", "worker", "actor", "actor", "driver"])
        pause = random.uniform(0, 4) if kind == "driver" else 0.0
        while driver.poll() is None:
            time.sleep(0.02 + pause)
            chosen = victim(kind, driver) if _landed(kills) < most else None
            if chosen is not None and random.random() < 0.5:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chosen, signal.SIGKILL)
                    kills[kind] += 1
                kind = random.choice(KINDS)
                pause = random.uniform(0, 4) if kind == "driver" else 0.0
        if driver.returncode == 0:
            return kills
        if driver.returncode != -signal.SIGKILL:
            kills[FAILED] += 1


def _landed(kills: Counter[str]) -> int:
    return sum(kills[kind] for kind in KINDS)


def violations(path: Path, expected: Any) -> list[str]:
    """What is wrong after a life."""
    found = [] if lance.dataset(str(path)).to_table().sort_by("id") == expected else ["the content differs"]
    return found + (
        [] if cs.Gallery.open(str(path), trust_code=True).maintenance.verify().clean else ["verify is not clean"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--journal", type=Path, help="file of the lives that have ended; the next run goes on from it")
    parser.add_argument("--driver", type=Path, help="used by the benchmark itself: upgrade this gallery")
    parser.add_argument("--address", default="", help="used by the benchmark itself: the cluster")
    arguments = parser.parse_args()
    if arguments.driver is not None:
        upgrade(arguments.driver, arguments.address)
        return
    journal = arguments.journal
    lives = [json.loads(line) for line in journal.read_text().splitlines()] if journal and journal.exists() else []
    kills = sum((Counter[str](life["kills"]) for life in lives), Counter[str]())
    wrong = [violation for life in lives for violation in life["violations"]]
    os.environ["PYTHONPATH"] = str(ROOT)  # where workers find the model
    folder = Path(tempfile.mkdtemp())
    ray_engine.connect(None, num_cpus=2)
    try:
        template = make(folder)
        path = folder / "life.lance"
        shutil.copytree(template, path)
        upgrade(path, "")
        expected = lance.dataset(str(path)).to_table().sort_by("id")
        while _landed(kills) < arguments.kills:
            random.seed(f"{arguments.seed} {len(lives)}")
            shutil.rmtree(path)
            shutil.copytree(template, path)
            killed = live(path, ray.get_runtime_context().gcs_address, arguments.kills - _landed(kills))
            lives.append({"kills": killed, "violations": violations(path, expected)})
            kills += killed
            wrong += lives[-1]["violations"]
            if journal:
                with journal.open("a") as file:
                    print(json.dumps(lives[-1]), file=file)
            print(f"life {len(lives)}: {dict(kills)}, {len(wrong)} violations", flush=True)
    finally:
        ray.shutdown()
        shutil.rmtree(folder)
    print("| killed | times |\n|---|---|", *(f"| {kind} | {kills[kind]} |" for kind in KINDS), sep="\n")
    print(
        f"\n{_landed(kills)} kills in {len(lives)} lives, {kills[FAILED]} drivers that failed; {len(wrong)} violations"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
