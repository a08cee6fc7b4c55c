"""The handwritten digits as images with labels, in two parts: to learn from, and to test on."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

import compatstore as cs
from compatstore import trainers
from digits import load_digits


@functools.cache
def halves() -> tuple[trainers.Images, trainers.Images]:
    """Digits to learn from, and others."""
    data = load_digits()
    return trainers.Images((data.images * 255 / 16).astype(np.uint8), data.target).split(0.4, seed=0)


def lessons() -> trainers.Images:
    return halves()[0]


def others() -> trainers.Images:
    return halves()[1]


def gallery_of(folder: Path, model: trainers.TrainedModel, images: trainers.Images) -> cs.Gallery:
    """A gallery of a model's embeddings as version v1; ids are positions, and a column `digit` holds the labels."""
    gallery = cs.Gallery.create(str(folder / "digits.lance"), model.version("v1"))
    vectors = model.encoder.encode(list(images.images))
    gallery.add({"id": [str(i) for i in range(len(images))], "vector": vectors, "digit": list(images.labels)})
    return gallery
