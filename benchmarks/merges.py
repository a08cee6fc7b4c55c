r"""Merges of native items and source items without a hop: which makes the better list, and how to calibrate distances.

    python -m benchmarks.merges [characters.npz fonts.npz] [--seeds 3] [--items 800] [--queries 300] [--metric l2]

Digits (8 principal components -> 9 discriminants, both fitted on the other half) and any sets that
`benchmarks.pairs.plain` and `benchmarks.pairs.images` make; classes unseen by the pairs. A random share of the gallery
is native and searched with the target's query. The others are searched with the source's query ("both queries"), or
with what a ridge regression of target on source vectors makes of the target's query ("adapter"). Calibrations are
fitted on 500 items of the gallery, each asking for the others; the figures are of other queries. CMC-1 / mAP in points,
the mean over seeds. The last table: by how much a merge is below the best one of a cell, on average and at most.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.isotonic import IsotonicRegression

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.scenario import Scenario, scenario
from benchmarks.pairs.settings import Size
from compatstore.arrays import BoolArray, Doubles, FloatArray
from compatstore.evaluation.distances import measure
from compatstore.evaluation.merging import matched
from compatstore.trainers import Pairs, Ridge
from compatstore.versions import Metric

Function = Callable[[Doubles], Doubles]
FITTED, KNOTS, SHARES = 500, 64, (0.25, 0.5, 0.75)
RANKS = "reciprocal rank"


def digits() -> EmbeddedSet:
    """The digits of scikit-learn in two spaces, half of them unseen by both models."""
    pixels, labels = load_digits(return_X_y=True)
    known = np.arange(len(labels)) % 2 == 1
    source = PCA(8, random_state=0).fit(pixels[known]).transform(pixels)
    target = LinearDiscriminantAnalysis().fit(pixels[known], labels[known]).transform(pixels)
    vectors = {SOURCE: source.astype(np.float32), TARGET: target.astype(np.float32)}
    return EmbeddedSet(name="digits", labels=labels.astype(np.int64), fresh=~known, vectors=vectors)


def distances(queries: FloatArray, items: FloatArray, metric: Metric) -> Doubles:
    """(q, n) float64, as Lance gives them."""
    measured = measure(queries, items, metric)
    return np.concatenate([block.copy() for _, block in measured.blocks()]) + measured.offsets[:, None]


def functions(source: Doubles, target: Doubles, correct: BoolArray) -> dict[str, Function]:
    """What maps source distances into the target's space, by name; from pairs whose two distances are known."""
    slope = target.std() / source.std()
    some = np.random.default_rng(0).choice(len(source), min(len(source), 200_000), replace=False)
    expected = IsotonicRegression(out_of_bounds="clip").fit(source[some], target[some])
    x, y = (np.quantile(side, np.linspace(0, 1, KNOTS)) for side in (source, target))
    return {
        "distance": lambda d: d,
        "mean and deviation": lambda d: (d - source.mean()) * slope + target.mean(),
        "quantiles": lambda d: np.interp(d, x, y) + np.minimum(d - x[0], 0) + np.maximum(d - x[-1], 0),
        # Steps would tie: the source's own order breaks them.
        "expected target distance": lambda d: expected.predict(d.ravel()).reshape(d.shape) + 1e-9 * d,
        "calibrated (as likely correct)": matched(source, target, correct).apply,
    }


def merged(source: Doubles, target: Doubles, native: BoolArray, function: Function | None) -> Doubles:
    """Distances of the whole gallery; by ranks without a function."""
    if function is not None:
        return np.where(native, target, function(source))
    ranks = np.empty_like(source)
    ranks[:, native] = target[:, native].argsort(axis=1, kind="stable").argsort(axis=1)
    ranks[:, ~native] = source[:, ~native].argsort(axis=1, kind="stable").argsort(axis=1) + 0.5
    return ranks


