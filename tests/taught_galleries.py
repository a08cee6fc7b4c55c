"""Galleries whose upgrade teaches itself: items that two models see, with labels."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

import compatstore as cs
from compatstore.trainers import Ridge

ITEMS, LATENT, SHORT, LONG = 400, 12, 16, 20
IDS = [f"item-{number:04d}" for number in range(ITEMS)]
# The cheapest learner: all candidates take seconds more in each round.
CHEAP = (Ridge(penalties=(0.1,)),)
FIRST = cs.Learn(first=50, candidates=CHEAP)


@dataclass(frozen=True)
class Counted(cs.Learn):
    """Notes the pairs of each round."""

    first: int = 50
    candidates: tuple = CHEAP
    least_gain: float | None = None
    rounds: list = field(default_factory=list)

    def train(self, training, tried=None):
        self.rounds.append(len(training))
        return super().train(training, tried)


class Model:
    """Looks native vectors up by id, and counts the items that it was asked for."""

    dim, spec, reads = LONG, "", "id"

    def __init__(self, native):
        self._rows, self.asked = dict(zip(IDS, native, strict=True)), []
        self.fingerprint = f"model-{native[0, 0]:.6f}"

    def encode(self, ids):
        self.asked += ids
        return np.array([self._rows[item] for item in ids], np.float32)


class SlowModel(Model):
    """Takes 30 ms for an item, so that it takes less time to learn than to embed all items."""

    def encode(self, ids):
        time.sleep(0.03 * len(ids))
        return super().encode(ids)


class World:
    """Items whose two models see the same latent values, each with noise of its own."""

    def __init__(self, noise=0.3, seed=0):
        random = np.random.default_rng(seed)
        self.labels = random.integers(0, 20, ITEMS)
        latent = random.normal(size=(20, LATENT))[self.labels] + 0.6 * random.normal(size=(ITEMS, LATENT))
        self.source = self._seen(latent, SHORT, noise, random)
        self.native = self._seen(latent, LONG, 0.1, random)
        self.model = Model(self.native)

    @staticmethod
    def _seen(latent, dim, noise, random):
        seen = latent @ random.normal(size=(LATENT, dim)) + noise * random.normal(size=(len(latent), dim))
        return (seen / np.linalg.norm(seen, axis=1, keepdims=True)).astype(np.float32)

    def gallery(self, folder, **options):
        v1 = cs.EmbeddingVersion("v1", dim=SHORT, metric="cosine", normalised=True)
        gallery = cs.Gallery.create(str(folder / "gallery.lance"), v1)
        gallery.add({"id": IDS, "vector": self.source, "label": self.labels})
        encoder = {"encoder": self.model} | options
        gallery.register(cs.EmbeddingVersion("v2", dim=LONG, metric="cosine", normalised=True, **encoder))
        return gallery


def registry_of(gallery):
    return gallery._catalog.registry()


def served(gallery):
    """How searches use the upgrade, and the weight of its fusion."""
    registry = registry_of(gallery)
    record = registry.serving.get("v2")
    return (None, None) if record is None else (record.serving, record.fusion.weight)


def steps(gallery):
    return [
        entry.step for entry in gallery.maintenance.history() if entry.step in ("backfill", "learn", "hop", "ready")
    ]
