"""Refit while filling by `trainers.Refit`: no pair but those that the backfill itself has made.

    python -m benchmarks.pairs.correction glyphs-embedded.npz caltech-embedded.npz [--seeds 3] [--size cpu]

A gallery is hopped by the residual start, learned by distance from few or from many pairs. A backfill embeds shares
of it: a fifth of each at random, the others by sigma or at random too. `Refit` learns from all that was gathered
but the random fifth, is judged on that fifth, and is taken only where it is nearer there. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.pairs.cells import MEASURES, head, row
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.methods import RANDOM, SIGMA, residual
from benchmarks.pairs.scenario import SETTINGS, Scenario, retrieval, scenario
from benchmarks.pairs.settings import SIZES, Size
from compatstore.artifacts import Artifact
from compatstore.trainers import Pairs, Refit
from compatstore.upgrade.policies import order
from compatstore.upgrade.rows import ArrayRows

FIRST_PAIRS = (500, 6000)
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75)
CHECKED = 5  # one in so many rows of the budget is drawn at random, and judges the correction

Figures = dict[str, float]
Found = dict[tuple[str, float], tuple[Figures, Figures, bool]]


def measure(trial: Scenario, size: Size, first: int) -> Found:
    """For each order and share: the gallery as it is, the gallery with what remains hopped again, and whether it is."""
    trainer = replace(residual(size, trial.seed), loss="l2", holdout=0.0)
    learned = np.random.default_rng(trial.seed).permutation(trial.pairs)[:first]
    once = trainer.fit(_pairs(trial, learned))
    gallery = _pairs(trial, trial.gallery)
    hopped = once.apply(gallery.source)
    rows = ArrayRows(ids=trial.gallery.tolist(), sigma2=hopped.uncertainty)
    found: Found = {}
    for policy in (RANDOM, SIGMA):
        for share in SHARES:
            checked, others = _choose(rows, policy, share, trial.seed)
            refitted = Refit().fit(once, gallery.subset(others), gallery.subset(checked))
            taken: Artifact = refitted.artifact if refitted.improved else once
            native = np.union1d(checked, others)
            vectors = (hopped.vectors, taken.apply(gallery.source).vectors)
            before, after = (_figures(trial, gallery, part, native) for part in vectors)
            found[policy, share] = (before, after, refitted.improved)
    return found


def _choose(rows: ArrayRows, policy: str, share: float, seed: int) -> tuple[npt.NDArray[np.intp], ...]:
    """Positions of the budget: the random fifth, and the first of the order among the others."""
    budget = int(share * len(rows.ids))
    checked = order(RANDOM, rows, seed)[: budget // CHECKED]
    ordered = order(policy, rows, seed + 1)
    return checked, ordered[~np.isin(ordered, checked)][: budget - len(checked)]


def _pairs(trial: Scenario, rows: npt.NDArray[np.intp]) -> Pairs:
    return Pairs(trial.data.vectors[SOURCE][rows], trial.data.vectors[TARGET][rows])


def _figures(trial: Scenario, gallery: Pairs, hopped: npt.NDArray[np.float32], native: npt.NDArray[np.intp]) -> Figures:
    mixed = hopped.copy()
    mixed[native] = gallery.target[native]
    return retrieval(trial, TARGET, mixed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", choices=SIZES, default="cpu")
    arguments = parser.parse_args()
    columns = (
        "set",
        "classes",
        "pairs",
        "order",
        "native",
        "kept CMC-1",
        "kept mAP",
        "refit CMC-1",
        "refit mAP",
        "taken",
    )
    print("\n".join(head(*columns)), flush=True)
    size = SIZES[arguments.size]
    for path in arguments.sets:
        data = EmbeddedSet.load(path)
        for setting in SETTINGS:
            for first in FIRST_PAIRS:
                trials = [scenario(data, setting, size, seed) for seed in range(arguments.seeds)]
                show(data.name, setting, first, [measure(trial, size, first) for trial in trials])


def show(name: str, setting: str, first: int, trials: list[Found]) -> None:
    """Print a gallery's curves without and with the correction, CMC-1 / mAP in points, means over seeds."""
    for policy in (RANDOM, SIGMA):
        for part, label in enumerate(("kept", "refit")):
            curve = [[mean([trial[policy, share][part] for trial in trials], m) for m in MEASURES] for share in SHARES]
            curve.append([statistics.mean(values) for values in zip(*curve, strict=True)])
            cells = [" / ".join(f"{value:.1f}" for value in point) for point in curve]
            print(row(name, setting, str(first), policy, label, *cells), flush=True)
        taken = [f"{sum(trial[policy, share][2] for trial in trials)} of {len(trials)}" for share in SHARES]
        print(row(name, setting, str(first), policy, "taken", *taken, ""), flush=True)


def mean(figures: list[Figures], measure: str) -> float:
    """Mean of one measure, in points."""
    return 100 * statistics.mean(figure[measure] for figure in figures)


if __name__ == "__main__":
    main()
