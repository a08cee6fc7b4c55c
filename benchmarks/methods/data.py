"""Labelled images for the benchmark: a folder of class folders, or glyphs in an npz file."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.pairs.glyphs import read as read_glyphs
from benchmarks.pairs.texts import embed
from compatstore.arrays import FloatArray
from compatstore.encoders.images import find_classes
from compatstore.trainers import Images

TEST_SHARE = 0.3


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageSet:
    """What one set gives the benchmark.

    Args:
        name: What the tables call it.
        training: Images that models learn from.
        test: Images that no model sees: gallery and queries.
        flip: Whether a mirrored image is one of its class: not so for letters.
        others: Images of another set, which the source learns from; None where it learns from `training`.
        captions: (classes, n) float32, a text model's vector of each class's name; None where no text is stored.
    """

    name: str
    training: Images
    test: Images
    flip: bool = False
    others: Images | None = None
    captions: FloatArray | None = None


def read(path: Path, name: str, pixels: int, leave_out: Sequence[str] = ()) -> ImageSet:
    """Read a set.

    Args:
        path: An npz file of glyphs, as `benchmarks.pairs.glyphs` reads it, every 5th font for the test; a folder with
            the folders `train` and `test` of class folders; or a folder of class folders, 30 % for the test. Folders
            hold photographs, which may be mirrored.
        name: What the tables call it.
        pixels: Side that images are resized to, once.
        leave_out: Class folders to leave out.
    """
    if path.is_file():
        images, fresh = read_glyphs(path)
        return ImageSet(
            name=name, training=images.take(np.flatnonzero(~fresh)), test=images.take(np.flatnonzero(fresh))
        )
    if (path / "train").is_dir() and (path / "test").is_dir():
        training, test = (_folder(path / part, pixels, leave_out) for part in ("train", "test"))
        return ImageSet(name=name, training=training, test=test, flip=True)
    training, test = _folder(path, pixels, leave_out).split(TEST_SHARE, seed=0)
    return ImageSet(name=name, training=training, test=test, flip=True)


def searching(data: ImageSet, other: ImageSet) -> ImageSet:
    """What models learn from is of one set, and what they search of another, of as many channels."""
    return replace(data, name=f"{data.name}, searching {other.name}", test=other.test)


def following(data: ImageSet, other: ImageSet) -> ImageSet:
    """The source learns from another set, of as many channels; the target learns from this one, which is searched."""
    return replace(data, name=f"{data.name} after {other.name}", others=other.training)


def captioned(data: ImageSet, model: str) -> ImageSet:
    """What is stored of an image is the vector of its class's name, by a text model of `benchmarks.pairs.texts`."""
    names = [f"a photo of {name.replace('_', ' ').lower()}" for name in data.training.class_names]
    return replace(data, name=f"{data.name}, captions by {model}", captions=embed(model, names))


def _folder(path: Path, pixels: int, leave_out: Sequence[str]) -> Images:
    """Read a folder of class folders into memory, resized."""
    paths, labels, names = find_classes(path)
    kept = [name for name in names if name not in leave_out]
    chosen = [row for row, label in enumerate(labels) if names[label] in kept]

    def pixels_of(row: int) -> np.ndarray:
        with Image.open(paths[row]) as image:
            return np.asarray(image.convert("RGB").resize((pixels, pixels), Image.Resampling.BILINEAR))

    with ThreadPoolExecutor() as pool:
        array = np.stack(list(pool.map(pixels_of, chosen)))
    return Images(array, [kept.index(names[labels[row]]) for row in chosen], tuple(kept))
