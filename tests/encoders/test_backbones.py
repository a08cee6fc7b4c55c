from __future__ import annotations

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore import trainers
from compatstore.encoders import NetworkEncoder
from compatstore.encoders.backbones import (
    GeneralisedMean,
    SmallVisionTransformer,
    TimmBackbone,
    TorchvisionBackbone,
    from_description,
    to_description,
)
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput
from lazily import Lazy
from properties import examples

generalised_mean_pool = Lazy("compatstore.encoders.backbone_networks")
torch = Lazy("torch")


@functools.cache
def colour() -> trainers.Images:
    return trainers.Images(np.random.default_rng(0).integers(0, 255, (12, 32, 32, 3), np.uint8), np.arange(12) % 2)


@given(
    size=st.sampled_from([8, 10, 16, 21, 28, 32, 45, 48, 64]),
    dim=st.integers(1, 9),
    channels=st.sampled_from([1, 3]),
    depth=st.integers(1, 2),
)
@examples(15)
def test_small_transformers_embed_every_size_and_are_described(size: int, dim: int, channels: int, depth: int) -> None:
    backbone = SmallVisionTransformer(size=size, dim=dim, channels=channels, width=16, depth=depth)
    assert 4 <= size // backbone.patch <= 8
    assert size % backbone.patch == 0
    assert backbone.build().eval()(torch.zeros(2, channels, size, size)).shape == (2, dim)
    assert from_description(json.loads(json.dumps(to_description(backbone)))) == backbone


@pytest.mark.parametrize(
    "setting", [{"size": 37}, {"size": 9}, {"size": 72}, {"size": 8, "width": 20}, {"size": 8, "depth": 0}]
)
def test_transformers_that_cannot_be_built_are_refused(setting: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="small transformer"):
        SmallVisionTransformer(dim=4, **setting)


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("small-vit", SmallVisionTransformer),
        ("timm:test_resnet", TimmBackbone),
        ("test_resnet", TimmBackbone),
        ("torchvision:shufflenet_v2_x0_5", TorchvisionBackbone),
    ],
)
def test_a_network_is_trained_by_its_name_and_stored_with_its_weights(architecture: str, kind: type) -> None:
    trainer = trainers.Independent(dim=6, width=16, epochs=1, warmup_epochs=0, batch_size=6, architecture=architecture)
    encoder = trainer.fit(colour()).encoder
    assert isinstance(encoder.backbone, kind)
    again = NetworkEncoder.from_bytes(encoder.to_bytes(), device="cpu")
    assert again.fingerprint == encoder.fingerprint
    np.testing.assert_allclose(again.encode(list(colour().images)), encoder.encode(list(colour().images)), atol=1e-5)


def test_torchvision_takes_classifiers_and_colour() -> None:
    with pytest.raises(InvalidInput, match="list_models"):
        TorchvisionBackbone(name="fcn_resnet50", dim=4).build()
    with pytest.raises(InvalidInput, match="auxiliary outputs"):
        TorchvisionBackbone(name="googlenet", dim=4).build()
    grey = trainers.Images(colour().images[..., 0], colour().labels)
    with pytest.raises(InvalidInput, match='mode="RGB"'):
        trainers.Independent(dim=4, architecture="torchvision:resnet18").fit(grey)


def test_a_backbone_keeps_its_description_across_the_file_format() -> None:
    backbone = SmallVisionTransformer(size=16, dim=5, channels=3, width=32)
    encoder = NetworkEncoder(backbone, Preprocessing(size=16), normalise=True, device="cpu")
    assert NetworkEncoder.from_bytes(encoder.to_bytes()).backbone == backbone


@pytest.mark.full
@pytest.mark.parametrize(
    ("architecture", "width"), [("", 2), ("timm:test_resnet", 32), ("torchvision:mobilenet_v3_small", 32)]
)
def test_a_generalised_mean_pools_as_its_formula_says(architecture: str, width: int) -> None:
    trainer = trainers.Independent(
        dim=6, width=width, epochs=1, warmup_epochs=0, batch_size=6, architecture=architecture
    )
    made = replace(trainer, pooling="gem").fit(colour()).encoder
    assert isinstance(made.backbone, GeneralisedMean)
    again = NetworkEncoder.from_bytes(made.to_bytes(), device="cpu")
    assert again.fingerprint == made.fingerprint != trainer.fit(colour()).encoder.fingerprint
    plain, pooled = made.backbone.inner.build().eval(), made.backbone.build().eval()
    assert list(plain.state_dict()) == list(pooled.state_dict())
    plain.load_state_dict(pooled.state_dict())
    pixels = torch.rand(2, 3, 32, 32)
    generalised_mean_pool.pool_by_generalised_mean(plain, made.backbone.power)
    torch.testing.assert_close(plain(pixels), pooled(pixels))
    features = torch.rand(2, 3, 4, 4)
    mean = generalised_mean_pool.GeneralisedMeanPool(torch.nn.AdaptiveAvgPool2d(1), 3.0)(features)[..., 0, 0]
    torch.testing.assert_close(mean, (features**3).mean((2, 3)) ** (1 / 3))
    assert (
        generalised_mean_pool.GeneralisedMeanPool(torch.nn.AdaptiveAvgPool2d(1), 1.0)(features) <= mean[..., None, None]
    ).all()


@pytest.mark.parametrize("power", [0.5, 0.0, -1.0, float("nan"), float("inf")])
def test_powers_that_are_no_means_are_refused(power: float) -> None:
    with pytest.raises(InvalidInput, match="a power of 1 or more"):
        GeneralisedMean(inner=SmallVisionTransformer(size=8, dim=4), power=power)


def test_networks_without_an_average_have_no_choice_of_it() -> None:
    with pytest.raises(InvalidInput, match="pooling average for small-vit"):
        trainers.Independent(dim=4, architecture="small-vit", pooling="gem")
    for architecture in ("timm:test_vit", "torchvision:shufflenet_v2_x0_5"):
        with pytest.raises(InvalidInput, match='Leave pooling="average"'):
            trainers.Independent(dim=4, architecture=architecture, pooling="gem", size=160).fit(colour())
