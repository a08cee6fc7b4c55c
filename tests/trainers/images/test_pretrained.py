"""Networks that start from weights: where they are found, and what fits."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from compatstore import trainers
from compatstore.encoders import NetworkEncoder
from compatstore.errors import CorruptArtifact, Incompatible, InvalidInput, NotFound
from lazily import Lazy

safetensors = Lazy("safetensors.torch")
timm = Lazy("timm")
torch = Lazy("torch")
torchvision_models = Lazy("torchvision.models")

SHORT = {"dim": 4, "epochs": 2, "batch_size": 8, "warmup_epochs": 0.0, "learning_rate": 1e-2}


@functools.cache
def colour() -> trainers.Images:
    return trainers.Images(np.random.default_rng(0).integers(0, 255, (24, 32, 32, 3), np.uint8), np.arange(24) % 3)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of timm with a classifier of 7 classes, statistics of BatchNorm as after a training."""
    torch.manual_seed(5)
    network = timm.create_model("test_resnet", num_classes=7)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    path = tmp_path_factory.mktemp("weights") / "resnet.safetensors"
    safetensors.save_file(network.state_dict(), path)
    return path


def trainer(weights: Path | str, **settings: object) -> trainers.Independent:
    return trainers.Independent(**{**SHORT, "architecture": "timm:test_resnet", "pretrained": str(weights), **settings})


def start_of(trainer: trainers.Independent, images: trainers.Images) -> dict[str, torch.Tensor]:
    """The weights that a training begins with."""
    return trainer.start(trainer.backbone(trainer.preprocessing(images))).state_dict()


def state_of(encoder: NetworkEncoder) -> dict[str, torch.Tensor]:
    return encoder.module.state_dict()


