"""Refit while filling by `trainers.Refit`: no pair but those that the backfill itself has made.

    python -m benchmarks.pairs.correction glyphs-embedded.npz caltech-embedded.npz [--seeds 5] [--size cpu]

A gallery is hopped by the residual start, learned by distance from few or from many pairs. A backfill embeds shares
of it, by sigma (a fifth of the budget is drawn at random) or at random. `Refit` learns from these rows alone, and is
taken where the rows like those that remain come nearer. Each cell of the table compares the same gallery, with the
same native rows, without and with the refit. The last lines say whether it is at least as good everywhere.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.pairs.cells import head, row
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.methods import RANDOM, SIGMA, residual
from benchmarks.pairs.scenario import SETTINGS, Scenario, scenario
from benchmarks.pairs.settings import SIZES, Size
from compatstore.arrays import FloatArray
from compatstore.artifacts import Artifact
from compatstore.evaluation.ranking import rank_queries
from compatstore.trainers import Pairs, Refit
from compatstore.upgrade.backfilling.policies import draw, interleave, order, validation_rows
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from compatstore.upgrade.refit import Gathered

FIRST_PAIRS = (500, 6000)
SHARES = (0.05, 0.1, 0.25, 0.5, 0.75)
MEASURED = ("CMC-1", "mAP")

PerQuery = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One gallery without and with the refit: (queries, 2) CMC-1 and average precision in points."""

    kept: PerQuery
    refit: PerQuery
    taken: bool


def measure(trial: Scenario, size: Size, first: int) -> dict[tuple[str, float], Trial]:
    """Measure a trial in each order at each share."""
    once = replace(residual(size, trial.seed), loss="l2", holdout=0.0).fit(
        pairs_of(trial, np.random.default_rng(trial.seed).permutation(trial.pairs)[:first])
    )
    gallery = pairs_of(trial, trial.gallery)
    hopped = once.apply(gallery.source)
    rows = ArrayRows(ids=trial.gallery.tolist(), sigma2=hopped.uncertainty)
    found = {}
    for policy in (RANDOM, SIGMA):
        for share in SHARES:
            native = native_of(policy, rows, share, trial.seed)
            kept = figures(trial, np.where(native[:, None], gallery.target, hopped.vectors))
            gathered = gather(gallery, native, validation_rows(policy, rows, trial.seed, native, np.zeros_like(native)))
            again = refitted(Refit(), once, gathered, gallery)
            refit = kept if again is None else figures(trial, np.where(native[:, None], gallery.target, again))
            found[policy, share] = Trial(kept=kept, refit=refit, taken=again is not None)
    return found


def refitted(refit: Refit, once: Artifact, gathered: Gathered, gallery: Pairs) -> FloatArray | None:
    """Vectors of the gallery after a refit, or None where it is not taken, or rows are too few to try."""
    found = refit.fit(once, gathered) if gathered.enough else None
    return found.artifact.apply(gallery.source).vectors if found is not None and found.improved else None


