"""Whether `doctor` finds two models in one column: 10 % of the rows by another one, and columns of one model alone.

    python -m benchmarks.two_models SET.npz [SET.npz ...] [--clean 50] [--mixed 5] [--rows 4000]

Each draw takes rows of a set (benchmarks.pairs.embedded) at random, as vectors of one of its two models by turns. The
longer vectors are reduced to the length of the shorter by their principal directions, so that both fit one column. In a
mixture the vectors of a tenth of the rows are the other model's, or the same model's after a random rotation, as
another seed of its training would give: of rows at random, which are looked at without any order, or of a range of the
ids, which the doctor is told to order by. Columns of one model are looked at without any order, and sorted by their
classes with that order given. Prints how many draws raise an alarm, how near the nearest came, and how much of the part
that is named is the other model's.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import numpy as np

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import BoolArray, FloatArray
from compatstore.verification.two_models import SAME_RANK, Mixture, find_mixture

SHARE = 0.1


def of_one_length(data: EmbeddedSet) -> tuple[FloatArray, FloatArray]:
    """Unit vectors of both models, of the shorter one's length."""
    both = [data.vectors[name].astype(np.float32) for name in (SOURCE, TARGET)]
    dim = min(vectors.shape[1] for vectors in both)
    for place, vectors in enumerate(both):
        if vectors.shape[1] > dim:
            vectors = vectors @ np.linalg.eigh(vectors.T @ vectors)[1][:, ::-1][:, :dim]
        both[place] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return both[0], both[1]


def judged(vectors: FloatArray, foreign: BoolArray, ordered: bool, seed: int) -> tuple[Mixture | None, float]:
    """What is found in distinct rows, and which share of the part named is foreign."""
    kept = np.sort(np.unique(vectors, axis=0, return_index=True)[1])
    found = find_mixture(vectors[kept], ordered=ordered, seed=seed)
    return found, 0.0 if found is None else float(foreign[kept][found.part].mean())


def draws(data: EmbeddedSet, kind: str, count: int, rows: int) -> list[tuple[Mixture | None, float]]:
    """The draws of one kind of column."""
    both, found = of_one_length(data), []
    for seed in range(count):
        rng = np.random.default_rng((seed, len(kind)))
        chosen = rng.permutation(len(data.labels))[:rows]
        own, other = both[seed % 2], both[1 - seed % 2]
        if kind == "one model, sorted by class":
            chosen = chosen[np.argsort(data.labels[chosen], kind="stable")]
        vectors, foreign = own[chosen], np.zeros(len(chosen), bool)
        if "rotated" in kind:
            other = own @ np.linalg.qr(rng.standard_normal((own.shape[1], own.shape[1])))[0].astype(np.float32)
        if not kind.startswith("one model"):
            begin, size = int(rng.integers(len(chosen) - len(chosen) // 10)), round(SHARE * len(chosen))
            foreign[begin : begin + size] = True
            if "range" not in kind:
                foreign = rng.permutation(foreign)
            vectors = np.where(foreign[:, None], other[chosen], vectors)
        found.append(judged(vectors, foreign, "range" in kind or "sorted" in kind, seed))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", metavar="SET.npz")
    parser.add_argument("--clean", type=int, default=50)
    parser.add_argument("--mixed", type=int, default=5)
    parser.add_argument("--rows", type=int, default=4_000)
    arguments = parser.parse_args()
    kinds = {
        "one model, any order": arguments.clean,
        "other model, any rows": arguments.mixed,
        "other model, a range": arguments.mixed,
        "rotated, any rows": arguments.mixed,
        "one model, sorted by class": arguments.mixed,
    }
    print("| set | column | draws | alarms | told apart, median | most | of the part, foreign |")
    print("|---|---|---|---|---|---|---|")
    for path in arguments.sets:
        data = EmbeddedSet.load(path)
        for kind, count in kinds.items():
            found = draws(data, kind, count, arguments.rows)
            alarms = sum(one is not None and one.found for one, _ in found)
            apart = [one.told_apart if one is not None and one.rank_ratio >= SAME_RANK else 0.0 for one, _ in found]
            purity = statistics.median(share for _, share in found)
            print(
                f"| {data.name} | {kind} | {count} | {alarms} "
                f"| {100 * statistics.median(apart):.1f} % | {100 * max(apart):.1f} % | {100 * purity:.0f} % |",
                flush=True,
            )


if __name__ == "__main__":
    main()
