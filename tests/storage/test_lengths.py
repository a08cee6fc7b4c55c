"""A version that is declared normalised takes unit vectors only: of its encoder, of a caller, of an adopted table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput
from lazily import Lazy

lancedb = Lazy("lancedb")

MATRIX = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
UNIT = MATRIX / np.linalg.norm(MATRIX, axis=1, keepdims=True)
IDS = [f"{number}" for number in range(20)]


def cut(texts):
    """What an endpoint gives that cuts a longer embedding and does not scale it."""
    return UNIT[[int(text) for text in texts]][:, :4]


def normalised(name, dim, **settings):
    return cs.EmbeddingVersion(name, dim=dim, metric="dot", normalised=True, **settings)


def a_gallery(path):
    gallery = cs.Gallery.create(str(path), normalised("v1", 8))
    gallery.add({"id": IDS, "source": IDS, "vector": UNIT})
    return gallery


def test_vectors_of_a_caller(tmp_path):
    gallery = a_gallery(tmp_path / "g.lance")
    with pytest.raises(InvalidInput, match=r"unit length.*20 of 20 are not"):
        gallery.add({"id": [f"x{n}" for n in IDS], "vector": MATRIX})
    nearly = (UNIT[:1] * 1.001).astype(np.float16).astype(np.float32)
    assert gallery.add({"id": ["rounded"], "vector": nearly}).rows == 1
    assert len(gallery.scan()) == 21


def test_vectors_of_an_encoder(tmp_path):
    gallery = a_gallery(tmp_path / "g.lance")
    shortened = cs.encoders.Function(cut, 4, fingerprint="cut")
    gallery.register(normalised("v2", 4, encoder=shortened))
    with pytest.raises(InvalidInput, match="unit length") as error:
        gallery.upgrade("v2", backfill=1.0)
    assert "normalise=true" in error.value.fix
    assert gallery.status().versions[1].native == 0
    gallery.register(cs.EmbeddingVersion("v3", dim=4, metric="dot", encoder=shortened))
    assert gallery.upgrade("v3", backfill=1.0).missing == 0


def test_vectors_of_an_adopted_table(tmp_path):
    for name, matrix in (("unit", UNIT), ("other", MATRIX)):
        column = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), 8)
        table = lancedb.connect(tmp_path).create_table(name, pa.table({"key": IDS, "embedding": column}))
        if name == "unit":
            assert len(cs.Gallery.adopt(table, normalised("v1", 8), vector="embedding", id="key")) == 20
        else:
            with pytest.raises(InvalidInput, match="20 of 20 are not"):
                cs.Gallery.adopt(table, normalised("v1", 8), vector="embedding", id="key")
