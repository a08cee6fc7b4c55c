"""What an artifact has learned from: digests beside its weights."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import safetensors.numpy

from compatstore.artifacts import Architecture, Artifact, Space
from compatstore.errors import CorruptArtifact

DIGESTS = np.array([9, 2**63 + 5, 3, 9], np.uint64)


def artifact(seen=None):
    return Artifact.create(
        "ForwardTransform",
        source=Space(dim=3),
        target=Space(dim=2),
        networks={"h": Architecture(source_dim=3, output_dim=2)},
        tensors={"h.mixer.0.weight": np.ones((2, 3)), "h.mixer.0.bias": np.zeros(2)},
        seen=seen,
    )


def test_digests_are_kept_with_the_artifact(tmp_path):
    made = artifact(DIGESTS)
    made.save(tmp_path / "h.compat")
    loaded = Artifact.load(tmp_path / "h.compat")
    assert loaded.seen.tolist() == [3, 9, 2**63 + 5]
    assert loaded.manifest.seen == 3
    assert set(loaded.tensors) == {"h.mixer.0.weight", "h.mixer.0.bias"}
    np.testing.assert_array_equal(loaded.apply(np.ones((1, 3), np.float32)).vectors, [[3.0, 3.0]])


def test_an_artifact_without_digests_is_not_reported_as_unseen():
    made = artifact()
    assert Artifact.from_bytes(*made.to_bytes()).seen is None
    assert artifact(np.array([], np.uint64)).seen.tolist() == []


def test_digests_that_do_not_fit_the_manifest_are_refused():
    made = artifact(DIGESTS)
    other = made.amended(seen=np.array([1, 2], np.uint64))
    assert other.seen.tolist() == [1, 2]
    assert other.id != made.id
    for change in ({"seen.source": np.array([3, 2, 1], np.uint64)}, {"seen.source": np.ones(3, np.float32)}):
        weights = safetensors.numpy.save({**made.tensors, **change})
        manifest = type(made.manifest)(**{**vars(made.manifest), "weights_sha256": _sha256(weights)})
        with pytest.raises(CorruptArtifact, match=r"seen\.source"):
            Artifact(manifest, weights)


def _sha256(content):
    return hashlib.sha256(content).hexdigest()
