"""Two spaces of items that have classes, for trainers that read labels."""

import numpy as np


def classes(n=1500, seed=0, unit=True):
    """Six classes in a target space of which the source sees only some directions."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(6, size=n)
    centres = np.random.default_rng(7).normal(size=(6, 8))
    native = centres[labels] + 0.4 * rng.normal(size=(n, 8))
    source = np.tanh(native[:, :4] + 0.3 * rng.normal(size=(n, 4)))
    if unit:
        native /= np.linalg.norm(native, axis=1, keepdims=True)
    return source, native, labels


def unit(vectors):
    """Vectors of unit length, float32."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
