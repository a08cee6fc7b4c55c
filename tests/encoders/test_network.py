from __future__ import annotations

import contextlib
import functools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from compatstore.encoders import NetworkEncoder, encode_readable, from_spec
from compatstore.encoders.backbones import (
    FinalNorm,
    FinalReLU,
    SmallConvNet,
    TimmBackbone,
    from_description,
    to_description,
)
from compatstore.encoders.network import Preprocessing
from compatstore.errors import CorruptArtifact, InvalidInput, NotFound, SourceError
from lazily import Lazy
from properties import examples

torch = Lazy("torch")

IMAGES = list(np.random.default_rng(0).integers(0, 255, (6, 8, 8), np.uint8))


def make(*, seed: int = 0, normalise: bool = False, dim: int = 5) -> NetworkEncoder:
    torch.manual_seed(seed)
    backbone = SmallConvNet(size=8, dim=dim, width=4)
    return NetworkEncoder(backbone, Preprocessing(size=8, mode="L"), normalise=normalise, device="cpu")


@functools.cache
def made() -> NetworkEncoder:
    return make()


@functools.cache
def content() -> bytes:
    return made().to_bytes()


@given(size=st.integers(8, 64), dim=st.integers(1, 9), channels=st.sampled_from([1, 3]), norm=st.booleans())
@examples(15)
def test_small_networks_embed_every_size_and_are_described(size: int, dim: int, channels: int, norm: bool) -> None:
    backbone = SmallConvNet(size=size, dim=dim, channels=channels, width=2)
    if norm:
        backbone = FinalReLU(inner=FinalNorm(inner=backbone))
    assert backbone.build().eval()(torch.zeros(2, channels, size, size)).shape == (2, dim)
    assert from_description(json.loads(json.dumps(to_description(backbone)))) == backbone


def test_an_encoder_goes_through_bytes_and_files_unchanged(tmp_path: Path) -> None:
    encoder = make(normalise=True)
    path = encoder.save(tmp_path / "encoder.safetensors")
    for again in (NetworkEncoder.from_bytes(encoder.to_bytes()), from_spec(f"network:{path}")):
        assert isinstance(again, NetworkEncoder)
        assert again.fingerprint == encoder.fingerprint
        assert again.to_bytes() == encoder.to_bytes()
        np.testing.assert_allclose(again.encode(IMAGES), encoder.encode(IMAGES), atol=1e-6)
    assert encoder.spec == from_spec(encoder.spec).spec == f"network:{path}"


def test_a_timm_backbone_goes_through_bytes() -> None:
    backbone = TimmBackbone(name="test_resnet", dim=6)
    encoder = NetworkEncoder(backbone, Preprocessing(size=32), device="cpu")
    again = NetworkEncoder.from_bytes(encoder.to_bytes(), device="cpu")
    np.testing.assert_allclose(again.encode(IMAGES), encoder.encode(IMAGES), atol=1e-6)


def test_rows_do_not_depend_on_their_batch_or_kind_of_source(tmp_path: Path) -> None:
    path = tmp_path / "digit.png"
    Image.fromarray(IMAGES[0]).save(path)
    vectors = made().encode([IMAGES[0], path, path.read_bytes(), Image.fromarray(IMAGES[0]).convert("RGBA")])
    np.testing.assert_allclose(vectors, np.repeat(made().encode(IMAGES)[:1], 4, axis=0), atol=1e-6)


def test_fingerprint_follows_what_decides_the_embedding() -> None:
    one = make().fingerprint
    assert one == make().fingerprint
    coarser = NetworkEncoder(
        made().backbone, Preprocessing(size=8, mode="L", mean=0.4), weights=made().module.state_dict(), device="cpu"
    )
    others = {make(seed=1).fingerprint, make(normalise=True).fingerprint, coarser.fingerprint}
    assert len({one, *others}) == 4


def test_unreadable_images_are_left_out_and_listed(tmp_path: Path) -> None:
    encoded = encode_readable(made(), [IMAGES[0], b"broken", tmp_path / "gone.png", IMAGES[1]])
    assert encoded.readable.tolist() == [0, 3]
    assert list(encoded.failures) == [1, 2]


def test_files_that_threads_read_ahead_give_what_arrays_give(tmp_path: Path) -> None:
    images = np.random.default_rng(1).integers(0, 255, (23, 8, 8), np.uint8)
    paths = [tmp_path / f"{number}.png" for number in range(len(images))]
    for image, path in zip(images, paths, strict=True):
        Image.fromarray(image).save(path)
    encoder = NetworkEncoder.from_bytes(made().to_bytes(), device="cpu")
    encoder.batch_size = 4
    np.testing.assert_array_equal(encoder.encode(paths), encoder.encode(list(images)))
    assert encoder.encode(paths[:0]).shape == (0, encoder.dim)
    paths[2].write_bytes(b"broken")
    paths[21].unlink()
    with pytest.raises(SourceError) as caught:
        encoder.encode(paths)
    assert list(caught.value.failures) == [2, 21]


@given(cut=st.deferred(lambda: st.integers(0, len(content()) - 1)))
@examples(30)
def test_truncated_files_are_refused(cut: int) -> None:
    with pytest.raises(CorruptArtifact):
        NetworkEncoder.from_bytes(content()[:cut])


@given(position=st.deferred(lambda: st.integers(0, len(content()) - 1)), bit=st.integers(0, 7))
@examples(60)
def test_a_flipped_bit_never_gives_another_model(position: int, bit: int) -> None:
    edited = bytearray(content())
    edited[position] ^= 1 << bit
    with contextlib.suppress(CorruptArtifact):
        assert NetworkEncoder.from_bytes(bytes(edited), device="cpu").fingerprint == made().fingerprint


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="3 channels for mode RGB"):
        NetworkEncoder(made().backbone, Preprocessing(size=8))
    with pytest.raises(InvalidInput, match="those of the backbone"):
        NetworkEncoder(made().backbone, made().preprocessing, weights=make(dim=6).module.state_dict())
    with pytest.raises(NotFound, match="nothing at"):
        NetworkEncoder.load(tmp_path / "gone.safetensors")
    for settings_ in ({"size": 7, "dim": 2}, {"size": 8, "dim": 0}, {"size": 8, "dim": 2, "channels": 4}):
        with pytest.raises(InvalidInput, match="small network"):
            SmallConvNet(**settings_)
