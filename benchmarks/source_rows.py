"""What stands for a class in the source's head where the source does not know all classes: rows, or means of features.

    python benchmarks/source_rows.py [--seeds 3] [--epochs 10] [--images 1000]

trains BCT on ten digits against a source of five, and prints CMC-1 of target queries on the source's gallery.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits

from compatstore.trainers import BCT, Images, Independent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=10, help="of the source; the target takes two more")
    parser.add_argument("--images", type=int, help="to train on, all that there are by default")
    options = parser.parse_args()
    data = load_digits()
    training, test = Images((data.images * 255 / 16).astype(np.uint8), data.target).split(0.4, seed=0)
    training = training.take(range(options.images or len(training)))
    print("| head | seed | s/s | t/s, rows and means | t/s, means | t/t, rows and means | t/t, means |")
    print("|---|---|---|---|---|---|---|")
    for head in ("linear", "unit-linear", "cosine"):
        for seed in range(options.seeds):
            known = training.of_classes(range(5))
            source = Independent(dim=16, width=8, epochs=options.epochs, head=head, seed=seed).fit(known)
            found = [
                BCT(
                    dim=16, width=12, epochs=options.epochs + 2, batch_size=32, head=head, source_rows=rows,
                    seed=seed + 100,
                ).fit(training, source, held_out=test).figures
                for rows in ("head", "means")
            ]  # fmt: skip
            cells = [found[0]["s/s"], *(one["t/s"] for one in found), *(one["t/t"] for one in found)]
            print(f"| {head} | {seed} | " + " | ".join(f"{100 * cell:.1f}" for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
