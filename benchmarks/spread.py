r"""What it is worth to spread the first sample over cells of the gallery, against a plain random sample.

    python -m benchmarks.spread caltech.npz glosses.npz characters.npz fonts.npz --page docs/results/spread.md

The sets are made by `benchmarks.pairs.images`, `benchmarks.pairs.plain` and `benchmarks.pairs.texts`; only items that
no model was trained on are taken. From each sample a ridge regression is learned, every item is hopped by it, and
other items ask by the target's model.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fusion.page import fill
from benchmarks.fusion.strategies import figures
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import FloatArray
from compatstore.evaluation.distances import measure
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.trainers import Pairs, Ridge
from compatstore.upgrade.backfilling.policies import RANDOM, SPREAD, order
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

METRICS = {"cmc1": "CMC-1", "map": "mAP"}


def hopped(data: EmbeddedSet, items: int, queries: int, seed: int, share: float) -> dict[str, dict[str, float]]:
    """CMC-1 and mAP, from 0 to 1, of a hop by what each sample has taught."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(data.fresh))
    asked, gallery = rows[:queries], rows[queries : queries + items]
    source, target = _unit(data.vectors[SOURCE][gallery]), _unit(data.vectors[TARGET][gallery])
    relevance = relevance_from_labels(data.labels[asked], data.labels[gallery])
    found = {}
    for policy in (RANDOM, SPREAD):
        sample = order(policy, ArrayRows(ids=gallery.tolist(), source=source), seed)[: round(share * len(gallery))]
        learned = Ridge(penalties=(1.0,), holdout=0.0).fit(Pairs(source[sample], target[sample]))
        distances = measure(_unit(data.vectors[TARGET][asked]), learned.apply(source).vectors, "cosine")
        blocks = ((start, block[:, relevance.order]) for start, block in distances.blocks())
        found[policy] = figures(rank_blocks(blocks, len(asked), relevance, [np.arange(len(gallery))])[0])
    return found


def _unit(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def lines(options: argparse.Namespace) -> Iterator[str]:
    """A Markdown table: what both samples give, and by how much the spread one is better."""
    yield "| set | share | random | spread | CMC-1 gained | mAP gained |"
    yield "|---|---:|---:|---:|---:|---:|"
    for data in map(EmbeddedSet.load, options.sets):
        for share in options.shares:
            draws = [hopped(data, options.items, options.queries, seed, share) for seed in range(options.seeds)]
            means = [
                " / ".join(f"{100 * np.mean([draw[policy][metric] for draw in draws]):.1f}" for metric in METRICS)
                for policy in (RANDOM, SPREAD)
            ]
            gains = []
            for metric in METRICS:
                apart = 100 * np.array([draw[SPREAD][metric] - draw[RANDOM][metric] for draw in draws])
                gains.append(f"{apart.mean():+.1f} ({apart.std() / max(len(apart) - 1, 1) ** 0.5:.1f})")
            yield f"| {data.name} | {share:.0%} | {' | '.join([*means, *gains])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--page", type=Path, help="a page whose table is written")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--queries", type=int, default=600)
    parser.add_argument("--shares", nargs="+", type=float, default=[0.02, 0.05])
    options = parser.parse_args()
    text = "\n".join(lines(options))
    print(text)
    if options.page:
        fill(options.page, text)


if __name__ == "__main__":
    main()
