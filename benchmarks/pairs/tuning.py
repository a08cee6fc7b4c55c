r"""Choose how a refit keeps its distance and who judges it, on sets and seeds whose rows no page reports.

    python -m benchmarks.pairs.tuning fonts.npz characters.npz --journal tuning.jsonl [--seeds 2]
    python -m benchmarks.pairs.tuning caltech.npz --journal tuning.jsonl --first-seed 5

`Refit.farthest` caps the share of the held-out error that is kept as distance; "like" judges by drawn rows that the
order would have left, "all" by all drawn rows. Prints, for each pair of the two, the difference that the refit makes in
CMC-1 and mAP: the mean over all cells, the lowest cell, and how many cells are worse by more than two standard errors.
The sets are made by `benchmarks.pairs.plain`; the page on corrections reports other sets and other embeddings.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.pairs.cells import head, row
from benchmarks.pairs.correction import FIRST_PAIRS, Difference, Trial, figures, gather, native_of, pairs_of, refitted
from benchmarks.pairs.embedded import EmbeddedSet
from benchmarks.pairs.journal import Journal, Record
from benchmarks.pairs.methods import RANDOM, SIGMA, residual
from benchmarks.pairs.scenario import SETTINGS, Scenario, scenario
from benchmarks.pairs.settings import SIZES, Size
from compatstore.arrays import FloatArray
from compatstore.trainers import Refit
from compatstore.upgrade.backfilling.policies import draw, validation_rows
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

SHARES = (0.1, 0.5)
FARTHEST = (0.0, 0.25, 0.4, 1.0)
JUDGES = ("like", "all")


def measure(trial: Scenario, size: Size, first: int) -> Record:
    """Measure every choice in each order at each share: the mean difference and its standard error over queries."""
    once = replace(residual(size, trial.seed), loss="l2", holdout=0.0).fit(
        pairs_of(trial, np.random.default_rng(trial.seed).permutation(trial.pairs)[:first])
    )
    gallery = pairs_of(trial, trial.gallery)
    hopped = once.apply(gallery.source)
    rows = ArrayRows(ids=trial.gallery.tolist(), sigma2=hopped.uncertainty)
    found: Record = {}
    for policy, share in itertools.product((RANDOM, SIGMA), SHARES):
        chosen = native_of(policy, rows, share, trial.seed)
        kept = figures(trial, np.where(chosen[:, None], gallery.target, hopped.vectors))
        made: dict[tuple[bytes, float], FloatArray | None] = {}
        for who, farthest in itertools.product(JUDGES, FARTHEST):
            judging = _judges(who, policy, rows, trial.seed, chosen)
            # The step is the native share up to the cap: larger caps are the same refit.
            step = min(farthest, float(chosen.mean()))
            if (judging.tobytes(), step) not in made:
                learned = gather(gallery, chosen, judging)
                made[judging.tobytes(), step] = refitted(Refit(farthest=step), once, learned, gallery)
            again = made[judging.tobytes(), step]
            refit = kept if again is None else figures(trial, np.where(chosen[:, None], gallery.target, again))
            apart = Difference.of([Trial(kept=kept, refit=refit, taken=again is not None)])
            found[f"{policy} {share:g} {who} {farthest:g}"] = {
                "difference": apart.mean.tolist(), "error": apart.error.tolist(), "taken": again is not None,
            }  # fmt: skip
    return {"choices": found}


def _judges(who: str, policy: str, rows: ArrayRows, seed: int, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    if who == "like":
        return validation_rows(policy, rows, seed, chosen, np.zeros_like(chosen))
    drawn = draw(policy, rows, seed)
    return drawn[: int((~chosen[drawn]).argmax())]


def summary(records: Sequence[Record], who: str, farthest: float) -> str:
    """One row of the table: a cell is a set, a setting, a number of pairs, an order and a share, over its seeds."""
    cells: dict[tuple[str, ...], list[dict[str, list[float]]]] = {}
    for record in records:
        for name, choice in record["choices"].items():
            policy, share, judge, cap = name.split()
            if (judge, cap) == (who, f"{farthest:g}"):
                key = (record["set"], record["setting"], record["method"], policy, share)
                cells.setdefault(key, []).append(choice)
    means = np.array([np.mean([choice["difference"] for choice in cell], axis=0) for cell in cells.values()])
    errors = np.array([_error(cell) for cell in cells.values()])
    parts = [who, f"{farthest:g}", str(len(cells))]
    for column in range(2):
        worse = int((means[:, column] < -2 * errors[:, column]).sum())
        parts += [f"{means[:, column].mean():+.2f}", f"{means[:, column].min():+.2f}", str(worse)]
    return row(*parts)


def _error(cell: Sequence[dict[str, list[float]]]) -> npt.NDArray[np.float64]:
    """Standard error of a cell's mean, over seeds or over queries, whichever is larger: (2,)."""
    by_query = np.sqrt(np.square([choice["error"] for choice in cell]).sum(axis=0)) / len(cell)
    if len(cell) < 2:
        return np.asarray(by_query)
    by_seed = np.std([choice["difference"] for choice in cell], axis=0, ddof=1) / len(cell) ** 0.5
    return np.maximum(by_query, by_seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", help="npz files")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="tuning")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0, help="seeds 0 to 4 of some sets are reported elsewhere")
    options = parser.parse_args()
    size, journal = SIZES[options.size], Journal(options.journal)
    sets = [EmbeddedSet.load(path) for path in options.sets]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for seed, data, setting, first in itertools.product(seeds, sets, SETTINGS, FIRST_PAIRS):
        trial = scenario(data, setting, size, seed)
        key = {"size": size.name, "set": data.name, "setting": setting, "seed": seed, "method": f"first {first}"}
        journal.once(key, partial(measure, trial, size, first))
    names = {data.name for data in sets}
    records = [record for record in journal.records if record["size"] == size.name and record["set"] in names]
    columns = [f"{name}, {what}" for name in ("CMC-1", "mAP") for what in ("mean", "lowest cell", "worse cells")]
    print("\n".join(head("judges", "farthest", "cells", *columns)))
    for who, farthest in itertools.product(JUDGES, FARTHEST):
        print(summary(records, who, farthest))


if __name__ == "__main__":
    main()
