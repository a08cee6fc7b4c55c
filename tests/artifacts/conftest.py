import numpy as np
import pytest

from compatstore.artifacts import Architecture, Artifact, Side, Space
from compatstore.versions import EmbeddingVersion

ARCHITECTURE = Architecture(
    source_dim=6,
    side_dim=3,
    output_dim=4,
    source_branch=(8, 8),
    side_branch=(5,),
    mixer=(16,),
    skip=True,
    uncertainty=True,
    normalise=True,
)


def random_tensors(architecture, seed=0, prefix=""):
    rng = np.random.default_rng(seed)
    return {prefix + name: rng.normal(size=shape).astype(np.float32) for name, shape in architecture.shapes().items()}


@pytest.fixture
def architecture():
    return ARCHITECTURE


@pytest.fixture
def tensors():
    return random_tensors(ARCHITECTURE)


@pytest.fixture
def v1():
    return EmbeddingVersion("v1", dim=6, metric="cosine", side_dim=3)


@pytest.fixture
def v2():
    return EmbeddingVersion("v2", dim=4, metric="cosine", side_dim=2)


@pytest.fixture
def forward(v1, v2):
    """A forward transform with side-information, uncertainty and g, between v1 and v2."""
    g = Architecture(source_dim=6, side_dim=3, output_dim=2)
    return Artifact.create(
        "ForwardTransform",
        method="by hand",
        source=Space.of(v1),
        target=Space.of(v2),
        side_source=Side(dim=3, fingerprint=v1.side_fingerprint),
        side_target=Side(dim=2, fingerprint=v2.side_fingerprint),
        networks={"h": ARCHITECTURE, "g": g},
        tensors=random_tensors(ARCHITECTURE, prefix="h.") | random_tensors(g, prefix="g."),
        settings={"widths": (8, 8)},
        figures={"h": {"rows": 3.0}},
    )