@pytest.mark.parametrize("place", ["file.pth", "nested.pt", "folder", "package:", "package:/inside"])
def test_weights_are_found_in_a_file_a_folder_or_a_package(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    state = safetensors.load_file(weights)
    if place.endswith(("pth", "pt")):
        named = tmp_path / place
        torch.save({"epoch": 3, "state_dict": state} if "nested" in place else state, named)
    elif place == "folder":
        named = weights.parent
    else:
        package = tmp_path / "ships_weights" / "inside"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").write_text("raise ImportError('not to be imported')")
        (package / "weights.safetensors").write_bytes(weights.read_bytes())
        monkeypatch.syspath_prepend(tmp_path)
        named = place.replace("package:", "package:ships_weights")
    found = start_of(trainer(named), colour())
    assert all(torch.equal(found[name], state[name]) for name in state if not name.startswith("fc"))
    assert found["fc.weight"].shape == (4, state["fc.weight"].shape[1])


def test_an_encoder_needs_the_file_no_more(weights: Path, tmp_path: Path) -> None:
    copied = tmp_path / "weights.safetensors"
    copied.write_bytes(weights.read_bytes())
    encoder = trainer(copied).fit(colour()).encoder
    copied.unlink()
    again = NetworkEncoder.from_bytes(encoder.to_bytes(), device="cpu")
    assert again.fingerprint == encoder.fingerprint
    assert "weights.safetensors" not in json.dumps(json.loads(encoder.identity))


@pytest.mark.full
def test_torchvision_s_networks_start_from_a_state_dict(tmp_path: Path) -> None:
    torch.manual_seed(1)
    state = torchvision_models.shufflenet_v2_x0_5().state_dict()
    torch.save(state, tmp_path / "weights.pth")
    settings = {"architecture": "torchvision:shufflenet_v2_x0_5", "pretrained": str(tmp_path)}
    trainer = trainers.Independent(**SHORT, **settings)
    encoder = trainer.fit(colour()).encoder
    found = start_of(trainer, colour())
    assert all(torch.equal(found[name], state[name]) for name in state if not name.startswith("fc"))
    assert encoder.preprocessing.mean == pytest.approx(0.449)
    assert encoder.preprocessing.std == pytest.approx(0.226)


def test_grey_images_read_weights_that_were_trained_on_colours(weights: Path) -> None:
    grey = trainers.Images(colour().images[..., 0], colour().labels)
    state = start_of(trainer(weights), grey)
    summed = safetensors.load_file(weights)["conv1.0.weight"].sum(dim=1, keepdim=True)
    torch.testing.assert_close(state["conv1.0.weight"], summed)


@pytest.mark.full
def test_every_kind_of_training_starts_from_weights(weights: Path) -> None:
    before, common = safetensors.load_file(weights), {"architecture": "timm:test_resnet", "pretrained": str(weights)}
    source = trainer(weights, head="cosine").fit(colour())
    shared = {**SHORT, **common, "learning_rate": 1e-6}
    found = [
        trainers.BCT(**shared, head="cosine").fit(colour(), source).encoder.module,
        trainers.BT2(**{**shared, "dim": 6, "extra": 2})
        .fit(colour(), source, target=source)
        .encoder.module.get_submodule("inner"),
        trainers.SimCLR(**shared, codes=True).fit(colour()).encoder.module.get_submodule("0"),
    ]
    for network in found:
        state = network.state_dict()
        for name in ("conv1.0.weight", "layer1.0.conv1.weight", "layer4.0.conv1.weight"):
            torch.testing.assert_close(state[name], before[name], rtol=0, atol=1e-4)
            assert not torch.equal(state[name], before[name]), name


def test_weights_of_another_network_are_refused_by_the_names_of_their_tensors(weights: Path, tmp_path: Path) -> None:
    state = safetensors.load_file(weights)
    changed = {name: value for name, value in state.items() if name != "layer1.0.conv1.weight"}
    changed |= {"stem.weight": torch.zeros(3), "bn1.bias": torch.zeros(99)}
    safetensors.save_file(changed, tmp_path / "changed.safetensors")
    with pytest.raises(Incompatible) as caught:
        trainer(tmp_path / "changed.safetensors").fit(colour())
    told = str(caught.value)
    assert "1 missing: layer1.0.conv1.weight" in told
    assert "1 unexpected: stem.weight" in told
    assert "1 of another shape: bn1.bias (99,)" in told
    with pytest.raises(Incompatible, match="missing"):
        trainer(weights, architecture="timm:test_vit").fit(colour())


def test_places_without_weights_say_so(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "deeper").mkdir()
    torch.save({}, tmp_path / "empty" / "deeper" / "not_searched.pt")
    (tmp_path / "nonsense.pt").write_bytes(b"nonsense")
    (tmp_path / "two").mkdir()
    for name in ("a.pt", "b.bin"):
        torch.save({}, tmp_path / "two" / name)
    for place, error, said in (
        (tmp_path / "gone.pt", NotFound, 'found nothing. Check the path; "download"'),
        (tmp_path / "empty", NotFound, "ends in .safetensors"),
        (tmp_path / "two", InvalidInput, "a.pt, b.bin"),
        (tmp_path / "nonsense.pt", CorruptArtifact, "nonsense.pt"),
        ("package:no_such_package", NotFound, "pip"),
        ("package:numpy.linalg", NotFound, "pip"),
        ("package:", NotFound, "pip"),
    ):
        with pytest.raises(error) as caught:
            trainer(place).fit(colour())
        assert said in str(caught.value)


def test_published_weights_that_cannot_be_had_are_an_error_and_never_random() -> None:
    with pytest.raises(NotFound, match="published weights"):
        trainer("download", architecture="timm:mnasnet_050").fit(colour())  # has none


@pytest.mark.parametrize(
    "architecture", ["timm:test_vit.no_such_tag", "timm:resnet19", "torchvision:resnet19", "timm:"]
)
def test_models_that_a_library_does_not_have_are_named(weights: Path, architecture: str) -> None:
    for pretrained in ("", str(weights), "download"):
        with pytest.raises(InvalidInput, match=r"build a (timm|torchvision) network|describe a timm network"):
            trainer(pretrained, architecture=architecture).fit(colour())


@pytest.mark.parametrize(
    "settings",
    [
        {"pretrained": "weights.pt"},
        {"pretrained": "weights.pt", "architecture": "small-vit"},
    ],
)
def test_settings_that_say_nothing_are_refused(settings: dict) -> None:
    with pytest.raises(InvalidInput, match="set up Independent; expected pretrained"):
        trainers.Independent(dim=4, **settings)


class Stopped(Exception):  # noqa: N818
    """Stands for whatever ends a process."""


def stop(_progress: object) -> None:
    raise Stopped


@pytest.mark.full
def test_a_stopped_training_goes_on_and_knows_its_weights(weights: Path, tmp_path: Path) -> None:
    settings = {"augmentation": trainers.Augmentation()}
    path, moved = tmp_path / "training.safetensors", tmp_path / "moved.safetensors"
    moved.write_bytes(weights.read_bytes())
    with pytest.raises(Stopped):
        trainer(weights, **settings).fit(colour(), checkpoint=path, progress=stop)
    resumed = trainer(moved, **settings).fit(colour(), checkpoint=path).encoder
    assert resumed.fingerprint == trainer(weights, **settings).fit(colour()).encoder.fingerprint
    safetensors.save_file({name: value + 1 for name, value in safetensors.load_file(weights).items()}, moved)
    with pytest.raises(Incompatible, match="pretrained"):
        trainer(moved, **settings).fit(colour(), checkpoint=path)
