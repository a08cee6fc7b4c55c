"""Galleries of random items, and seconds of calls that take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space

ADDED_AT_ONCE = 50_000


def near(rng: np.random.Generator, centres: Any, rows: int) -> Any:
    """(rows, dim) float32 around centres, each of them as likely."""
    noise = 0.6 * rng.standard_normal((rows, centres.shape[1]), np.float32)
    return centres[rng.integers(0, len(centres), rows)] + noise


def filled(
    path: str | Path, rows: int, dim: int, *, unit: bool = False, encoder: Any = None, centres: Any = None
) -> cs.Gallery:
    """A gallery of random vectors in v1, l2; each item's source is its id.

    Args:
        path: Of the table.
        rows: Items.
        dim: Length of the vectors.
        unit: True for vectors of unit length.
        encoder: Of v1.
        centres: (n, dim) float32 that items are near; none by default.
    """
    version = cs.EmbeddingVersion("v1", dim=dim, metric="l2", normalised=unit, encoder=encoder)
    gallery, rng = cs.Gallery.create(str(path), version), np.random.default_rng(0)
    for start in range(0, rows, ADDED_AT_ONCE):
        ids = [f"{number:09d}" for number in range(start, min(start + ADDED_AT_ONCE, rows))]
        vectors = (
            rng.normal(size=(len(ids), dim)).astype(np.float32) if centres is None else near(rng, centres, len(ids))
        )
        if unit:
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        gallery.add({"id": ids, "vector": vectors, "source": ids})
    return gallery


def ones(dim: int) -> cs.encoders.Function:
    """An encoder that costs nothing."""
    return cs.encoders.Function(lambda ids: np.ones((len(ids), dim), np.float32), dim, fingerprint="ones", reads="id")


def transform(gallery: cs.Gallery, **layers: Any) -> Artifact:
    """A transform from v1 to v2 with a sigma head, weights at random; by default a small one."""
    dim = gallery.version("v1").dim
    shape = Architecture(source_dim=dim, output_dim=dim, **(layers or {"mixer": (64,), "uncertainty": True}))
    spaces = {role: Space.of(gallery.version(name)) for role, name in (("source", "v1"), ("target", "v2"))}
    rng = np.random.default_rng(2)
    sizes = shape.shapes().items()
    named = {f"h.{name}": rng.normal(0, size[-1] ** -0.5, size).astype(np.float32) for name, size in sizes}
    return Artifact.create("ForwardTransform", networks={"h": shape}, tensors=named, **spaces)


def by_turns(
    ways: Mapping[str, Callable[[Any], object]], inputs: Iterable[Any], clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Seconds of each way for each input: way -> (n,) float64. A busy machine slows all, as they take turns."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for each in inputs:
        for name, way in ways.items():
            started = clock()
            way(each)
            taken[name].append(clock() - started)
    return {name: np.array(seconds) for name, seconds in taken.items()}
