"""Networks that start from weights: where they are found, what fits, what stays frozen, how fast the rest learns."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compatstore import trainers
from compatstore.encoders import NetworkEncoder
from compatstore.encoders.backbones import TimmBackbone, TorchvisionBackbone
from compatstore.errors import CorruptArtifact, Incompatible, InvalidInput, NotFound
from lazily import Lazy

safetensors = Lazy("safetensors.torch")
stages = Lazy("compatstore.trainers.images.pretrained")
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


def state_of(encoder: NetworkEncoder) -> dict[str, torch.Tensor]:
    return encoder.module.state_dict()


def test_frozen_stages_keep_every_value_and_statistic(weights: Path) -> None:
    before, state = safetensors.load_file(weights), state_of(trainer(weights, frozen_stages=3).fit(colour()).encoder)
    frozen = [name for name in before if name.startswith(("conv1", "bn1", "layer1", "layer2"))]
    assert any("running_var" in name for name in frozen)
    for name in frozen:
        assert torch.equal(state[name], before[name]), name
    learned = [name for name in before if name.startswith(("layer3", "layer4")) and "num_batches" not in name]
    assert all(not torch.equal(state[name], before[name]) for name in learned)
    assert state["fc.weight"].shape == (4, before["fc.weight"].shape[1])


def test_the_last_stage_always_learns(weights: Path) -> None:
    before, state = safetensors.load_file(weights), state_of(trainer(weights, frozen_stages=5).fit(colour()).encoder)
    assert all(torch.equal(state[name], before[name]) for name in before if not name.startswith("fc"))
    with pytest.raises(InvalidInput, match="at most 5 of 6: the last makes the embedding; found 6"):
        trainer(weights, frozen_stages=6).fit(colour())


def test_a_stage_learns_at_the_rate_of_the_next_times_the_decay(weights: Path) -> None:
    before = safetensors.load_file(weights)
    states = [
        state_of(trainer(weights, stage_decay=decay, weight_decay=0.0).fit(colour()).encoder) for decay in (1, 0.1)
    ]

    def moved(state: dict[str, torch.Tensor], name: str) -> float:
        return float((state[name] - before[name]).abs().mean())

    for name, stage in (("conv1.0.weight", 0), ("layer1.0.conv1.weight", 1), ("layer4.0.conv1.weight", 4)):
        whole, decayed = (moved(state, name) for state in states)
        assert decayed / whole == pytest.approx(0.1 ** (5 - stage), rel=0.9), name


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
    found = trainer(named, frozen_stages=5).fit(colour()).encoder
    assert torch.equal(state_of(found)["conv1.0.weight"], state["conv1.0.weight"])


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
    settings = {"architecture": "torchvision:shufflenet_v2_x0_5", "pretrained": str(tmp_path), "frozen_stages": 2}
    encoder = trainers.Independent(**SHORT, **settings).fit(colour()).encoder
    assert torch.equal(state_of(encoder)["stage2.0.branch1.1.running_var"], state["stage2.0.branch1.1.running_var"])
    assert encoder.preprocessing.mean == pytest.approx(0.449)
    assert encoder.preprocessing.std == pytest.approx(0.226)


def test_grey_images_read_weights_that_were_trained_on_colours(weights: Path) -> None:
    grey = trainers.Images(colour().images[..., 0], colour().labels)
    state = state_of(trainer(weights, frozen_stages=1).fit(grey).encoder)
    summed = safetensors.load_file(weights)["conv1.0.weight"].sum(dim=1, keepdim=True)
    torch.testing.assert_close(state["conv1.0.weight"], summed)


@pytest.mark.full
def test_every_kind_of_training_starts_from_weights(weights: Path) -> None:
    before, common = safetensors.load_file(weights), {"architecture": "timm:test_resnet", "pretrained": str(weights)}
    source = trainer(weights, frozen_stages=2, head="cosine").fit(colour())
    shared = {**SHORT, **common, "frozen_stages": 2}
    found = [
        trainers.BCT(**shared, head="cosine").fit(colour(), source).encoder.module,
        trainers.BT2(**{**shared, "dim": 6, "extra": 2})
        .fit(colour(), source, target=source)
        .encoder.module.get_submodule("inner"),
        trainers.SimCLR(**shared, codes=True).fit(colour()).encoder.module.get_submodule("0"),
    ]
    for network in found:
        state = network.state_dict()
        for name in ("bn1.running_mean", "layer1.0.conv1.weight", "layer1.0.bn1.running_var"):
            assert torch.equal(state[name], before[name]), name
        assert not torch.equal(state["layer2.0.conv1.weight"], before["layer2.0.conv1.weight"])


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
        {"frozen_stages": 1, "architecture": "timm:test_resnet"},
        {"stage_decay": 0.5, "architecture": "timm:test_resnet"},
        {"pretrained": "weights.pt", "architecture": "timm:test_resnet", "stage_decay": 0.0},
        {"pretrained": "weights.pt", "architecture": "timm:test_resnet", "frozen_stages": -1},
    ],
)
def test_settings_that_say_nothing_are_refused(settings: dict) -> None:
    with pytest.raises(InvalidInput, match=r"set up Independent; expected (pretrained|frozen_stages|stage_decay)"):
        trainers.Independent(dim=4, **settings)


class Stopped(Exception):  # noqa: N818
    """Stands for whatever ends a process."""


def stop(_progress: object) -> None:
    raise Stopped


@pytest.mark.full
def test_a_stopped_training_goes_on_and_knows_its_weights(weights: Path, tmp_path: Path) -> None:
    settings = {"frozen_stages": 2, "stage_decay": 0.5, "augmentation": trainers.Augmentation()}
    path, moved = tmp_path / "training.safetensors", tmp_path / "moved.safetensors"
    moved.write_bytes(weights.read_bytes())
    with pytest.raises(Stopped):
        trainer(weights, **settings).fit(colour(), checkpoint=path, progress=stop)
    resumed = trainer(moved, **settings).fit(colour(), checkpoint=path).encoder
    assert resumed.fingerprint == trainer(weights, **settings).fit(colour()).encoder.fingerprint
    safetensors.save_file({name: value + 1 for name, value in safetensors.load_file(weights).items()}, moved)
    with pytest.raises(Incompatible, match="pretrained"):
        trainer(moved, **settings).fit(colour(), checkpoint=path)
    with pytest.raises(Incompatible, match="stage_decay"):
        trainer(weights, **{**settings, "stage_decay": 0.25}).fit(colour(), checkpoint=path)
    with pytest.raises(Incompatible, match="frozen_stages"):
        replace(trainer(weights, **settings), frozen_stages=1).fit(colour(), checkpoint=path)


@pytest.mark.parametrize(
    "backbone",
    [
        TimmBackbone(name="test_vit", dim=5),
        TimmBackbone(name="test_efficientnet", dim=5),
        TorchvisionBackbone(name="mobilenet_v3_small", dim=5),
        TorchvisionBackbone(name="mnasnet0_5", dim=5),
        TorchvisionBackbone(name="squeezenet1_1", dim=5),
        TorchvisionBackbone(name="regnet_y_400mf", dim=5),
    ],
    ids=lambda backbone: backbone.name,
)
def test_every_parameter_is_of_one_stage_and_the_embedding_of_the_last(backbone: TimmBackbone) -> None:
    network = backbone.build()
    found, names = stages.stages(stages.Published(network, backbone)), [name for name, _ in network.named_parameters()]
    assert sorted(name for stage in found for name in stage) == sorted(names)
    assert names[0] in found[0]
    assert names[-1] in found[-1]
    assert len(found) > 4
