r"""Glyphs of free fonts, embedded by trained networks, or by principal components and discriminants.

    python -m benchmarks.sets.glyphs --glyphs glyphs.npz --out glyphs-embedded.npz
    python -m benchmarks.sets.glyphs --glyphs glyphs.npz --out characters.npz --plain Characters
    python -m benchmarks.sets.glyphs --glyphs glyphs.npz --out fonts.npz --plain Fonts

The npz file holds `x` (n, 32, 32) uint8, `char` (n,) and `font` (n,). Every 5th font is kept from all training.
Networks: the source knows every second character, the middle model three of four, the target all; SimCLR of the same
characters is the side-information of the first two. Plain: 64 principal components of the halved pixels, and
discriminants of characters or of fonts; of Fonts every 5th character is kept from the models instead.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.sets.embedded import MIDDLE, SOURCE, TARGET, EmbeddedSet, unit
from compatstore.arrays import FloatArray
from compatstore.trainers import Augmentation, Images, Independent, SimCLR

FEWEST_FONTS, FEWEST, HELD_OUT = 300, 60, 5
# Version -> characters of four in a row that it knows, values, channels of the first stage, epochs.
GENERATIONS = {SOURCE: ((0, 2), 64, 16, 2), MIDDLE: ((0, 1, 2), 96, 16, 2), TARGET: ((0, 1, 2, 3), 128, 24, 4)}
DISCRIMINANTS = {"Characters": 93, "Fonts": 128}


def read(path: Path, fewest: int = FEWEST_FONTS) -> tuple[Images, npt.NDArray[np.bool_]]:
    """Glyphs of characters that at least `fewest` fonts have, and which are of fonts kept from training."""
    with np.load(path) as file:
        pixels, characters, fonts = file["x"], file["char"], file["font"]
    names, labels, counts = np.unique(characters, return_inverse=True, return_counts=True)
    kept = counts[labels] >= fewest
    chosen, labels = np.unique(labels[kept], return_inverse=True)
    return Images(pixels[kept], labels, tuple(map(str, names[chosen]))), fonts[kept] % HELD_OUT == 0


def by_networks(path: Path, fewest: int = FEWEST_FONTS, epochs: int | None = None) -> EmbeddedSet:
    """All glyphs by models of three generations; `epochs` overrides those of all."""
    images, fresh = read(path, fewest)
    training = images.take(np.flatnonzero(~fresh))
    vectors: dict[str, FloatArray] = {}
    sides: dict[str, FloatArray] = {}
    heads: dict[str, FloatArray] = {}
    for version, (known, dim, width, own) in GENERATIONS.items():
        images_known = training.of_classes([one for one in range(len(images.class_names)) if one % 4 in known])
        passes = epochs or own
        model = Independent(dim=dim, width=width, epochs=passes).fit(images_known)
        vectors[version], heads[version] = model.encoder.encode(list(images.images)), model.head
        if version != TARGET:
            side = SimCLR(dim=64, width=16, epochs=passes, projection=0, augmentation=Augmentation())
            sides[version] = side.fit(images_known).encoder.encode(list(images.images))
        print(f"{version}: {len(images_known):,} images", flush=True)
    labels = np.asarray(images.labels, np.int64)
    own_head = {TARGET: heads[TARGET]}
    return EmbeddedSet(name="Glyphs", labels=labels, fresh=fresh, vectors=vectors, sides=sides, heads=own_head)


def plain(path: Path, name: str, fewest: int = FEWEST) -> EmbeddedSet:
    """All glyphs by principal components and discriminants, fitted on the rows that are not searched."""
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    with np.load(path) as file:
        pixels = file["x"].reshape(-1, 16, 2, 16, 2).mean(axis=(2, 4)).reshape(-1, 256).astype(np.float32) / 255
        columns = [np.unique(file[key], return_inverse=True)[1] for key in ("char", "font")]
    classes, apart = columns if name == "Characters" else columns[::-1]
    kept = np.bincount(classes)[classes] >= fewest
    labels = np.unique(classes[kept], return_inverse=True)[1].astype(np.int64)
    pixels, fresh = pixels[kept], apart[kept] % HELD_OUT == 0
    dim = min(DISCRIMINANTS[name], len(np.unique(labels)) - 1)
    model = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1, n_components=dim)
    target = model.fit(pixels[~fresh], labels[~fresh]).transform(pixels)
    source = PCA(64, random_state=0).fit(pixels[~fresh]).transform(pixels).astype(np.float32)
    target = unit(target) if name == "Fonts" else target.astype(np.float32)
    return EmbeddedSet(name=name, labels=labels, fresh=fresh, vectors={SOURCE: source, TARGET: target})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glyphs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plain", choices=DISCRIMINANTS)
    parser.add_argument("--fewest", type=int, help="glyphs that a class must have")
    parser.add_argument("--epochs", type=int)
    options = parser.parse_args()
    if options.plain:
        made = plain(options.glyphs, options.plain, options.fewest or FEWEST)
    else:
        made = by_networks(options.glyphs, options.fewest or FEWEST_FONTS, options.epochs)
    made.save(options.out)
    print(f"{made.name}: {len(made.labels):,} glyphs, {made.fresh.sum():,} to search")


if __name__ == "__main__":
    main()
