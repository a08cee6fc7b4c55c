"""Artifacts of every kind, with weights at random, and the exported file of each."""

from __future__ import annotations

import numpy as np

from compatstore.artifacts import Architecture, Artifact, Side, Space

DIM, TO, SIDE, NEXT = 12, 8, 16, 4


def tensors(network, architecture, seed=0):
    rng = np.random.default_rng(seed)
    return {
        f"{network}.{name}": (rng.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in architecture.shapes().items()
    }


def forward(*, dtype="float32", source=None, target=None, seed=0, **options):
    """A forward transform with side-information, g and sigma^2, unless `options` say otherwise."""
    settings = {
        "source_branch": (20, 16),
        "side_branch": (10,),
        "mixer": (24,),
        "skip": True,
        "uncertainty": True,
        "normalise": True,
        **options,
    }
    h = Architecture(source_dim=DIM, side_dim=SIDE, output_dim=TO, **settings)
    g = Architecture(source_dim=DIM, side_dim=SIDE, output_dim=NEXT, mixer=(6,))
    return Artifact.create(
        "ForwardTransform",
        source=source or Space(dim=DIM, name="v1", fingerprint="1" * 32),
        target=target or Space(dim=TO, name="v2", fingerprint="2" * 32),
        side_source=Side(dim=SIDE, dtype=dtype),
        side_target=Side(dim=NEXT),
        networks={"h": h, "g": g},
        tensors=tensors("h", h, seed) | tensors("g", g, seed),
    )


def plain(dim=DIM, to=TO, kind="ForwardTransform", seed=0, seen=None, **options):
    """A network without side-information."""
    h = Architecture(source_dim=dim, output_dim=to, **options)
    source, target = (to, dim) if kind == "QueryAdapter" else (dim, to)
    made = {"source": Space(dim=source), "target": Space(dim=target)}
    return Artifact.create(kind, **made, networks={"h": h}, tensors=tensors("h", h, seed), seen=seen)


def second():
    """What goes on from `forward`: it reads the vectors and the side-information that the first writes."""
    h = Architecture(source_dim=TO, side_dim=NEXT, output_dim=5, mixer=(9,))
    return Artifact.create(
        "ForwardTransform",
        source=Space(dim=TO, name="v2", fingerprint="2" * 32),
        target=Space(dim=5, name="v3", fingerprint="3" * 32),
        side_source=Side(dim=NEXT),
        networks={"h": h},
        tensors=tensors("h", h),
    )


def space(dim, **said):
    return Space(dim=dim, **said)


ARTIFACTS = {
    "h, g and sigma": forward(),
    "side-information as bits": forward(dtype="bits", skip=False),
    "one layer": plain(),
    "deep, unit length": plain(source_branch=(30, 20), mixer=(16, 16), normalise=True),
    "sigma of the length": plain(mixer=(16,), normalise=True, uncertainty="length"),
    "radial layer": plain(mixer=(16, 12), radial=True, skip=True, normalise=True),
    "query adapter": plain(kind="QueryAdapter", mixer=(16,), uncertainty=True),
    "prefix": Artifact.create("Prefix", source=space(5), target=space(DIM)),
    "identity": Artifact.create("Identity", source=space(DIM), target=space(DIM)),
    "derivation that cuts and scales": Artifact.create(
        "Derivation", source=space(DIM), target=space(5, normalised=True)
    ),
    "derivation that cuts": Artifact.create("Derivation", source=space(DIM, normalised=True), target=space(5)),
    "derivation to another metric": Artifact.create(
        "Derivation", source=space(DIM, metric="cosine"), target=space(DIM, metric="dot")
    ),
}


def rows(n=1_300, dim=DIM, seed=1):
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)
