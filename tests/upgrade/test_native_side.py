"""What a backfill embeds gets the side-information of its own model, and can so be transformed to the next version."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.encoders import Function
from compatstore.errors import SourceError
from compatstore.trainers import Pairs

ITEMS, UNREADABLE = 200, 7
RANDOM = np.random.default_rng(0)
IDS = [f"item-{number:03d}" for number in range(ITEMS)]
V1_VECTORS, V2_VECTORS, V3_VECTORS = (RANDOM.normal(size=(ITEMS, dim)).astype(np.float32) for dim in (6, 5, 4))
V1_SIDE, V2_SIDE = (RANDOM.normal(size=(ITEMS, 8)).astype(np.float32) for _ in range(2))
SMALL = {"branch_width": 8, "mixer_width": 16, "epochs": 2, "batch_size": 64, "holdout": 0.0}
V1 = cs.EmbeddingVersion("v1", dim=6, metric="l2", side_dim=8, model="one")


def side_model(sources):
    if str(UNREADABLE) in sources:
        raise SourceError("read", {sources.index(str(UNREADABLE)): "no such file"})
    return V2_SIDE[[int(source) for source in sources]]


def target(dtype="float32", encoder=True):
    return cs.EmbeddingVersion(
        "v2",
        dim=5,
        metric="l2",
        encoder=Function(lambda sources: V2_VECTORS[[int(source) for source in sources]], 5, fingerprint="two"),
        side_dim=8,
        side_dtype=dtype,
        side_encoder=Function(side_model, 8, fingerprint="two, side") if encoder else None,
        side_model="" if encoder else "two, side",
    )


def make(folder, version, *, handed_on):
    """A gallery in v1 with a transform to v2 that hands side-information on, or does not."""
    side = {"target_side": V2_SIDE} if handed_on else {}
    pairs = Pairs(V1_VECTORS, V2_VECTORS, side=V1_SIDE, source_version=V1, target_version=version, **side)
    artifact = trainers.FCT(**SMALL, side_transform=handed_on).fit(pairs)
    gallery = cs.Gallery.create(str(folder / "items.lance"), V1)
    gallery.add({"id": IDS, "vector": V1_VECTORS, "side": V1_SIDE, "source": [str(n) for n in range(ITEMS)]})
    gallery.register(version)
    gallery.artifacts.link(artifact)
    return gallery, artifact.apply(V1_VECTORS, V1_SIDE).side


def as_kept(side, dtype):
    return side if dtype == "float32" else np.where(side > 0, np.float32(1), np.float32(-1))


def native_rows(gallery):
    natives = set(gallery.scan([gallery.columns.id], native=["v2"]).to_arrow()[gallery.columns.id].to_pylist())
    return np.array([item in natives for item in IDS])


@pytest.mark.full
@pytest.mark.parametrize("mode", ["move_rows", "rewrite_columns"])
@pytest.mark.parametrize("dtype", ["float32", "bits"])
def test_natives_have_their_models_and_the_others_what_the_hop_handed_on(tmp_path, mode, dtype):
    gallery, handed_on = make(tmp_path, target(dtype), handed_on=True)
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.6, max_rows=50, write_mode=mode))
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.6, write_mode=mode))
    native = native_rows(gallery)
    assert native.sum() == 120
    made = native & (np.arange(ITEMS) != UNREADABLE)
    kept = gallery.vectors(IDS, "v2", side=True)
    np.testing.assert_allclose(kept[made], as_kept(V2_SIDE, dtype)[made])
    np.testing.assert_allclose(kept[~made], as_kept(handed_on, dtype)[~made], atol=1e-5)
    assert gallery.maintenance.verify().clean


@pytest.mark.full
@pytest.mark.parametrize("mode", ["move_rows", "rewrite_columns"])
def test_natives_can_be_transformed_to_the_next_version(tmp_path, mode):
    version = target()
    gallery, _ = make(tmp_path, version, handed_on=False)
    gallery.upgrade("v2", backfill=cs.Backfill(share=1.0, write_mode=mode))
    last = cs.EmbeddingVersion("v3", dim=4, metric="l2")
    gallery.register(last)
    pairs = Pairs(V2_VECTORS, V3_VECTORS, side=V2_SIDE, source_version=version, target_version=last)
    artifact = trainers.FCT(**SMALL).fit(pairs)
    gallery.artifacts.link(artifact)
    assert gallery.upgrade("v3").missing == 1, "that of the item whose side-information could not be made"
    rest = np.arange(ITEMS) != UNREADABLE
    expected = artifact.apply(V2_VECTORS[rest], V2_SIDE[rest]).vectors
    np.testing.assert_allclose(gallery.vectors(np.array(IDS)[rest].tolist(), "v3"), expected, atol=1e-5)


def test_a_plan_says_where_natives_get_none(tmp_path):
    gallery, _ = make(tmp_path, target(encoder=False), handed_on=False)
    (warning,) = gallery.upgrade("v2", backfill=0.5, dry_run=True).warnings
    assert warning.startswith("v2 has no side-information encoder here")
    assert gallery.upgrade("v2", dry_run=True).warnings == ()
