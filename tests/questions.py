"""Items that two models see, and questions from outside with what is correct for them."""

from __future__ import annotations

import numpy as np

import compatstore as cs

ITEMS, ASKED, LATENT = 500, 160, 10
IDS = [f"item-{number:04d}" for number in range(ITEMS)]
ASKING = [f"query-{number:03d}" for number in range(ASKED)]


class Questions:
    """Items that two models see, and questions from outside, each near two or three items that are correct for it.

    The source sees a share of all that is `unknown` to it near one place.
    """

    def __init__(self, noise=0.5, seed=0, *, unit=False, unknown=0.0):
        random = np.random.default_rng(seed)
        items = random.normal(size=(ITEMS, LATENT))
        self.correct = [random.choice(ITEMS, random.integers(1, 4), replace=False) for _ in range(ASKED)]
        questions = np.array([items[own].mean(axis=0) for own in self.correct])
        latent = np.concatenate([items, questions + 0.2 * random.normal(size=questions.shape)])
        self.spaces = [
            (latent @ random.normal(size=(LATENT, dim)) + error * random.normal(size=(len(latent), dim))).astype("f4")
            for dim, error in ((12, noise * 3), (16, 0.3))
        ]
        if unknown:
            place, rows = 10 * random.normal(size=12).astype("f4"), random.random(len(latent)) < unknown
            self.spaces[0][rows] = place + 0.3 * self.spaces[0][rows]
        if unit:
            self.spaces = [space / np.linalg.norm(space, axis=1, keepdims=True) for space in self.spaces]
        self.native = self.spaces[1][:ITEMS]
        self.asked = []

    def encode(self, ids):
        self.asked += ids
        return self.native[[IDS.index(item) for item in ids]]

    def queries(self, rows=slice(None)):
        qrels = {name: {IDS[item]: 2 for item in own} for name, own in zip(ASKING, self.correct, strict=True)}
        given = {name: space[ITEMS:][rows] for name, space in zip(("v1", "v2"), self.spaces, strict=True)}
        return cs.Queries(queries={"id": ASKING[rows], **given}, qrels=qrels)

    def gallery(self, folder):
        encoder = cs.encoders.Function(self.encode, 16, fingerprint="native", reads="id")
        gallery = cs.Gallery.create(str(folder / "g.lance"), cs.EmbeddingVersion("v1", dim=12, metric="cosine"))
        gallery.add({"id": IDS, "vector": self.spaces[0][:ITEMS]})
        gallery.register(cs.EmbeddingVersion("v2", dim=16, metric="cosine", encoder=encoder))
        return gallery
