"""Small galleries for tests: several fragments, side-information, an artifact linked and ready to hop."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space

SOURCE = cs.EmbeddingVersion("v1", dim=24, metric="l2", side_dim=8)
TARGET = cs.EmbeddingVersion("v2", dim=40, metric="cosine")
FRAGMENTS, ROWS = 60, 700


def artifact(source=SOURCE, target=TARGET, seed=0):
    """A forward transform with a side branch, a hidden layer and a sigma head, weights at random."""
    architecture = Architecture(
        source_dim=source.dim,
        side_dim=source.side_dim,
        output_dim=target.dim,
        source_branch=(64,),
        side_branch=(64,) if source.side_dim else (),
        mixer=(256,),
        uncertainty=True,
        normalise=True,
    )
    rng = np.random.default_rng(seed)
    tensors = {
        f"h.{name}": rng.normal(0, shape[-1] ** -0.5, shape).astype(np.float32)
        for name, shape in architecture.shapes().items()
    }
    return Artifact.create(
        "ForwardTransform",
        method="random",
        source=Space.of(source),
        target=Space.of(target),
        side_source=_side(source),
        networks={"h": architecture},
        tensors=tensors,
    )


def cancelling(source, target):
    """A transform whose outputs are small differences of large values, which bfloat16 and int8 cannot hold."""
    architecture = Architecture(source_dim=source.dim, output_dim=target.dim, source_branch=(2 * target.dim,))
    weights = np.random.default_rng(0).normal(size=(target.dim, source.dim))
    same = np.eye(target.dim)
    tensors = {
        "h.source.0.weight": np.concatenate([weights, np.zeros_like(weights)]),
        "h.source.0.bias": np.full(2 * target.dim, 4096.0),
        "h.mixer.0.weight": np.concatenate([same, -same], axis=1),
        "h.mixer.0.bias": np.zeros(target.dim),
    }
    return Artifact.create(
        "ForwardTransform",
        source=Space.of(source),
        target=Space.of(target),
        networks={"h": architecture},
        tensors=tensors,
    )


def _side(source):
    from compatstore.artifacts import Side

    return None if source.side_dim is None else Side(dim=source.side_dim, fingerprint=source.side_fingerprint)


def items(start, count):
    """Items whose vectors are a function of their number alone."""
    rng = np.random.default_rng(start)
    return {
        "id": [f"item-{number:06d}" for number in range(start, start + count)],
        "vector": rng.normal(size=(count, SOURCE.dim)).astype(np.float32),
        "side": rng.normal(size=(count, SOURCE.side_dim)).astype(np.float32),
        "number": np.arange(start, start + count),
    }


def make(path, fragments=FRAGMENTS, rows=ROWS):
    """A gallery of several fragments with an artifact linked, ready to hop; some rows were deleted."""
    gallery = cs.Gallery.create(path, SOURCE)
    for part in range(fragments):
        gallery.add(items(part * rows, rows))
    gallery.delete([f"item-{number:06d}" for number in range(0, fragments * rows, 97)])
    gallery.register(TARGET)
    gallery.artifacts.link(artifact())
    return gallery


def split(path, fragments):
    """Write the rows of a gallery into fragments of equal size, which a gallery would merge, and delete some rows.

    The next write of the gallery's own would merge them again.
    """
    table = lance.dataset(str(path)).to_table()
    lance.dataset(str(path)).delete("true")
    rows = -(-table.num_rows // fragments)
    for part in range(fragments):
        lance.write_dataset(table.slice(part * rows, rows), str(path), mode="append")
    lance.dataset(str(path)).delete("number % 89 = 5")


def orphans(path):
    """Data files that no table version names."""
    table = lance.dataset(str(path))
    versions = [table.checkout_version(version["version"]) for version in table.versions()]
    fragments = [fragment for version in versions for fragment in version.get_fragments()]
    named = {file.path for fragment in fragments for file in fragment.data_files()}
    return {file.name for file in Path(path, "data").iterdir()} - named
