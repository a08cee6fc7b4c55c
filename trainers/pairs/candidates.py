"""Candidates: several trainers are fitted on the same pairs, and a test of retrieval says which is best."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from compatstore.arrays import Doubles
from compatstore.artifacts.artifact import Artifact
from compatstore.errors import CompatStoreError, InvalidInput
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.retrieval import RetrievalTest
from compatstore.trainers.pairs.trainer import (
    Candidate,
    Comparison,
    Lead,
    PairTrainer,
    figures_by_group,
    group_means,
    interval,
    without_holdout,
)
from compatstore.trainers.training import OnEpoch

_CONFIDENCE, RESAMPLES = 0.95, 1000
_STATM = Path("/proc/self/statm")
_INTERVAL = 0.005  # seconds between two looks at the memory


class Tried(NamedTuple):
    """A trainer that was tried.

    Attributes:
        trainer: The trainer.
        candidate: What it gave, for the table.
        scores: (q,) float64, the figure that decides, of each query; empty where it could not run.
        artifact: What was tried; None where it could not run.
    """

    trainer: PairTrainer
    candidate: Candidate
    scores: Doubles
    artifact: Artifact | None = None


def attempt(
    name: str, trainer: PairTrainer, fitted: Pairs, test: RetrievalTest, progress: OnEpoch | None = None
) -> Tried:
    """Fit a trainer on all of `fitted`, and test it; one that cannot run is skipped, with the reason."""
    try:
        with footprint() as cost:
            artifact = without_holdout(trainer).fit(fitted, progress)
        outcome = test.run(artifact)
    except CompatStoreError as error:
        return Tried(trainer, Candidate(name=name, skipped=str(error)), np.empty(0))
    scores = outcome.scores[test.decides]
    candidate = Candidate(
        name=name,
        score=_mean_of(group_means(scores, test.groups)),
        groups=figures_by_group(outcome, test.groups),
        cosine=outcome.cosine,
        seconds=cost.seconds,
        peak_mib=cost.peak_mib,
    )
    return Tried(trainer, candidate, scores, artifact)


def ranked(trials: Sequence[Tried], test: RetrievalTest, *, seed: int) -> tuple[Tried, Comparison]:
    """Order what was tried by its score.

    Args:
        trials: All of them.
        test: What they were tried by.
        seed: Of the bootstrap.

    Returns:
        The best, and the table.

    Raises:
        InvalidInput: None could run.
    """
    ran = sorted((t for t in trials if not t.candidate.skipped), key=lambda t: -(t.candidate.score or 0.0))
    skipped = [trial for trial in trials if trial.candidate.skipped]
    if not ran:
        reasons = "; ".join(f"{trial.candidate.name}: {trial.candidate.skipped}" for trial in skipped)
        raise InvalidInput("choose a trainer", expected="a candidate that can run on these pairs", found=reasons)
    table = tuple(trial.candidate for trial in ran + skipped)
    lead = _lead(ran[0], ran[1], test, seed) if len(ran) > 1 else None
    return ran[0], Comparison(decided_by=test.decides, candidates=table, lead=lead)


def _lead(best: Tried, second: Tried, test: RetrievalTest, seed: int) -> Lead:
    estimate = interval(
        best.scores - second.scores,
        test.groups,
        test.clusters,
        resamples=RESAMPLES,
        confidence=_CONFIDENCE,
        seed=seed,
    )
    return Lead(
        second=second.candidate.name,
        difference=estimate.value,
        low=estimate.low,
        high=estimate.high,
        confidence=_CONFIDENCE,
    )


def _mean_of(means: Mapping[str, float]) -> float:
    return float(np.mean(list(means.values())))


class Footprint:
    """Seconds and memory that a block of work took; to be read after the block.

    Attributes:
        seconds: Wall time.
        peak_mib: Largest growth of the resident memory since the start, in MiB, read 200 times a second; None
            where the system does not tell (other than Linux).
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.peak_mib: float | None = 0.0 if _STATM.exists() else None


@contextmanager
def footprint() -> Iterator[Footprint]:
    """Measure a block of work."""
    measured, done = Footprint(), threading.Event()
    watcher = threading.Thread(target=_watch, args=(measured, done), daemon=True)
    start = time.perf_counter()
    if measured.peak_mib is not None:
        watcher.start()
    try:
        yield measured
    finally:
        measured.seconds = time.perf_counter() - start
        done.set()
        if watcher.is_alive():
            watcher.join()


def _watch(measured: Footprint, done: threading.Event) -> None:
    before, peak = _resident_mib(), 0.0
    while True:
        peak = max(peak, _resident_mib() - before)
        measured.peak_mib = peak
        if done.wait(_INTERVAL):
            return


def _resident_mib() -> float:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
