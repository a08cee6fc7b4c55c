r"""Quality over the backfilled share: status quo, target's column, fused, merges, cascades, on real sets.

    python -m benchmarks.fusion caltech.npz characters.npz fonts.npz glosses.npz --journal docs/results/fusion.jsonl \
        --page docs/results/fusion.md [--seeds 3] [--items 1500] [--queries 600] [--shares 0 0.25 0.5 0.75 1]

The sets are made by `benchmarks.pairs.images`, `benchmarks.pairs.plain` and `benchmarks.pairs.texts`. For each set,
seed and setting, classes seen or unseen by the pairs that a ridge regression learns from, a random share of the gallery
is native. Weights, constants and calibrations come from the gallery's items, each asking for the others; the figures
are of other queries. A run that was stopped goes on from its journal.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.fusion.page import fill, tables
from benchmarks.fusion.strategies import UpgradingGallery, measured
from benchmarks.pairs.embedded import EmbeddedSet
from benchmarks.pairs.journal import Journal
from benchmarks.pairs.scenario import SETTINGS, scenario
from benchmarks.pairs.settings import Size

PAIRS = 6000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", type=Path)
    parser.add_argument("--journal", type=Path, required=True, help="one JSON line for each measurement")
    parser.add_argument("--page", type=Path, help="a page whose tables are written from the journal")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--items", type=int, default=1500)
    parser.add_argument("--queries", type=int, default=600)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.0, 0.25, 0.5, 0.75, 1.0])
    parser.add_argument("--metric", choices=["l2", "cosine", "dot"], default="cosine")
    parser.add_argument("--criterion", choices=["map", "cmc@1"], default="map")
    options = parser.parse_args()
    name = f"{options.items} items, {options.queries} queries, {options.metric}, chosen by {options.criterion}"
    size = Size(
        name=name,
        pairs=PAIRS,
        queries=options.queries,
        gallery=options.items,
        epochs=1,
        batch_size=1,
        branch_width=1,
        mixer_width=1,
    )
    journal = Journal(options.journal)
    for data in map(EmbeddedSet.load, options.sets):
        for setting in SETTINGS:
            for seed in range(options.seeds):
                trial = scenario(data, setting, size, seed)
                gallery = UpgradingGallery(trial=trial, metric=options.metric, criterion=options.criterion)
                for share in options.shares:
                    key = {"size": name, "set": data.name, "setting": setting, "seed": seed, "method": f"{share:.0%}"}
                    journal.once(key, lambda g=gallery, s=share: measured(g, s))
                    print(data.name, setting, seed, f"{share:.0%}", flush=True)
    records = [record for record in journal.records if record["size"] == name]
    text = tables(records)
    print(text)
    if options.page:
        fill(options.page, text)


if __name__ == "__main__":
    main()
