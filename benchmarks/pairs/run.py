r"""Everything that is learned from pairs, on real sets, with classes seen and unseen in training, over several seeds.

    python -m benchmarks.pairs.run glyphs.npz caltech.npz --journal pairs.jsonl [--size cpu] [--seeds 3] [--sweep 2]
    python -m benchmarks.pairs.report pairs.jsonl

The sets are made by `benchmarks.pairs.glyphs` and `benchmarks.pairs.images`. Each measurement is written to the journal
as it is finished and never taken again: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import itertools
import time
from functools import partial
from pathlib import Path

from benchmarks.pairs.chains import chains, measure_chain
from benchmarks.pairs.embedded import EmbeddedSet
from benchmarks.pairs.journal import Journal
from benchmarks.pairs.measure import status_quo, trained
from benchmarks.pairs.methods import METHODS, SWEEP
from benchmarks.pairs.refit import FIRST_PAIRS, measure_refit
from benchmarks.pairs.scenario import SETTINGS, scenario
from benchmarks.pairs.settings import SIZES, Size


def run(data: EmbeddedSet, size: Size, seeds: int, sweep: int, journal: Journal) -> None:
    """Measure all methods on one set; `sweep` seeds also go through the values of lambda."""
    for seed, setting in itertools.product(range(seeds), SETTINGS):
        trial, start = scenario(data, setting, size, seed), time.perf_counter()
        key = {"size": size.name, "set": data.name, "setting": setting, "seed": seed}
        journal.once(key | {"method": "none"}, partial(status_quo, trial))
        for method in METHODS + (SWEEP if seed < sweep else ()):
            journal.once(key | {"method": method.name}, partial(trained, trial, method, size))
        for name, (way, side) in chains(data).items():
            journal.once(key | {"method": name}, partial(measure_chain, trial, size, way, side))
        for first in FIRST_PAIRS:
            journal.once(key | {"method": f"refit {first}"}, partial(measure_refit, trial, size, first))
        print(f"{data.name}, {setting}, seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", help="npz files")
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sweep", type=int, default=0, help="seeds of the sweep over lambda")
    options = parser.parse_args()
    journal = Journal(options.journal)
    for path in options.sets:
        run(EmbeddedSet.load(path), SIZES[options.size], options.seeds, options.sweep, journal)


if __name__ == "__main__":
    main()
