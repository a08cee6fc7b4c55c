"""Rows of a large collection of PostgreSQL, and what each step of an upgrade beside it costs."""

from __future__ import annotations

import multiprocessing
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from benchmarks.measuring import ADDED_AT_ONCE, cost
from benchmarks.record import Row
from benchmarks.sets.embedded import unit

CENTRES = 997


def rows_of(start: int, count: int, dim: int) -> tuple[list[str], Any, list[str]]:
    """Ids, (count, dim) float32 of unit length, and texts, of consecutive numbers; the text decides the vector."""
    numbers = range(start, start + count)
    texts = [f"note {number:09d}" for number in numbers]
    return [str(uuid.UUID(int=number)) for number in numbers], embedded(texts, dim), texts


def embedded(texts: list[str], dim: int, turn: Any = None) -> Any:
    """Vectors of texts: near a centre, with noise; those of the other model are turned."""
    rng, numbers = np.random.default_rng(0), np.array([int(text[5:]) for text in texts])
    centres, noise = (rng.standard_normal((size, dim), np.float32) for size in (CENTRES, 4 * CENTRES + 1))
    vectors = centres[numbers % len(centres)] + noise[numbers // 7 % len(noise)]
    return unit(vectors if turn is None else vectors @ turn)


def other_model(dim: int) -> cs.EmbeddingVersion:
    """The target: the same texts, turned, by an encoder that costs next to nothing."""
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((dim, dim)))[0].astype(np.float32)
    encoder = cs.encoders.Function(lambda texts: embedded(list(texts), dim, turn), dim, fingerprint="turned")
    return cs.EmbeddingVersion("v2", dim=dim, metric="cosine", encoder=encoder)


def large(count: int, dim: int, folder: Path) -> Iterator[Row]:
    """Seconds and peak memory of each step in a large collection, each in a process of its own."""
    from tests.stores.engines.postgres import Engine

    engine, spawn = Engine(), multiprocessing.get_context("spawn")
    engine.create("docs", dim)
    for start in range(0, count, ADDED_AT_ONCE):
        engine.load("docs", *rows_of(start, min(ADDED_AT_ONCE, count - start), dim))
    for name in STEPS:
        with ProcessPoolExecutor(1, spawn) as process:
            yield {
                "step": name,
                **process.submit(step, name, engine.address("docs"), f"{folder}/g.lance", dim).result(),
            }
    engine.close()


STEPS: dict[str, Callable[[str, str, int], object]] = {
    "mirror": lambda address, path, dim: cs.Gallery.mirror(address, path, source="text"),
    "upgrade, 1 % embedded": lambda address, path, dim: cs.Gallery.open(path).upgrade(other_model(dim), backfill=0.01),
    "sync without a change": lambda address, path, dim: cs.Gallery.open(path).sync(),
    "cutover": lambda address, path, dim: cs.Gallery.open(path, encoders={"v2": other_model(dim).encoder}).cutover(
        "v2"
    ),
}


def step(name: str, address: str, path: str, dim: int) -> Row:
    """What a step costs this process."""

    def work() -> Row:
        STEPS[name](address, path, dim)
        return {}

    return cost(work)
