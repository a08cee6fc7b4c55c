r"""Two real sets whose embeddings take seconds and no network: settings are chosen on them that other sets report.

    python -m benchmarks.pairs.plain --glyphs glyphs.npz --fonts fonts.npz --characters characters.npz

Pixels of glyphs, halved to 16 x 16. Source: their 64 principal components. Target: discriminants, 93 of characters or
128 of fonts, these scaled to unit length. Both are fitted without the rows that are searched: every 5th font is kept
from the models of "Characters", every 5th character from those of "Fonts".
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.pairs.embedded import SOURCE, TARGET, EmbeddedSet
from benchmarks.pairs.glyphs import HELD_OUT_FONTS
from compatstore.arrays import FloatArray

VALUES = 64
DISCRIMINANTS = {"Characters": 93, "Fonts": 128}
FEWEST = 60

Labels = npt.NDArray[np.int64]


def embedded(name: str, pixels: FloatArray, labels: Labels, fresh: npt.NDArray[np.bool_]) -> EmbeddedSet:
    """Fit both models on the rows that are not fresh, and embed all: (n, 256) pixels."""
    known, unit = pixels[~fresh], name == "Fonts"
    dim = min(DISCRIMINANTS[name], len(np.unique(labels)) - 1)
    model = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1, n_components=dim).fit(known, labels[~fresh])
    target = model.transform(pixels).astype(np.float32)
    if unit:
        target /= np.linalg.norm(target, axis=1, keepdims=True)
    source = PCA(min(VALUES, len(known)), random_state=0).fit(known).transform(pixels).astype(np.float32)
    return EmbeddedSet(name=name, labels=labels, fresh=fresh, vectors={SOURCE: source, TARGET: target})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glyphs", type=Path, required=True)
    parser.add_argument("--fonts", type=Path, required=True)
    parser.add_argument("--characters", type=Path, required=True)
    parser.add_argument("--fewest", type=int, default=FEWEST, help="glyphs that a class must have")
    options = parser.parse_args()
    with np.load(options.glyphs) as file:
        halved = file["x"].reshape(-1, 16, 2, 16, 2).mean(axis=(2, 4)).reshape(-1, 256).astype(np.float32) / 255
        characters, fonts = (np.unique(file[key], return_inverse=True)[1] for key in ("char", "font"))
    readings = {"Characters": (options.characters, characters, fonts), "Fonts": (options.fonts, fonts, characters)}
    for name, (path, classes, apart) in readings.items():
        kept = np.bincount(classes)[classes] >= options.fewest
        labels = np.unique(classes[kept], return_inverse=True)[1].astype(np.int64)
        made = embedded(name, halved[kept], labels, apart[kept] % HELD_OUT_FONTS == 0)
        made.save(path)
        print(f"{name}: {len(labels):,} glyphs of {labels.max() + 1} classes, {made.fresh.sum():,} to search")


if __name__ == "__main__":
    main()
