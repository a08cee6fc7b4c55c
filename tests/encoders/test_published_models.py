from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from compatstore.encoders import TimmModel, TorchvisionModel
from compatstore.errors import CorruptArtifact, NotFound
from lazily import Lazy

safetensors = Lazy("safetensors.torch")
timm = Lazy("timm")
torch = Lazy("torch")
torchvision_models = Lazy("torchvision.models")

IMAGES = [np.random.default_rng(seed).integers(0, 255, (40, 30, 3), np.uint8) for seed in range(3)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "resnet18.safetensors"
    torch.manual_seed(0)
    safetensors.save_file(timm.create_model("resnet18", pretrained=False).state_dict(), path)
    return path


@pytest.mark.full
def test_timm_loads_a_checkpoint_and_leaves_its_classifier_out(checkpoint: Path) -> None:
    encoder = TimmModel("resnet18", checkpoint=checkpoint, device="cpu")
    vectors = encoder.encode([*IMAGES[:2], Image.fromarray(IMAGES[2])])
    assert vectors.shape == (3, 512)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
    assert encoder.spec == ""
    assert encoder.fingerprint == TimmModel("resnet18", checkpoint=checkpoint, device="cpu").fingerprint


@pytest.mark.full
def test_torchvision_loads_the_same_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    encoder = TorchvisionModel("resnet18", checkpoint=checkpoint, device="cpu", normalise=True)
    vectors = encoder.encode(IMAGES)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors.shape == (3, 512)
    torch.save({"state_dict": torchvision_models.resnet18().state_dict()}, tmp_path / "other.pt")
    other = TorchvisionModel("resnet18", checkpoint=tmp_path / "other.pt", device="cpu", normalise=True)
    assert other.fingerprint != encoder.fingerprint


@pytest.mark.full
def test_checkpoints_that_do_not_fit_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptArtifact, match="missing layer1"):
        TimmModel("resnet34", checkpoint=checkpoint)
    (tmp_path / "broken.pt").write_bytes(b"nonsense")
    with pytest.raises(CorruptArtifact, match=r"broken\.pt"):
        TimmModel("resnet18", checkpoint=tmp_path / "broken.pt")
    with pytest.raises(NotFound, match="nowhere"):
        TimmModel("resnet18", checkpoint=tmp_path / "nowhere.pt")


def test_unknown_models_are_named() -> None:
    with pytest.raises(NotFound, match="resnet19"):
        TimmModel("resnet19")
    with pytest.raises(NotFound, match="resnet19"):
        TorchvisionModel("resnet19")


def test_pretrained_weights_that_cannot_be_had_are_an_error_and_never_random() -> None:
    with pytest.raises(NotFound, match="published weights"):
        TimmModel("test_vit.nothing_published")
