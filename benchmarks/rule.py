r"""What the rule without ground truth serves, and what it gives to queries with labels.

    python -m benchmarks.rule glosses.npz caltech.npz digits [--seeds 0 1 2] [--page docs/results/rule.md]

A share of the gallery is native, and a ridge regression of those natives made the rest. The weight of the target is
that of `weight_by_rule`: no label is read. Other queries then search by it, and by every weight of a grid, and labels
tell mAP. "digits" is scikit-learn's: principal components to discriminants; other sets are files of
`benchmarks.pairs`. A gain is given with two standard errors over queries.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import Doubles, FloatArray
from compatstore.evaluation import DecisionSettings, EvaluationSample
from compatstore.evaluation.distances import measure
from compatstore.evaluation.fusion import fused_blocks
from compatstore.evaluation.ranking import rank_blocks
from compatstore.evaluation.relevance import relevance_from_labels
from compatstore.evaluation.strategies import trial_of_fusions
from compatstore.trainers import Pairs, Ridge

SHARES, GRID = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0), np.linspace(0, 1, 11)
FEWEST, MOST, JUDGES, FOLDS, QUERIES, BLOCK = 100, 1500, 700, 5, 500, 64
PENALTIES = (0.01, 0.1, 1.0, 10.0)
MARK, SWAPPED = "<!-- rows -->", "<!-- rows, swapped -->"


@dataclass(frozen=True)
class Cell:
    """One gallery: weights, and what they give in points of mAP over the status quo."""

    share: float
    status_quo: float
    weight: float
    gain: float
    error: float
    best: float


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


def serve(data: EmbeddedSet, seed: int, items: int, share: float) -> Cell:
    """Serve one gallery by the rule."""
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(data.fresh))
    queries = min(QUERIES, len(rows) // 3)
    asked, held = rows[:queries], rows[queries : queries + items]
    vectors = {name: unit(data.vectors[name]) for name in (SOURCE, TARGET)}
    source, target = vectors[SOURCE][held], vectors[TARGET][held]
    natives = max(round(share * len(held)), FEWEST)
    native = np.arange(len(held)) < natives
    crossed, made = hopped(source[: min(natives, MOST)], target[: min(natives, MOST)], source)
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
    trial = trial_of_fusions(sample, DecisionSettings(source_metric="cosine", target_metric="cosine", seed=seed))
    fusion = trial.fit(judges < share * len(judges), trial.constants()).fusion
    weights = [0.0, fusion.weight, *GRID]
    relevance = relevance_from_labels(data.labels[asked], data.labels[held])
    left = measure(vectors[SOURCE][asked], source, "cosine", block=BLOCK)
    right = measure(vectors[TARGET][asked], np.where(native[:, None], target, made), "cosine", block=BLOCK)
    blocks = fused_blocks(left, right, native, relevance, [replace(fusion, weight=weight) for weight in weights])
    columns = [np.arange(len(held)) + len(held) * number for number in range(len(weights))]
    found: Doubles = 100 * np.array(
        [ranking.average_precision for ranking in rank_blocks(blocks, len(asked), relevance, columns)]
    )
    before, served, *grid = found[:, np.isfinite(found[0])]
    gains = served - before
    return Cell(
        share=share,
        status_quo=float(before.mean()),
        weight=fusion.weight,
        gain=float(gains.mean()),
        error=float(2 * gains.std() / len(gains) ** 0.5),
        best=max(float((one - before).mean()) for one in grid),
    )


def digits() -> EmbeddedSet:
    """Principal components and discriminants of scikit-learn's digits; the discriminants learned from other digits."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    pixels, labels = load_digits(return_X_y=True)
    fresh = np.arange(len(pixels)) >= 500
    source = PCA(8, random_state=0).fit_transform(pixels)
    target = LinearDiscriminantAnalysis().fit(pixels[~fresh], labels[~fresh]).transform(pixels)
    vectors = {SOURCE: np.asarray(source, np.float32), TARGET: np.asarray(target, np.float32)}
    return EmbeddedSet(name="Digits", labels=labels.astype(np.int64), fresh=fresh, vectors=vectors)


def table(name: str, cells: list[Cell], seeds: int) -> Iterator[str]:
    """A line for each share: means over seeds, and of galleries below the status quo by two errors how many."""
    for share in sorted({cell.share for cell in cells}):
        own = [cell for cell in cells if cell.share == share]
        mean = {field: np.mean([getattr(cell, field) for cell in own]) for field in ("status_quo", "weight", "gain")}
        error = np.sqrt(np.mean([cell.error**2 for cell in own]) / seeds)
        below = sum(cell.gain < -cell.error for cell in own)
        best = np.mean([cell.best for cell in own])
        yield (
            f"| {name} | {share:.0%} | {mean['status_quo']:.1f} | {mean['weight']:.2f} | {mean['gain']:+.1f} "
            f"± {error:.1f} | {best:+.1f} | {below} of {len(own)} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--items", type=int, default=2500)
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--swap", action="store_true", help="upgrade from the target to the source: a worse model")
    parser.add_argument("--page", type=Path, help="write the rows into this page, too")
    options = parser.parse_args()
    lines = ["| set | native | status quo, mAP | weight | served | best weight | below |", "|---|" + "---:|" * 6]
    for given in options.sets:
        data, found = digits() if given == "digits" else EmbeddedSet.load(Path(given)), defaultdict(list)
        if options.swap:
            swapped = {SOURCE: data.vectors[TARGET], TARGET: data.vectors[SOURCE]}
            data = replace(data, name=f"{data.name}, swapped", vectors=swapped)
        for seed in options.seeds:
            for share in options.shares:
                found[data.name].append(serve(data, seed, options.items, share))
        lines += [line for name, cells in found.items() for line in table(name, cells, len(options.seeds))]
    print("\n".join(lines))
    if options.page:
        mark = SWAPPED if options.swap else MARK
        before, _, rest = options.page.read_text().partition(f"{mark}\n")
        _, _, after = rest.partition(mark)
        options.page.write_text(f"{before}{mark}\n" + "\n".join(lines) + f"\n{mark}{after}")


if __name__ == "__main__":
    main()
