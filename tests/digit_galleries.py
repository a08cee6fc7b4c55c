"""Galleries of handwritten digits with labels, whose hop is the best linear map: for what measures retrieval."""

from __future__ import annotations

import numpy as np

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space
from digits import load_digits

DIGITS, LABELS = load_digits()
DIGITS = DIGITS.astype(np.float32)
IDS = [f"digit-{number}" for number in range(len(DIGITS))]


def gallery_of(tmp_path, source, native, *, encoder=True):
    """A gallery of the first digits whose hop is the best linear map of source on native vectors."""
    ids = IDS[: len(source)]
    v1 = cs.EmbeddingVersion("v1", dim=source.shape[1], metric="l2")
    models = {"encoder": cs.encoders.Precomputed(dict(zip(ids, native, strict=True)))} if encoder else {}
    v2 = cs.EmbeddingVersion("v2", dim=native.shape[1], metric="l2", **models)
    weights = np.linalg.lstsq(source, native, rcond=None)[0].T.astype(np.float32)
    h = Artifact.create(
        "ForwardTransform",
        source=Space.of(v1),
        target=Space.of(v2),
        networks={"h": Architecture(source_dim=source.shape[1], output_dim=native.shape[1])},
        tensors={"h.mixer.0.weight": weights, "h.mixer.0.bias": np.zeros(len(weights), np.float32)},
    )
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), v1)
    gallery.add({"id": ids, "vector": source, "digit": LABELS[: len(ids)]})
    gallery.register(v2)
    gallery.artifacts.link(h)
    return gallery
