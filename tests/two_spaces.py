"""Labelled items in two spaces whose errors are independent, so that both versions as one are better than either."""

from __future__ import annotations

import numpy as np

import compatstore as cs
from compatstore.trainers import Pairs, Ridge

ITEMS, OUTSIDE, CLASSES = 240, 120, 30
IDS = [f"item-{number:03d}" for number in range(ITEMS)]
ASKING = [f"query-{number:03d}" for number in range(OUTSIDE)]


class World:
    """Items and queries in two spaces whose errors have nothing to do with each other."""

    def __init__(self, seed=0, worse=1.0):
        random = np.random.default_rng(seed)
        centres = random.normal(size=(CLASSES, 10))
        classes = random.integers(0, CLASSES, ITEMS + 3 * OUTSIDE)
        exact = centres[classes]
        self.v1 = (exact + worse * random.normal(size=exact.shape)).astype(np.float32)
        self.v2 = (
            (exact + random.normal(size=exact.shape)) @ random.normal(size=(10, 16)) + 0.1 * random.normal(size=16)
        ).astype(np.float32)
        self.labels, self.asked = classes[:ITEMS], classes[ITEMS : ITEMS + OUTSIDE]
        self.names = [*IDS, *ASKING]
        self.items, self.queries = slice(ITEMS), slice(ITEMS, ITEMS + OUTSIDE)
        self.pairs = slice(ITEMS + OUTSIDE, None)

    def encoders(self):
        return {
            name: cs.encoders.Precomputed(dict(zip(self.names, vectors[: len(self.names)], strict=True)))
            for name, vectors in (("v1", self.v1), ("v2", self.v2))
        }

    def gallery(self, path, *, models=True):
        encoders = self.encoders() if models else {"v1": None, "v2": None}
        v1 = cs.EmbeddingVersion("v1", dim=10, metric="l2", encoder=encoders["v1"])
        v2 = cs.EmbeddingVersion("v2", dim=16, metric="cosine", encoder=encoders["v2"])
        gallery = cs.Gallery.create(str(path), v1)
        gallery.add({"id": IDS, "vector": self.v1[self.items], "label": self.labels})
        gallery.register(v2)
        pairs = Pairs(self.v1[self.pairs], self.v2[self.pairs], source_version=v1, target_version=v2)
        gallery.artifacts.link(Ridge().fit(pairs))
        return gallery

    def both(self, row=None):
        rows = self.queries if row is None else slice(ITEMS + row, ITEMS + row + 1)
        return {"v1": self.v1[rows], "v2": self.v2[rows]}
