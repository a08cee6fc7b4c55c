r"""Everything that is learned from pairs, on real sets, with classes seen and unseen in training, over several seeds.

    python -m benchmarks.pairs.run glyphs.npz caltech.npz --journal pairs.jsonl [--size cpu] [--seeds 3] [--part rows]
    python -m benchmarks.pairs.report pairs.jsonl docs/results/pairs.md
    python -m benchmarks.pairs.run glyphs.npz caltech.npz --part chains --journal chains.jsonl
    python -m benchmarks.pairs.run caltech.npz glosses.npz --part fastfill --journal balance.jsonl

The sets are made by `benchmarks.pairs.glyphs` and `benchmarks.pairs.images`. Each measurement is written to the journal
as it is finished and never taken again: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.pairs.chains import chains, measure_chain
from benchmarks.pairs.embedded import TARGET, EmbeddedSet
from benchmarks.pairs.journal import Journal, Record
from benchmarks.pairs.measure import status_quo, trained
from benchmarks.pairs.methods import BALANCE, BALANCE_UNIT, CHOSEN, FIXED_SCALES, METHODS, SWEEP
from benchmarks.pairs.refit import FIRST_PAIRS, measure_refit
from benchmarks.pairs.scenario import SETTINGS, Scenario, Setting, scenario
from benchmarks.pairs.settings import SIZES, Size
from compatstore.trainers.pairs.pairs import unit_length

PARTS = ("rows", "balance", "lambda", "refit")
# Each on a page of its own, with a journal of its own.
CHAINS, FASTFILL = "chains", "fastfill"

Measurement = Callable[[Scenario], Record]


def measurements(part: str, data: EmbeddedSet, size: Size) -> dict[str, Measurement]:
    """Name what a part measures on every trial of a set."""
    if part == "rows":
        rows: dict[str, Measurement] = {method.name: partial(trained, method=method, size=size) for method in METHODS}
        return {"none": status_quo} | rows
    if part == "balance":
        method = BALANCE_UNIT if unit_length(data.vectors[TARGET]) else BALANCE
        return {method.name: partial(trained, method=method, size=size)}
    if part == "lambda":
        return {method.name: partial(trained, method=method, size=size) for method in SWEEP}
    if part == FASTFILL:
        scales = FIXED_SCALES if unit_length(data.vectors[TARGET]) else ()
        measured = {method.name: partial(trained, method=method, size=size) for method in (*CHOSEN, *scales)}
        return {"none": status_quo, **measured}
    if part == CHAINS:
        ways = chains(data).items()
        hops = {name: partial(measure_chain, size=size, way=way, side=side) for name, (way, side) in ways}
        return {"none": status_quo, **hops} if hops else {}
    return {f"refit {first}": partial(measure_refit, size=size, first=first) for first in FIRST_PAIRS}


def run(
    data: EmbeddedSet,
    size: Size,
    seeds: int,
    journal: Journal,
    parts: Sequence[str] = PARTS,
    settings: Sequence[Setting] = SETTINGS,
) -> None:
    """Measure a set, part by part."""
    for part, seed, setting in itertools.product(parts, range(seeds), settings):
        trial, start = scenario(data, setting, size, seed), time.perf_counter()
        key = {"size": size.name, "set": data.name, "setting": setting, "seed": seed}
        for name, measure in measurements(part, data, size).items():
            journal.once(key | {"method": name}, partial(measure, trial))
        print(f"{data.name}, {part}, {setting}, seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", help="npz files")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--part", choices=(*PARTS, CHAINS, FASTFILL), nargs="+", default=PARTS)
    parser.add_argument("--setting", choices=SETTINGS, nargs="+", default=SETTINGS)
    options = parser.parse_args()
    journal = Journal(options.journal)
    for path in options.sets:
        run(EmbeddedSet.load(path), SIZES[options.size], options.seeds, journal, options.part, options.setting)


if __name__ == "__main__":
    main()
