"""Shared by examples 07 to 09: texts, and a toy model of two sizes in place of a downloaded one."""

import numpy as np

_DOCUMENTS = [getattr(np, name).__doc__ or "" for name in dir(np)]
TEXTS = sorted({text[50:350] for text in _DOCUMENTS if len(text) > 900})[:200]


def embed(text, size):
    """Embed a text: the sum of its words, each of which is a random vector of `size` values."""
    return sum(np.random.default_rng([*word.encode()]).normal(size=size) for word in text.split()).tolist()
