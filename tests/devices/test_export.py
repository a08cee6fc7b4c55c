"""An exported artifact computes what the artifact computes, says what it is, and is refused where it cannot be made."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import compatstore as cs
from compatstore.artifacts import Artifact, Space
from compatstore.artifacts.kinds import KINDS
from compatstore.devices.runner import DeviceModel
from compatstore.digests import digest_half
from compatstore.errors import AlreadyExists, Incompatible, InvalidInput, NotFound, StorageError
from exported import ARTIFACTS, DIM, NEXT, SIDE, TO, forward, plain, rows, second
from lazily import Lazy

onnx = Lazy("onnx")


def require_same(made, expected):
    for part in ("vectors", "uncertainty", "side"):
        found, wanted = getattr(made, part), getattr(expected, part)
        assert (found is None) == (wanted is None), part
        if wanted is not None:
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_there_is_an_artifact_of_each_kind():
    assert {artifact.kind for artifact in ARTIFACTS.values()} == set(KINDS)


@pytest.mark.parametrize("name", ARTIFACTS)
def test_an_exported_artifact_gives_what_the_artifact_gives(name, tmp_path):
    artifact = ARTIFACTS[name]
    cs.export(artifact, tmp_path / "h.onnx")
    vectors = rows()
    vectors[::2] /= np.linalg.norm(vectors[::2], axis=1, keepdims=True)
    vectors[5] = 0
    side = rows(dim=SIDE, seed=2) if artifact.manifest.side_source else None
    for threads in (1, 3):
        require_same(
            DeviceModel(tmp_path / "h.onnx", threads=threads).apply(vectors, side), artifact.apply(vectors, side)
        )


def test_packed_bits_are_read(tmp_path):
    artifact = ARTIFACTS["side-information as bits"]
    cs.export(artifact, tmp_path / "h.onnx")
    codes = np.random.default_rng(0).integers(0, 256, (9, SIDE // 8), dtype=np.uint8)
    require_same(DeviceModel(tmp_path / "h.onnx").apply(rows(9), codes), artifact.apply(rows(9), codes))


def test_no_rows(tmp_path):
    cs.export(plain(), tmp_path / "h.onnx")
    assert DeviceModel(tmp_path / "h.onnx").apply(rows(0)).vectors.shape == (0, TO)


def test_a_length_that_overflows_gives_nan_as_the_artifact_does(tmp_path):
    artifact = ARTIFACTS["deep, unit length"]
    cs.export(artifact, tmp_path / "h.onnx")
    huge = rows(3) * np.float32(1e30)
    expected = artifact.apply(huge).vectors
    assert np.isnan(expected).all()
    np.testing.assert_array_equal(DeviceModel(tmp_path / "h.onnx").apply(huge).vectors, expected)


def test_a_chain_is_one_file(tmp_path):
    first, last = forward(), second()
    done = cs.export(first, tmp_path / "chain.onnx", then=[last])
    vectors, side = rows(), rows(dim=SIDE, seed=2)
    between = first.apply(vectors, side)
    expected = last.apply(between.vectors, between.side)
    model = DeviceModel(tmp_path / "chain.onnx")
    require_same(model.apply(vectors, side), expected)
    assert done.origin == model.manifest["origin"] == f"{first.short_id}+{last.short_id}"
    assert [each["id"] for each in model.manifest["artifacts"]] == [first.id, last.id]
    assert (model.manifest["reads"]["name"], model.manifest["writes"]["name"]) == ("v1", "v3")


@pytest.mark.parametrize(
    ("then", "error", "said"),
    [
        (lambda: plain(dim=TO + 1), InvalidInput, "expected 9 values"),
        (lambda: plain(dim=TO, kind="QueryAdapter"), Incompatible, "act on galleries"),
        (lambda: Artifact.create("Derivation", source=Space(dim=TO, fingerprint="9" * 32), target=Space(dim=2)),
         Incompatible, "9" * 32),
    ],
)  # fmt: skip
def test_what_does_not_go_on_is_refused(then, error, said, tmp_path):
    with pytest.raises(error, match=said):
        cs.export(forward(), tmp_path / "h.onnx", then=[then()])
    assert list(tmp_path.iterdir()) == []


def test_a_chain_needs_the_side_information_that_the_next_reads(tmp_path):
    with pytest.raises(Incompatible, match=f"side-information of {NEXT} values"):
        cs.export(plain(), tmp_path / "h.onnx", then=[second()])


def test_the_manifest_is_inside(tmp_path):
    artifact = forward()
    cs.export(artifact, tmp_path / "h.onnx")
    (entry,) = onnx.load(tmp_path / "h.onnx").metadata_props
    manifest = json.loads(entry.value)
    assert (entry.key, manifest["precision"], manifest["acts_on"]) == ("compatstore", "float32", "gallery")
    assert manifest["artifacts"] == [json.loads(artifact.to_bytes()[0])]
    assert manifest["reads"]["fingerprint"] == "1" * 32


def test_the_weights_are_all_that_is_large(tmp_path):
    artifact = plain(dim=64, to=64, mixer=(512,))
    done = cs.export(artifact, tmp_path / "h.onnx")
    weights = sum(tensor.nbytes for tensor in artifact.tensors.values())
    assert weights < done.bytes < weights + 10_000
    assert done.bytes == (tmp_path / "h.onnx").stat().st_size


def test_int8_is_smaller_and_its_loss_is_measured_on_what_was_not_learned_from(tmp_path, capfd):
    vectors = rows(400, dim=64)
    artifact = plain(dim=64, to=64, mixer=(256,), normalise=True, seen=digest_half(vectors[:300]))
    whole = cs.export(artifact, tmp_path / "h.onnx")
    done = cs.export(artifact, tmp_path / "h8.onnx", int8=True, vectors=vectors)
    assert done.bytes < 0.4 * whole.bytes
    loss = done.int8_loss
    assert (loss.rows, loss.left_out) == (100, 300)
    assert 0.99 < loss.cosine_min < loss.cosine_mean < 1
    model = DeviceModel(tmp_path / "h8.onnx")
    assert model.manifest["int8_loss"] == vars(loss)
    made, exact = model.apply(vectors[300:]).vectors, artifact.apply(vectors[300:]).vectors
    cosines = (made * exact).sum(axis=1) / np.linalg.norm(made, axis=1)
    assert loss.cosine_min == pytest.approx(cosines.min(), abs=1e-5)
    assert loss.cosine_mean == pytest.approx(cosines.mean(), abs=1e-5)
    assert capfd.readouterr() == ("", "")


def test_int8_with_side_information(tmp_path):
    done = cs.export(forward(), tmp_path / "h.onnx", int8=True, vectors=rows(50), side=rows(50, SIDE, 2))
    made = DeviceModel(tmp_path / "h.onnx").apply(rows(50), rows(50, SIDE, 2))
    assert done.int8_loss.cosine_mean > 0.99
    assert (made.uncertainty.shape, made.side.shape) == ((50,), (50, NEXT))


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({}, InvalidInput, "vectors to measure the loss on"),
        ({"vectors": np.ones((3, DIM + 1))}, InvalidInput, "vectors of 12 values"),
        ({"vectors": np.ones((3, DIM)), "side": np.ones((3, 2))}, InvalidInput, "none: it was made without"),
        ({"vectors": np.full((3, DIM), np.nan)}, InvalidInput, "finite"),
        ({"vectors": np.zeros((3, DIM))}, InvalidInput, "not learned from"),
        ({"vectors": np.zeros((0, DIM))}, InvalidInput, "not learned from"),
    ],
)
def test_int8_without_vectors_to_measure_on_is_refused(given, error, said, tmp_path):
    with pytest.raises(error, match=said):
        cs.export(plain(), tmp_path / "h.onnx", int8=True, **given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x" * 300, "x" * 240, "a file/h"])
def test_a_place_that_cannot_be_written_is_refused(name, tmp_path):
    (tmp_path / "a file").write_text("not a folder")
    with pytest.raises(StorageError, match="Choose another path"):
        cs.export(plain(), tmp_path / f"{name}.onnx")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a file"]


def test_nothing_is_replaced_unless_asked(tmp_path):
    place = tmp_path / "h.onnx"
    cs.export(plain(), place)
    before = place.read_bytes()
    with pytest.raises(AlreadyExists, match="overwrite=True"):
        cs.export(plain(seed=1), place)
    assert place.read_bytes() == before
    cs.export(plain(seed=1), place, overwrite=True)
    assert place.read_bytes() != before
    with pytest.raises(InvalidInput, match=r"ends in \.onnx"):
        cs.export(plain(), tmp_path / "h.bin")
    with pytest.raises(NotFound, match="artifact"):
        cs.export(tmp_path / "no.compat", tmp_path / "no.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["h.onnx"]


@pytest.mark.full
def test_without_onnx_the_extra_is_named():
    program = """
import sys
sys.modules["onnx"] = None
import compatstore as cs
from compatstore.artifacts import Artifact, Space
try:
    cs.export(Artifact.create("Identity", source=Space(dim=2), target=Space(dim=2)), "h.onnx")
except cs.errors.MissingExtra as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert 'pip install "compatstore[onnx]"' in said
