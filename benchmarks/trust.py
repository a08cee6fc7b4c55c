r"""Which weight is chosen without labels, by what counts as right, and what it gives to queries with labels.

    python -m benchmarks.trust caltech.npz characters.npz fonts.npz glosses.npz [--seeds 0 1] [--items 3000]

A share of the gallery is native, and a ridge regression of those natives made the rest. Without labels an item's
neighbours count as right: by the target's native vectors alone (trust 1), or by both models' own (below 1). For each
trust the weight that natives choose is printed, and what it gains over the status quo to other queries, by labels:
CMC-1 and mAP, in points. Negative is worse than before. The figures of the weight with the highest mAP by labels are
last.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.fusion.strategies import figures
from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import Doubles, FloatArray
from compatstore.evaluation import DecisionSettings, EvaluationSample
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import fused_blocks
from compatstore.evaluation.fusion_choice import WEIGHTS
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.evaluation.strategies import trial_of_fusions
from compatstore.trainers import Pairs, Ridge

TRUSTS, SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), (0.02, 0.05, 0.1, 0.25)
FEWEST, JUDGES, FOLDS, QUERIES, BLOCK = 100, 700, 5, 500, 64
PENALTIES = (0.01, 0.1, 1.0, 10.0)


def unit(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9), np.float32)


def hopped(source: FloatArray, target: FloatArray, everything: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The natives by maps that have not seen them, and all items by one that has seen all natives."""
    fold, tried = np.arange(len(source)) % FOLDS, []
    for penalty in PENALTIES:
        ridge, made = Ridge(penalties=(penalty,), holdout=0.0), np.empty_like(target)
        for part in range(FOLDS):
            others = fold != part
            made[~others] = ridge.fit(Pairs(source[others], target[others])).apply(source[~others]).vectors
        tried.append((float(np.square(unit(made) - target).sum()), penalty, unit(made)))
    _, penalty, crossed = min(tried, key=lambda one: one[0])
    fitted = Ridge(penalties=(penalty,), holdout=0.0).fit(Pairs(source, target))
    return crossed, unit(fitted.apply(everything).vectors)


def show(data: EmbeddedSet, seed: int, items: int, share: float) -> None:
    """Print a line for one gallery."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(data.fresh))[: items + QUERIES]
    asked, held = rows[:QUERIES], rows[QUERIES:]
    vectors = {name: unit(data.vectors[name]) for name in (SOURCE, TARGET)}
    source, target = vectors[SOURCE][held], vectors[TARGET][held]
    natives = max(round(share * len(held)), FEWEST)
    native = np.arange(len(held)) < natives
    crossed, made = hopped(source[native], target[native], source)
    judges = np.arange(min(natives, JUDGES))
    sample = EvaluationSample(
        source_queries=source[judges],
        target_queries=target[judges],
        source=source[judges],
        transformed=crossed[judges],
        native=target[judges],
        order=judges,
        query_ids=judges,
        gallery_ids=judges,
        population=len(held),
    )
    relevance = relevance_from_labels(data.labels[asked], data.labels[held])
    left = measure(vectors[SOURCE][asked], source, "cosine", block=BLOCK)
    right = measure(vectors[TARGET][asked], np.where(native[:, None], target, made), "cosine", block=BLOCK)
    settings = DecisionSettings(source_metric="cosine", target_metric="cosine", seed=seed)
    constants = replace(trial_of_fusions(sample, settings).constants(), native_share=share)
    blocks = fused_blocks(left, right, native, relevance, [replace(constants, weight=weight) for weight in WEIGHTS])
    columns = [np.arange(len(held)) + len(held) * number for number in range(len(WEIGHTS))]
    rankings = rank_blocks(blocks, len(asked), relevance, columns)
    found: Doubles = 100 * np.array([list(figures(ranking).values()) for ranking in rankings])
    gains, cells = found - found[0], []
    for trust in TRUSTS:
        trial = trial_of_fusions(sample, replace(settings, trust=trust))
        weight = trial.fit(judges < share * len(judges), trial.constants()).fusion.weight
        cells.append(cell(weight, gains[WEIGHTS.index(weight)]))
    best = int(gains[:, 1].argmax())
    print(
        f"| {data.name} | {seed} | {share:.0%} | {' | '.join(cells)} | {cell(WEIGHTS[best], gains[best])} |", flush=True
    )


def cell(weight: float, gain: Doubles) -> str:
    return f"{weight:g}: {gain[0]:+.1f} / {gain[1]:+.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--items", type=int, default=3000)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    options = parser.parse_args()
    print(f"| set | seed | native | {' | '.join(f'trust {trust:g}' for trust in TRUSTS)} | best by labels |")
    print("|---" * (4 + len(TRUSTS)) + "|")
    for data in map(EmbeddedSet.load, options.sets):
        for seed in options.seeds:
            for share in options.shares:
                show(data, seed, options.items, share)


if __name__ == "__main__":
    main()
