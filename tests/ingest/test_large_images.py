"""An image that says it is huge is listed like one that cannot be read; the batch goes on."""

from __future__ import annotations

import numpy as np
from PIL import Image

import compatstore as cs
from compatstore.encoders.backbones import SmallConvNet
from compatstore.encoders.network import NetworkEncoder, Preprocessing


def test_an_image_beyond_the_limit_is_listed_and_the_rest_is_added(tmp_path, monkeypatch):
    sides = {"a": 20, "b": 60, "c": 20}
    for name, side in sides.items():
        Image.fromarray(np.full((side, side), 100, np.uint8)).save(tmp_path / f"{name}.png")
    encoder = NetworkEncoder(SmallConvNet(size=8, dim=4, width=2), Preprocessing(size=8, mode="L"))
    gallery = cs.Gallery.create(str(tmp_path / "g.lance"), cs.EmbeddingVersion("v1", dim=4, encoder=encoder))
    sources = [str(tmp_path / f"{name}.png") for name in sides]
    monkeypatch.setenv("COMPATSTORE_MAX_PIXELS", "1000")
    added = gallery.add({"id": list(sides), "source": sources})
    assert added.rows == 2
    ((item, why),) = added.failures
    assert item == "b"
    assert "60 x 60 pixels, more than the 1000 that are decoded" in why
    monkeypatch.delenv("COMPATSTORE_MAX_PIXELS")
    assert gallery.add({"id": ["b"], "source": [sources[1]]}).rows == 1
