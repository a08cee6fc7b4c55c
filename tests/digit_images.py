"""The handwritten digits as images with labels, in two parts: to learn from, and to test on."""

from __future__ import annotations

import functools

import numpy as np

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