def native_of(policy: str, rows: ArrayRows, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Rows that a backfill of this share embeds, as an upgrade chooses them: (n,) bool."""
    native, budget, holdout = np.zeros(len(rows.ids), bool), int(share * len(rows.ids)), Refit().holdout
    drawn = draw(policy, rows, seed)[: int(holdout * budget)]
    native[interleave(order(policy, rows, seed), drawn, budget, holdout)] = True
    return native


def pairs_of(trial: Scenario, rows: npt.NDArray[np.intp]) -> Pairs:
    """Source and target vectors of some rows, without labels."""
    return Pairs(trial.data.vectors[SOURCE][rows], trial.data.vectors[TARGET][rows])


def gather(gallery: Pairs, native: npt.NDArray[np.bool_], judging: npt.NDArray[np.intp]) -> Gathered:
    """What a refit learns from: the native rows, and which of them judge."""
    positions = np.searchsorted(np.flatnonzero(native), judging)
    return Gathered(
        source=gallery.source[native],
        target=gallery.target[native],
        validation_rows=positions,
        native=float(native.mean()),
    )


def figures(trial: Scenario, vectors: FloatArray) -> PerQuery:
    """Search a gallery's vectors with the trial's queries: (queries, 2) CMC-1 and average precision in points."""
    labels = trial.data.labels
    queries = trial.data.vectors[TARGET][trial.queries]
    ranking = rank_queries(queries, vectors, labels[trial.queries], labels[trial.gallery])
    counted = ranking.counted
    return 100 * np.stack([ranking.first_match[counted] == 1, ranking.average_precision[counted]], axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Difference:
    """Refit less kept, in points: mean over seeds, (2,) for CMC-1 and mAP.

    Args:
        mean: The difference.
        error: Its standard error, over seeds or over queries, whichever is larger.
    """

    mean: PerQuery
    error: PerQuery

    @classmethod
    def of(cls, trials: list[Trial]) -> Difference:
        """Compare one cell's trials, one a seed."""
        apart = [trial.refit - trial.kept for trial in trials]
        means = np.stack([part.mean(axis=0) for part in apart])
        by_query = np.sqrt(sum(part.var(axis=0) / len(part) for part in apart)) / len(apart)
        by_seed = means.std(axis=0, ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else 0.0 * by_query
        return cls(mean=means.mean(axis=0), error=np.maximum(by_query, by_seed))

    def __str__(self) -> str:
        """Both differences with their errors."""
        return " / ".join(f"{mean:+.1f} ± {error:.1f}" for mean, error in zip(self.mean, self.error, strict=True))


def show(name: str, setting: str, first: int, trials: list[dict[tuple[str, float], Trial]]) -> Iterator[Difference]:
    """Print a gallery's curves: the difference, how often it was taken, and both curves."""
    for policy in (RANDOM, SIGMA):
        cells = [[trial[policy, share] for trial in trials] for share in SHARES]
        differences = [Difference.of(cell) for cell in cells]
        yield from differences
        taken = [f"{difference}, {sum(t.taken for t in c)}" for difference, c in zip(differences, cells, strict=True)]
        print(row(name, setting, str(first), policy, "difference", *taken), flush=True)
        for part in ("kept", "refit"):
            means = [np.mean([getattr(trial, part).mean(axis=0) for trial in cell], axis=0) for cell in cells]
            print(row(name, setting, str(first), policy, part, *(f"{c:.1f} / {m:.1f}" for c, m in means)), flush=True)


def verdict(setting: str, differences: list[Difference]) -> Iterator[str]:
    """Say of each measure whether it is at least as good everywhere, and by how much it is better."""
    for column, measured in enumerate(MEASURED):
        means = [float(difference.mean[column]) for difference in differences]
        errors = [float(difference.error[column]) for difference in differences]
        worse = sum(mean < -2 * error for mean, error in zip(means, errors, strict=True))
        better = sum(mean > 2 * error for mean, error in zip(means, errors, strict=True))
        yield (
            f"{setting}, {measured}: of {len(means)} cells {worse} are worse and {better} better by more than two "
            f"standard errors;\n    mean {statistics.mean(means):+.2f}, lowest {min(means):+.2f}, "
            f"highest {max(means):+.2f} points"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--size", choices=SIZES, default="cpu")
    options = parser.parse_args()
    size, found = SIZES[options.size], {setting: list[Difference]() for setting in SETTINGS}
    print("\n".join(head("set", "classes", "pairs", "order", "", *(f"{share:.0%}" for share in SHARES))), flush=True)
    for path in options.sets:
        data = EmbeddedSet.load(path)
        for setting in SETTINGS:
            for first in FIRST_PAIRS:
                trials = [scenario(data, setting, size, seed) for seed in range(options.seeds)]
                found[setting] += show(data.name, setting, first, [measure(trial, size, first) for trial in trials])
    print("\n" + "\n".join(line for setting in SETTINGS for line in verdict(setting, found[setting])))


if __name__ == "__main__":
    main()