def figures(found: Doubles, correct: BoolArray) -> tuple[float, float]:
    """CMC-1 and mAP, in points."""
    hits = np.take_along_axis(correct, found.argsort(axis=1, kind="stable"), axis=1)
    counted = hits.any(axis=1)
    hits = hits[counted]
    precision = hits.cumsum(axis=1) / np.arange(1, hits.shape[1] + 1)
    return 100 * float(hits[:, 0].mean()), 100 * float(((precision * hits).sum(axis=1) / hits.sum(axis=1)).mean())


def measured(trial: Scenario, way: str, metric: Metric) -> Iterator[tuple[str, float, tuple[float, float]]]:
    """(merge, native share, figures) of one trial."""
    vectors, labels, gallery, queries = trial.data.vectors, trial.data.labels, trial.gallery, trial.queries
    asking = vectors[SOURCE]
    if way == "adapter":
        rows = trial.pairs
        asking = Ridge().fit(Pairs(vectors[TARGET][rows], vectors[SOURCE][rows])).apply(vectors[TARGET]).vectors
    few = gallery[:FITTED]
    others = ~np.eye(len(few), dtype=bool)
    known = functions(
        distances(asking[few], vectors[SOURCE][few], metric)[others],
        distances(vectors[TARGET][few], vectors[TARGET][few], metric)[others],
        (labels[few, None] == labels[few])[others],
    )
    source = distances(asking[queries], vectors[SOURCE][gallery], metric)
    target = distances(vectors[TARGET][queries], vectors[TARGET][gallery], metric)
    correct = labels[queries, None] == labels[gallery]
    yield "status quo", 0.0, figures(distances(vectors[SOURCE][queries], vectors[SOURCE][gallery], metric), correct)
    yield "full backfill", 1.0, figures(target, correct)
    order = np.random.default_rng(trial.seed).permutation(len(gallery))
    for share in SHARES:
        native = np.isin(np.arange(len(gallery)), order[: round(share * len(gallery))])
        for name, function in [*known.items(), (RANKS, None)]:
            yield name, share, figures(merged(source, target, native, function), correct)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--items", type=int, default=800)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--metric", choices=["l2", "cosine", "dot"], default="l2")
    options = parser.parse_args()
    size = Size(
        name="merges", pairs=6000, queries=options.queries, gallery=options.items, epochs=1, batch_size=1,
        branch_width=1, mixer_width=1,
    )  # fmt: skip
    below = defaultdict[str, list[np.ndarray]](list)
    for data in [digits(), *map(EmbeddedSet.load, options.sets)]:
        for way in ("both queries", "adapter"):
            found = defaultdict[tuple[str, float], list[tuple[float, float]]](list)
            for seed in range(options.seeds):
                for name, share, pair in measured(scenario(data, "unseen", size, seed), way, options.metric):
                    found[name, share].append(pair)
            means = {key: np.mean(pairs, axis=0) for key, pairs in found.items()}
            ends = [(name, *means.pop((name, share))) for name, share in (("status quo", 0.0), ("full backfill", 1.0))]
            said = ", ".join(f"{name} {cmc:.1f} / {mean:.1f}" for name, cmc, mean in ends)
            print(f"\n{data.name}, {way}, {options.metric}: {said}\n")
            print("| merge | " + " | ".join(f"{share:.0%} native" for share in SHARES) + " |")
            print("|---" * (1 + len(SHARES)) + "|")
            for name in dict.fromkeys(name for name, _ in means):
                cells = [means[name, share] for share in SHARES]
                print(f"| {name} | " + " | ".join(f"{cmc:.1f} / {mean:.1f}" for cmc, mean in cells) + " |")
                best = [np.max([means[key] for key in means if key[1] == share], axis=0) for share in SHARES]
                below[name] += [best[i] - cells[i] for i in range(len(SHARES))]
    print("\n| merge | CMC-1 below the best: mean, most | mAP below the best: mean, most |\n|---|---|---|")
    for name, gaps in below.items():
        mean, most = np.mean(gaps, axis=0), np.max(gaps, axis=0)
        print(f"| {name} | {mean[0]:.1f}, {most[0]:.1f} | {mean[1]:.1f}, {most[1]:.1f} |")


if __name__ == "__main__":
    main()
