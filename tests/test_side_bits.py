"""A version that stores its side-information as bits is used as any other, and what it cannot take is refused."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore import trainers
from compatstore.encoders import Function
from compatstore.errors import Incompatible, InvalidInput
from compatstore.trainers import Pairs

V1 = cs.EmbeddingVersion("v1", dim=6, metric="l2", side_dim=128, side_dtype="bits", model="m")
V2 = cs.EmbeddingVersion("v2", dim=5, metric="l2")
RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(300, 6)).astype(np.float32)
SIDE = RANDOM.normal(size=(300, 128)).astype(np.float32)
TARGETS = np.hstack([VECTORS[:, :2], np.sign(SIDE[:, :3])]).astype(np.float32)
SIGNS = np.where(SIDE > 0, np.float32(1), np.float32(-1))
CODES = np.packbits(SIDE > 0, axis=1)
IDS = [f"item-{number}" for number in range(300)]
SMALL = {"branch_width": 16, "mixer_width": 32, "epochs": 30, "batch_size": 64, "holdout": 0.0}


@pytest.fixture(scope="module")
def artifact():
    return trainers.FCT(**SMALL).fit(Pairs(VECTORS, TARGETS, side=SIDE, source_version=V1, target_version=V2))


@pytest.fixture
def gallery(tmp_path):
    made = cs.Gallery.create(str(tmp_path / "items.lance"), V1)
    made.add({"id": IDS[:200], "vector": VECTORS[:200], "side": SIDE[:200]})
    return made


def lists(codes):
    return pa.FixedSizeListArray.from_arrays(pa.array(codes.reshape(-1)), codes.shape[1])


FORMS = {
    "values": SIDE[200:203],
    "codes": CODES[200:203],
    "bytes": [row.tobytes() for row in CODES[200:203]],
    "Arrow binaries": pa.array([row.tobytes() for row in CODES[200:203]]),
    "Arrow lists of bytes": lists(CODES[200:203]),
    "truth values": SIDE[200:203] > 0,
    "lists of values": SIDE[200:203].tolist(),
}


@pytest.mark.parametrize("side", FORMS.values(), ids=FORMS)
def test_every_form_ends_in_the_same_sixteen_bytes(gallery, side):
    gallery.add({"id": ["a", "b", "c"], "vector": VECTORS[:3], "side": side})
    kept = gallery.get(["a", "b", "c"], ["v1__side"]).column("v1__side")
    assert kept.to_pylist() == [row.tobytes() for row in CODES[200:203]]
    np.testing.assert_array_equal(gallery.vectors(["c", "item-1"], side=True), SIGNS[[202, 1]])


def test_items_without_side_information_have_none(gallery):
    gallery.add({"id": ["a", "b"], "vector": VECTORS[:2], "side": [SIDE[0].tolist(), None]})
    gallery.add({"id": ["c", "d"], "vector": VECTORS[:2], "side": [None, CODES[0].tobytes()]})
    gallery.add({"id": ["e"], "vector": VECTORS[:1]})
    found = gallery.vectors(["a", "b", "c", "d", "e"], side=True)
    np.testing.assert_array_equal(found[[0, 3]], SIGNS[[0, 0]])
    assert np.isnan(found[[1, 2, 4]]).all()


@pytest.mark.parametrize(
    ("side", "message"),
    [
        (SIDE[:2, :64], "expected vectors of 128 values; found 64"),
        (CODES[:2, :8], "expected vectors of 128 values; found 8"),
        ([b"short", b"short"], "expected codes of 16 bytes"),
        (pa.array([b"short", b"short"]), "expected codes of 16 bytes"),
    ],
)
def test_side_information_of_another_length_is_refused(gallery, side, message):
    with pytest.raises(InvalidInput, match=message):
        gallery.add({"id": ["a", "b"], "vector": VECTORS[:2], "side": side})
    assert len(gallery) == 200


def test_a_version_that_stores_values_takes_no_codes(tmp_path):
    values = cs.Gallery.create(str(tmp_path / "values.lance"), cs.EmbeddingVersion("v1", dim=6, side_dim=128))
    with pytest.raises(InvalidInput, match="128 values; found 16"):
        values.add({"id": ["a"], "vector": VECTORS[:1], "side": CODES[:1]})
    with pytest.raises(InvalidInput, match="expected numbers"):
        values.add({"id": ["a"], "vector": VECTORS[:1], "side": [CODES[0].tobytes()]})


@pytest.mark.parametrize("settings", [{"side_dim": 12}, {}, {"side_dim": 8, "side_dtype": "int8"}])
def test_versions_that_cannot_store_bits_are_refused(settings):
    with pytest.raises(InvalidInput, match=r"multiple of 8|'float32' or 'bits'"):
        cs.EmbeddingVersion("v1", dim=4, **{"side_dtype": "bits", **settings})


@pytest.mark.full
def test_an_upgrade_reads_the_bits(gallery, artifact):
    gallery.register(V2)
    gallery.artifacts.link(artifact)
    gallery.upgrade("v2")
    gallery.add({"id": IDS[200:250], "vector": VECTORS[200:250], "side": SIDE[200:250]})
    gallery.add({"id": IDS[250:], "vector": VECTORS[250:], "side": CODES[250:]}, version="v1")
    expected = artifact.apply(VECTORS, SIGNS).vectors
    np.testing.assert_allclose(gallery.vectors(IDS, "v2"), expected, atol=1e-5)
    assert np.square(expected - TARGETS).mean() < 0.7 * TARGETS.var()
    gallery.cutover("v2")
    assert gallery.maintenance.verify().findings == ()
    found = gallery.search(expected[:1], k=1, columns=["id", "v1__side"])
    assert found.to_pylist()[0]["v1__side"] == CODES[0].tobytes()
    opened = cs.Gallery.open(gallery.status().gallery).version("v1")
    assert (opened.side_dim, opened.side_dtype, opened.side_fingerprint) == (128, "bits", V1.side_fingerprint)
    plain = lance.dataset(gallery.status().gallery).to_table(columns=["v1__side"])
    assert plain.schema.field("v1__side").type == pa.binary(16)


def test_only_signs_count_for_an_artifact_of_bits(artifact):
    expected = artifact.apply(VECTORS, SIGNS).vectors
    for same in (SIDE, 3 * SIDE, CODES):
        np.testing.assert_array_equal(artifact.apply(VECTORS, same).vectors, expected)


def test_the_model_makes_the_side_information_of_new_items(tmp_path):
    model = Function(lambda sources: VECTORS[[int(s) for s in sources]], 6, fingerprint="embedding")
    other = Function(lambda sources: SIDE[[int(s) for s in sources]], 128, fingerprint="side")
    version = cs.EmbeddingVersion(
        "v1", dim=6, metric="l2", encoder=model, side_dim=128, side_dtype="bits", side_encoder=other
    )
    made = cs.Gallery.create(str(tmp_path / "items.lance"), version)
    made.add({"id": ["a", "b"], "source": ["4", "7"]})
    np.testing.assert_array_equal(made.vectors(["a", "b"], side=True), SIGNS[[4, 7]])


def test_an_artifact_of_values_is_not_linked_to_bits(gallery):
    values = cs.EmbeddingVersion("v1", dim=6, metric="l2", side_dim=128, model="m")
    assert values.side_fingerprint != V1.side_fingerprint
    gallery.register(V2)
    for versions in ({"source_version": values, "target_version": V2}, {}):
        trained = trainers.FCT(**{**SMALL, "epochs": 1}).fit(Pairs(VECTORS, TARGETS, side=SIDE, **versions))
        with pytest.raises(Incompatible, match="side-information of v1"):
            gallery.artifacts.link(trained, "v1", "v2")


@pytest.mark.full
def test_g_hands_bits_on_to_the_next_hop(tmp_path):
    middle = cs.EmbeddingVersion("v2", dim=5, metric="l2", side_dim=8, side_dtype="bits")
    last = cs.EmbeddingVersion("v3", dim=3, metric="l2")
    one = Pairs(VECTORS, TARGETS, side=SIDE, target_side=SIDE[:, 8:16], source_version=V1, target_version=middle)
    two = Pairs(TARGETS, TARGETS[:, :3], side=SIDE[:, 8:16], source_version=middle, target_version=last)
    first, second = trainers.FCT(**SMALL, side_transform=True).fit(one), trainers.FCT(**SMALL).fit(two)
    made = cs.Gallery.create(str(tmp_path / "items.lance"), V1)
    made.add({"id": IDS, "vector": VECTORS, "side": SIDE})
    for version, artifact in ((middle, first), (last, second)):
        made.register(version)
        made.artifacts.link(artifact)
    made.upgrade("v2")
    between = first.apply(VECTORS, SIGNS)
    np.testing.assert_array_equal(made.vectors(IDS, "v2", side=True), np.where(between.side > 0, 1, -1))
    made.upgrade("v3")
    expected = second.apply(between.vectors, np.where(between.side > 0, 1, -1)).vectors
    np.testing.assert_allclose(made.vectors(IDS, "v3"), expected, atol=1e-5)


def test_a_version_without_side_information_has_none_to_read(tmp_path):
    made = cs.Gallery.create(str(tmp_path / "items.lance"), cs.EmbeddingVersion("v1", dim=6))
    with pytest.raises(InvalidInput, match="a version with side_dim"):
        made.vectors([], side=True)


def test_records_that_disagree_on_the_bits_are_found(gallery):
    table = lance.dataset(gallery.status().gallery)
    registry = table.config()["compatstore.registry"]
    said = registry.replace('"side_dtype":"bits"', '"side_dtype":"float32"', 1)
    table.update_config({"compatstore.registry": said})
    (found,) = (finding for finding in gallery.maintenance.verify().findings if finding.check == "versions")
    assert "128 values of float32, its columns side-information of 128 values of bits" in found.what
