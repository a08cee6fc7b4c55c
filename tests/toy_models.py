"""Toy embedding models for stores of other frameworks: deterministic, small, and of two sizes."""

from __future__ import annotations

import numpy as np

OLD, NEW = 8, 24
TEXTS = [
    "a red fox runs through the forest",
    "the stock market fell on monday",
    "bake the bread for forty minutes",
    "the rocket reached its orbit",
    "a violin concerto in d major",
    "the river floods every spring",
]


def vector(text, size, shift=0):
    """A text as the sum of its words, each a vector of its own."""
    words = text.split() or [""]
    return sum(np.random.default_rng([shift, *word.encode()]).normal(size=size) for word in words).tolist()
