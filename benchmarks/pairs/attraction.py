"""Why an order that helps mAP can cost CMC-1: whom a few native vectors draw to themselves.

    python -m benchmarks.pairs.attraction caltech.npz glyphs.npz [--size cpu] [--seeds 2] [--share 0.1]

A native query is nearer to native vectors than to transformed ones. Prints, for each order of FastFill's vectors
(trained by distance and uncertainty), the share of classes that have a native item once a tenth of the gallery is
native, the share of queries whose nearest item is native, and the share of queries whose nearest item is right.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.measure import order_of
from benchmarks.pairs.methods import ORACLE, RANDOM, SIGMA, fastfill
from benchmarks.pairs.scenario import SETTINGS, Scenario, scenario
from benchmarks.pairs.settings import SIZES, Size
from compatstore.evaluation.curve import native_rows


def drawn(trial: Scenario, size: Size, share: float) -> dict[str, tuple[float, float, float]]:
    """Return, by order, the shares of classes with a native item, of native nearest items and of right ones."""
    pairs, data = trial.learn(), trial.data
    labels, queries = data.labels[trial.gallery], data.vectors[TARGET][trial.queries]
    hopped = fastfill(size, trial.seed, "l2").fit(pairs).apply(data.vectors[SOURCE][trial.gallery])
    found = {}
    for name in (RANDOM, SIGMA, ORACLE):
        native = native_rows(order_of(name, trial, pairs, hopped), share)
        gallery = np.where(native[:, None], data.vectors[TARGET][trial.gallery], hopped.vectors)
        nearest = (np.square(gallery).sum(axis=1) - 2 * queries @ gallery.T).argmin(axis=1)
        covered = np.isin(np.unique(labels), labels[native]).mean()
        right = labels[nearest] == data.labels[trial.queries]
        found[name] = (float(covered), float(native[nearest].mean()), float(right.mean()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", help="npz files")
    parser.add_argument("--size", choices=SIZES, default="cpu")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--share", type=float, default=0.1)
    options = parser.parse_args()
    print("| set, classes | order | classes with a native item | nearest item is native | nearest item is right |")
    print("|---|---|---|---|---|")
    for path, setting in itertools.product(options.sets, SETTINGS):
        data, size = EmbeddedSet.load(path), SIZES[options.size]
        trials = [drawn(scenario(data, setting, size, s), size, options.share) for s in range(options.seeds)]
        for name in trials[0]:
            means = np.mean([trial[name] for trial in trials], axis=0)
            print(f"| {data.name}, {setting} | {name} | " + " | ".join(f"{mean:.0%}" for mean in means) + " |")


if __name__ == "__main__":
    main()
