"""Whether `doctor` finds two models in one column: half or a tenth of the rows by another one, and none.

    python -m benchmarks.two_models SET.npz [SET.npz ...] [--clean 50] [--mixed 5] [--rows 3000]

Each draw takes rows of a set (benchmarks.pairs.embedded) at random, as vectors of one of its two models by turns. The
longer vectors are reduced to the length of the shorter by their principal directions, so that both fit one column. In a
mixture the vectors of half or a tenth of the rows, at random, are the other model's, or the same model's after a random
rotation, as another seed of its training would give. Prints how many draws raise an alarm, how near the nearest came,
how much of the part that is named is the other model's, and the CPU seconds of a draw.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import FloatArray
from compatstore.verification.two_models import SAME_RANK, SAMPLE, Mixture, distinct, find_mixture

KINDS = {  # share of the rows that are another model's
    "one model": 0.0,
    "other model, half": 0.5,
    "other model, a tenth": 0.1,
    "rotated, half": 0.5,
    "rotated, a tenth": 0.1,
}


def of_one_length(data: EmbeddedSet) -> tuple[FloatArray, FloatArray]:
    """Unit vectors of both models, of the shorter one's length."""
    both = [data.vectors[name].astype(np.float32) for name in (SOURCE, TARGET)]
    dim = min(vectors.shape[1] for vectors in both)
    for place, vectors in enumerate(both):
        if vectors.shape[1] > dim:
            vectors = vectors @ np.linalg.eigh(vectors.T @ vectors)[1][:, ::-1][:, :dim]
        both[place] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return both[0], both[1]


def draws(data: EmbeddedSet, kind: str, count: int, rows: int) -> list[tuple[Mixture | None, float, float]]:
    """The draws of one kind of column: what is found, which share of the part named is foreign, and CPU seconds."""
    both, found = of_one_length(data), []
    for seed in range(count):
        rng = np.random.default_rng((seed, len(kind)))
        chosen = rng.permutation(len(data.labels))[:rows]
        own, other = both[seed % 2], both[1 - seed % 2]
        if "rotated" in kind:
            other = own @ np.linalg.qr(rng.standard_normal((own.shape[1], own.shape[1])))[0].astype(np.float32)
        foreign = rng.random(len(chosen)) < KINDS[kind]
        vectors = np.where(foreign[:, None], other[chosen], own[chosen])
        kept, began = distinct(vectors), time.process_time()
        mixture = find_mixture(vectors[kept], seed=seed)
        taken = time.process_time() - began
        found.append((mixture, 0.0 if mixture is None else float(foreign[kept][mixture.part].mean()), taken))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", metavar="SET.npz")
    parser.add_argument("--clean", type=int, default=50)
    parser.add_argument("--mixed", type=int, default=5)
    parser.add_argument("--rows", type=int, default=SAMPLE)
    arguments = parser.parse_args()
    print("| set | column | draws | alarms | told apart, median | most | of the part, foreign | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for path in arguments.sets:
        data = EmbeddedSet.load(path)
        for kind, share in KINDS.items():
            count = arguments.mixed if share else arguments.clean
            found = draws(data, kind, count, arguments.rows)
            alarms = sum(one is not None and one.found for one, _, _ in found)
            apart = [one.separated if one is not None and one.rank_ratio >= SAME_RANK else 0.0 for one, _, _ in found]
            purity = statistics.median(foreign for _, foreign, _ in found)
            seconds = statistics.median(taken for _, _, taken in found)
            print(
                f"| {data.name} | {kind} | {count} | {alarms} "
                f"| {100 * statistics.median(apart):.1f} % | {100 * max(apart):.1f} % "
                f"| {100 * purity:.0f} % | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
