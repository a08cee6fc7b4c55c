"""Two upgrades in a row: one direct hop from what is stored, or two hops, with and without side-information.

FCT's table 5. A chain with side-information also carries it over, by g: `h2(h1(phi, psi), g1(phi, psi))`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from benchmarks.pairs.embedded import MIDDLE, SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.journal import Record
from benchmarks.pairs.methods import fct
from benchmarks.pairs.scenario import Scenario, retrieval
from benchmarks.pairs.settings import Size
from compatstore.arrays import FloatArray
from compatstore.artifacts import Transformed

Way = Callable[[Scenario, Size, bool], FloatArray]


def direct(trial: Scenario, size: Size, side: bool) -> FloatArray:
    """Hop the gallery from source to target."""
    data, rows = trial.data, trial.gallery
    artifact = fct(size, trial.seed).fit(trial.learn(side=side))
    return artifact.apply(data.vectors[SOURCE][rows], data.sides[SOURCE][rows] if side else None).vectors


def chained(trial: Scenario, size: Size, side: bool) -> FloatArray:
    """Hop the gallery from source to middle, and what came of it to the target."""
    data, rows = trial.data, trial.gallery
    first = replace(fct(size, trial.seed), side_transform=side).fit(trial.learn(SOURCE, MIDDLE, side=side))
    second = fct(size, trial.seed).fit(trial.learn(MIDDLE, TARGET, side=side))
    between: Transformed = first.apply(data.vectors[SOURCE][rows], data.sides[SOURCE][rows] if side else None)
    return second.apply(between.vectors, between.side).vectors


WAYS: dict[str, Way] = {"direct": direct, "chained": chained}


def chains(data: EmbeddedSet) -> dict[str, tuple[Way, bool]]:
    """Name the ways that a set allows: none without a middle version, without side-information only those without."""
    if MIDDLE not in data.vectors:
        return {}
    sides = (True, False) if data.sides else (False,)
    return {f"{name}{', side' if side else ''}": (way, side) for name, way in WAYS.items() for side in sides}


def measure_chain(trial: Scenario, size: Size, way: Way, side: bool) -> Record:
    """Hop the gallery in one way, and search it with target queries."""
    start = time.perf_counter()
    hopped = way(trial, size, side)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "found": {"t/h": retrieval(trial, TARGET, hopped)}}
