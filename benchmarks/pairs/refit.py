"""Refit while filling: what a backfill has embedded natively becomes pairs, and what remains is hopped again.

The transform learns by distance alone: items of a live gallery have no labels. A tenth of the gathered items is put
aside; the remainder would be hopped again only where the second transform is nearer to those than the first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks.pairs.embedded import SOURCE, TARGET
from benchmarks.pairs.journal import Record
from benchmarks.pairs.methods import RANDOM, SIGMA, residual
from benchmarks.pairs.scenario import Scenario, retrieval
from benchmarks.pairs.settings import Size
from compatstore.arrays import FloatArray
from compatstore.artifacts import Artifact
from compatstore.evaluation.curve import native_rows
from compatstore.trainers import Pairs, Residual
from compatstore.upgrade.backfilling.policies import order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

FIRST_PAIRS = (500, 6000)
SHARES = (0.1, 0.25)
CHECKED = 10  # one in ten gathered items is put aside

Mask = npt.NDArray[np.bool_]


def measure_refit(trial: Scenario, size: Size, first: int) -> Record:
    """Learn from the first pairs, backfill shares of the gallery, and learn again from both."""
    trainer = replace(residual(size, trial.seed), loss="l2", holdout=0.0)
    pairs = _pairs(trial, np.random.default_rng(trial.seed).permutation(trial.pairs)[:first])
    gallery = _pairs(trial, trial.gallery)
    once = trainer.fit(pairs)
    hopped = once.apply(gallery.source)
    rows = ArrayRows(ids=trial.gallery.tolist(), sigma2=hopped.uncertainty)
    found: dict[str, Record] = {}
    for policy in (RANDOM, SIGMA):
        urgent = order(policy, rows, trial.seed)
        for share in SHARES:
            native = native_rows(urgent, share)
            again, nearer = _again(trainer, pairs, gallery.subset(np.flatnonzero(native)), once)
            second = again.apply(gallery.source).vectors
            found[f"{policy} {share:g}"] = {
                "kept": _mixed(trial, gallery.target, hopped.vectors, native),
                "refit": _mixed(trial, gallery.target, second, native),
                "nearer": nearer,
            }
    return {"found": {"t/h": retrieval(trial, TARGET, hopped.vectors)}, "refit": found, "pairs": len(pairs)}


def _pairs(trial: Scenario, rows: npt.NDArray[np.intp]) -> Pairs:
    vectors = trial.data.vectors
    return Pairs(vectors[SOURCE][rows], vectors[TARGET][rows])


def _again(trainer: Residual, pairs: Pairs, gathered: Pairs, once: Artifact) -> tuple[Artifact, bool]:
    """Learn from the pairs and most of the gathered ones; is the result nearer to the others than the first was?"""
    aside = np.arange(len(gathered)) % CHECKED == 0
    more, check = gathered.subset(np.flatnonzero(~aside)), gathered.subset(np.flatnonzero(aside))
    sources, targets = np.concatenate([pairs.source, more.source]), np.concatenate([pairs.target, more.target])
    again = trainer.fit(Pairs(sources, targets))
    return again, _error(again, check) < _error(once, check)


def _error(artifact: Artifact, pairs: Pairs) -> float:
    return float(np.square(artifact.apply(pairs.source).vectors - pairs.target).sum(axis=1).mean())


def _mixed(trial: Scenario, native: FloatArray, hopped: FloatArray, filled: Mask) -> dict[str, float]:
    return retrieval(trial, TARGET, np.where(filled[:, None], native, hopped))
