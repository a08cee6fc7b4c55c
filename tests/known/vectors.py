"""What every vector must be: models that are functions of an item's source alone, and an artifact."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal
from zlib import crc32

import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.integrations.models import FrameworkModel

SOURCE_DIM, TARGET_DIM, SIDE_DIM = 12, 16, 5
LABELS = 4
SECONDS_PER_ITEM = 1e-4
ENCODED = "LIVES_ENCODED"  # environment variable: file of the sources that the target's encoder embeds
_MIXING = np.random.default_rng(0).normal(0, SOURCE_DIM**-0.5, (SOURCE_DIM, TARGET_DIM)).astype(np.float32)
_ERROR = np.random.default_rng(1).normal(0, 0.05, (SOURCE_DIM, TARGET_DIM)).astype(np.float32)


def noise(source: str, dim: int, model: bytes) -> np.ndarray:
    """(dim,) float32 in [-1, 1), the same for the same source and model on any machine."""
    digest = blake2b(source.encode(), digest_size=4 * dim, person=model).digest()
    return (np.frombuffer(digest, "<i4") / 2.0**31).astype(np.float32)


@lru_cache(1 << 16)
def source_vector(source: str) -> np.ndarray:
    """What the source model makes of a source: (12,) float32."""
    return noise(source, SOURCE_DIM, b"source")


@lru_cache(1 << 16)
def target_vector(source: str) -> np.ndarray:
    """What the target model makes of it: near a linear function of the source's, so that a transform can learn it."""
    return source_vector(source) @ _MIXING + np.float32(0.1) * noise(source, TARGET_DIM, b"target")


@lru_cache(1 << 16)
def side_vector(source: str) -> np.ndarray:
    """What the target's side-information model makes of it: (5,) float32."""
    return noise(source, SIDE_DIM, b"side")


def label(source: str) -> str:
    """The metadata of an item with that source: one of a few labels."""
    return f"label {crc32(source.encode()) % LABELS}"


class Model:
    """An encoder; the target's takes a little time for each item, so that kills can land in it.

    Attributes:
        of_frameworks: The same model as the adapters of other frameworks take it.
    """

    reads: Literal["source", "id"] = "source"

    def __init__(self, name: str) -> None:
        self.name = name
        self.dim, self._vector = _VECTORS[name]
        self.spec = ""
        self.of_frameworks = FrameworkModel(name, self.encode, self.encode)
        self.fingerprint = self.of_frameworks.encoder(self.dim).fingerprint

    def encode(self, sources: Sequence[Any]) -> np.ndarray:
        """Embed: n texts -> (n, dim) float32."""
        if self.name == "v2":
            time.sleep(SECONDS_PER_ITEM * len(sources))
            if log := os.environ.get(ENCODED):
                with open(log, "a") as file:
                    file.write("".join(f"{source}\n" for source in sources))
        made = [self._vector(source) for source in sources]
        return np.stack(made) if made else np.empty((0, self.dim), np.float32)


_VECTORS = {"v1": (SOURCE_DIM, source_vector), "v2": (TARGET_DIM, target_vector), "v2, side": (SIDE_DIM, side_vector)}
ENCODERS = {name: Model(name) for name in ("v1", "v2")}
SIDE_ENCODERS = {"v2": Model("v2, side")}
SOURCE = cs.EmbeddingVersion("v1", dim=SOURCE_DIM, metric="l2", encoder=ENCODERS["v1"])
TARGET = cs.EmbeddingVersion(
    "v2", dim=TARGET_DIM, metric="l2", encoder=ENCODERS["v2"], side_dim=SIDE_DIM, side_encoder=SIDE_ENCODERS["v2"]
)


def linear(weight: np.ndarray, method: str) -> Artifact:
    """A transform of one matrix, (12, 16), with a sigma head."""
    architecture = Architecture(source_dim=SOURCE_DIM, output_dim=TARGET_DIM, uncertainty=True)
    rng = np.random.default_rng(2)
    tensors = {
        f"h.{name}": rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in architecture.shapes().items()
    }
    tensors["h.mixer.0.weight"] = np.ascontiguousarray(weight.T, np.float32)
    return Artifact.create(
        "ForwardTransform",
        method=method,
        source=Space.of(SOURCE),
        target=Space.of(TARGET),
        networks={"h": architecture},
        tensors=tensors,
    )


@lru_cache(1)
def bridge() -> Artifact:
    """h: the linear part, with an error that a correction can find."""
    return linear(_MIXING + _ERROR, "known")
