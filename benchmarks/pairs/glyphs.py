r"""Train models of three generations on glyphs and embed all of them, for `benchmarks.pairs.run`.

    python -m benchmarks.pairs.glyphs --glyphs glyphs.npz --out embedded.npz [--size cpu]

The npz file holds `x` (n, 32, 32) uint8, `char` (n,) and `font` (n,). A class is a character that 300 fonts or more
have; every 5th font is kept from all training. The source knows every second class, the middle model three of four, the
target all. Side-information is stored with the source and the middle model: SimCLR trained on that model's classes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.pairs.embedded import MIDDLE, SOURCE, TARGET, EmbeddedSet
from compatstore.arrays import FloatArray
from compatstore.errors import NotFound
from compatstore.trainers import Augmentation, Images, Independent, SimCLR
from compatstore.trainers.training import EpochProgress

FEWEST_FONTS = 300
HELD_OUT_FONTS = 5

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One generation of models.

    Args:
        knows: Of four classes in a row, those that it is trained on.
        dim: Values of an embedding.
        width: Channels of the network's first stage.
        epochs: Passes over its images.
        side_epochs: Passes of the side-information model; 0 for none.
    """

    knows: Sequence[int]
    dim: int
    width: int
    epochs: int
    side_epochs: int = 0


GENERATIONS = {
    SOURCE: Generation(knows=(0, 2), dim=64, width=16, epochs=2, side_epochs=2),
    MIDDLE: Generation(knows=(0, 1, 2), dim=96, width=16, epochs=2, side_epochs=2),
    TARGET: Generation(knows=(0, 1, 2, 3), dim=128, width=24, epochs=4),
}
TINY = {name: replace(one, width=4, epochs=2, side_epochs=min(one.side_epochs, 2)) for name, one in GENERATIONS.items()}
SIZES = {"tiny": TINY, "cpu": GENERATIONS}


def read(path: Path, fewest: int = FEWEST_FONTS) -> tuple[Images, npt.NDArray[np.bool_]]:
    """Read the glyphs of characters that at least `fewest` fonts have, and which are of fonts kept from training."""
    if not path.is_file():
        raise NotFound("read glyphs", expected="an npz file", found=str(path), fix="Pass --glyphs FILE.")
    with np.load(path) as file:
        pixels, characters, fonts = file["x"], file["char"], file["font"]
    names, labels, counts = np.unique(characters, return_inverse=True, return_counts=True)
    kept = counts[labels] >= fewest
    chosen, labels = np.unique(labels[kept], return_inverse=True)
    images = Images(pixels[kept], labels, tuple(map(str, names[chosen])))
    return images, fonts[kept] % HELD_OUT_FONTS == 0


def _say(progress: EpochProgress) -> None:
    print(f"  epoch {progress.epoch} of {progress.epochs}: loss {progress.loss:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glyphs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="cpu")
    options = parser.parse_args()
    images, fresh = read(options.glyphs, 20 if options.size == "tiny" else FEWEST_FONTS)
    training = images.take(np.flatnonzero(~fresh))
    print(f"{len(images):,} glyphs, {len(images.class_names)} characters, {len(training):,} to train on", flush=True)
    vectors: dict[str, FloatArray] = {}
    sides: dict[str, FloatArray] = {}
    heads: dict[str, FloatArray] = {}
    for version, generation in SIZES[options.size].items():
        known = [label for label in range(len(images.class_names)) if label % 4 in generation.knows]
        lesson, start = training.of_classes(known), time.perf_counter()
        trainer = Independent(dim=generation.dim, width=generation.width, epochs=generation.epochs)
        model = trainer.fit(lesson, progress=_say)
        vectors[version], heads[version] = model.encoder.encode(list(images.images)), model.head
        print(f"{version}: {len(known)} classes, {time.perf_counter() - start:.0f} s", flush=True)
        if generation.side_epochs:
            start = time.perf_counter()
            # As the pages were measured: no projection, and crops as those of classifiers.
            as_measured = {"projection": 0, "augmentation": Augmentation()}
            contrastive = SimCLR(dim=64, width=16, epochs=generation.side_epochs, **as_measured)
            side = contrastive.fit(lesson, progress=_say).encoder
            sides[version] = side.encode(list(images.images))
            print(f"{version}'s side-information: {time.perf_counter() - start:.0f} s", flush=True)
    EmbeddedSet(
        name="Glyphs",
        labels=np.asarray(images.labels, np.int64),
        fresh=fresh,
        vectors=vectors,
        sides=sides,
        heads={TARGET: heads[TARGET]},
    ).save(options.out)


if __name__ == "__main__":
    main()
