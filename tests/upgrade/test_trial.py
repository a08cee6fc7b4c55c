from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

import compatstore as cs
from compatstore.artifacts import Architecture, Artifact, Space

DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS.astype(np.float32)
IDS = [f"digit-{number}" for number in range(len(DIGITS))]


def gallery_of(tmp_path, source, native, *, encoder=True):
    """A gallery of digits whose hop is the best linear map of source on native vectors."""
    v1 = cs.EmbeddingVersion("v1", dim=source.shape[1], metric="l2")
    models = {"encoder": cs.encoders.Precomputed(dict(zip(IDS, native, strict=True)))} if encoder else {}
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
    gallery.add({"id": IDS, "vector": source, "digit": LABELS})
    gallery.register(v2)
    gallery.link(h)
    return gallery


def test_a_better_target_is_advised_and_nothing_is_written(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS[:, ::9], DIGITS)
    before = gallery.status().table_version
    table = gallery.evaluate("v2", labels="digit", sample=1600)
    assert gallery.status().table_version == before
    assert [row.notation for row in table.rows][::7] == ["s/s", "t/t"]
    assert table.advice.verdict == "upgrade"
    assert table.row("full backfill").figures["cmc@1"].value > table.row("status quo").figures["cmc@1"].high
    assert table.num_queries == 1600


def test_a_worse_target_is_advised_against(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS, DIGITS[:, ::9])
    assert gallery.evaluate("v2", labels="digit", sample=1600).advice.verdict == "do not upgrade"


def test_natives_in_the_table_serve_where_there_is_no_encoder(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS[:, ::9], DIGITS)
    gallery.upgrade("v2", backfill=0.5)
    reopened = cs.Gallery.open(gallery.status().gallery)
    table = reopened.evaluate("v2", sample=1797)
    assert table.truth == "the target's 10 nearest neighbours"
    assert table.num_queries == 898


def test_what_cannot_be_tried_says_what_is_missing(tmp_path):
    gallery = gallery_of(tmp_path, DIGITS[:, ::9], DIGITS, encoder=False)
    with pytest.raises(cs.errors.UpgradeError, match="encoders="):
        gallery.evaluate("v2")
    with pytest.raises(cs.errors.InvalidInput, match="digit"):
        gallery.evaluate("v2", labels="colour")
    with pytest.raises(cs.errors.InvalidInput, match="sample >= 40"):
        gallery.evaluate("v2", sample=3)
