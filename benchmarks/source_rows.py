"""What stands for a class in the source's head where the source does not know all classes: rows, or means of features.

    python benchmarks/source_rows.py

trains BCT on ten digits against a source of five, and prints CMC-1 of target queries on the source's gallery.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from compatstore.trainers.bct import BCT
from compatstore.trainers.classifier import Independent
from compatstore.trainers.images import Images

SEEDS = range(3)


def main() -> None:
    data = load_digits()
    training, test = Images((data.images * 255 / 16).astype(np.uint8), data.target).split(0.4, seed=0)
    print("| head | seed | s/s | t/s, rows and means | t/s, means | t/t, rows and means | t/t, means |")
    print("|---|---|---|---|---|---|---|")
    for head in ("linear", "cosine"):
        for seed in SEEDS:
            known = training.of_classes(range(5))
            source = Independent(dim=16, width=8, epochs=10, head=head, seed=seed).fit(known)
            found = [
                BCT(dim=16, width=12, epochs=12, batch_size=32, head=head, source_rows=rows, seed=seed + 100)
                .fit(training, source, held_out=test)
                .figures
                for rows in ("head", "means")
            ]
            cells = [found[0]["s/s"], *(one["t/s"] for one in found), *(one["t/t"] for one in found)]
            print(f"| {head} | {seed} | " + " | ".join(f"{100 * cell:.1f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
