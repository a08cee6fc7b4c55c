"""Encoders in another process are the same models."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import compatstore as cs
from compatstore.encoders.specs import PortableEncoder

VECTORS = {"a": [3.0, 4.0, 12.0], "b": [1.0, 0.0, 0.0]}


def moved(encoder):
    """The encoder as another process has it."""
    return pickle.loads(pickle.dumps(PortableEncoder.of(encoder))).build()


def test_an_encoder_with_a_spec_is_built_from_it(tmp_path):
    path = tmp_path / "vectors.npz"
    np.savez(path, id=np.array(list(VECTORS)), vector=np.array(list(VECTORS.values()), np.float32))
    encoder = cs.encoders.Precomputed(path)
    assert PortableEncoder.of(encoder).arguments == (encoder.spec,)
    assert moved(encoder).encode(["b", "a"]).tolist() == [VECTORS["b"], VECTORS["a"]]


def test_one_without_a_spec_goes_as_it_is_and_what_is_derived_of_it_too():
    whole = cs.encoders.Precomputed(VECTORS)
    assert moved(whole).encode(["a"]).tolist() == [VECTORS["a"]]
    shorter = cs.encoders.Derived(whole, cs.Derivation(dim=2, normalise=True))
    assert moved(shorter).fingerprint == shorter.fingerprint
    assert moved(shorter).encode(["a"]).tolist() == shorter.encode(["a"]).tolist()


def test_another_model_under_the_same_spec_is_refused(tmp_path):
    path = tmp_path / "vectors.npz"
    np.savez(path, id=np.array(["a"]), vector=np.ones((1, 3), np.float32))
    portable = PortableEncoder.of(cs.encoders.Precomputed(path))
    np.savez(path, id=np.array(["a"]), vector=np.zeros((1, 3), np.float32))
    with pytest.raises(cs.errors.Incompatible, match="in another process"):
        portable.build()
