from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from compatstore import trainers
from compatstore.artifacts import Artifact
from compatstore.encoders import from_spec
from compatstore.errors import AlreadyExists, CorruptArtifact, NotFound
from compatstore.trainers import TrainedModel
from compatstore.versions import HeadLoss

SHORT = {"width": 2, "epochs": 1, "warmup_epochs": 0, "batch_size": 8}


@functools.cache
def images() -> trainers.Images:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), np.uint8)
    return trainers.Images(pixels, np.arange(40) % 2, ("cat", "dog"))


@pytest.fixture(scope="module")
def source() -> TrainedModel:
    return trainers.Independent(dim=4, head="cosine", **SHORT).fit(images())


@pytest.fixture(scope="module")
def target(source: TrainedModel) -> trainers.CompatibleModel:
    return trainers.BCT(dim=6, head="cosine", **SHORT).fit(images(), source)


@pytest.mark.full
def test_a_model_is_the_same_after_a_file(
    tmp_path: Path, source: TrainedModel, target: trainers.CompatibleModel
) -> None:
    for model, name in ((source, "v1"), (target, "v2")):
        folder = tmp_path / "models" / f"{name}.model"
        model.save(folder)
        again = TrainedModel.load(folder)
        assert again.encoder.fingerprint == model.encoder.fingerprint
        assert again.version(name).fingerprint == model.version(name).fingerprint
        assert again.class_names == ("cat", "dog")
        assert again.figures == model.figures
        assert again.version(name).head_loss == model.head_loss == HeadLoss("cosface", 0.0)
        np.testing.assert_array_equal(again.head, model.head)
        assert from_spec(f"network:{folder}/encoder.safetensors").fingerprint == model.encoder.fingerprint
    artifact = Artifact.load(tmp_path / "models" / "v2.model" / "artifact.compat")
    assert artifact.id == target.artifact.id
    artifact.check(TrainedModel.load(tmp_path / "models" / "v1.model").version("v1"), again.version("v2"))


def test_all_artifacts_of_a_model_are_kept(tmp_path: Path, source: TrainedModel) -> None:
    trainers.DMU(dim=4, adapter_width=8, **SHORT).fit(images(), source).save(tmp_path / "v2.model")
    kinds = {path.name: Artifact.load(path).kind for path in (tmp_path / "v2.model").glob("*.compat")}
    assert kinds == {"artifact.compat": "Identity", "adaptation.compat": "ForwardTransform"}


def test_the_next_generation_is_trained_from_a_file(tmp_path: Path, source: TrainedModel) -> None:
    source.save(tmp_path / "v1.model")
    trainer = trainers.BCT(dim=4, head="cosine", **SHORT)
    prints = {trainer.fit(images(), one).artifact.manifest.source.fingerprint
              for one in (source, TrainedModel.load(tmp_path / "v1.model"))}  # fmt: skip
    assert prints == {source.version("v1").fingerprint}


def test_what_is_there_gives_way_only_when_told_to(tmp_path: Path, source: TrainedModel, target: TrainedModel) -> None:
    folder, other = tmp_path / "v1.model", tmp_path / "photos"
    source.save(folder)
    with pytest.raises(AlreadyExists, match="another model"):
        target.save(folder)
    target.save(folder, overwrite=True)
    assert TrainedModel.load(folder).encoder.fingerprint == target.encoder.fingerprint
    other.mkdir()
    (other / "cat.png").write_bytes(b"a picture")
    with pytest.raises(AlreadyExists, match="no model"):
        source.save(other, overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "v1.model"]


@pytest.mark.parametrize("name", ["encoder.safetensors", "head.npy", "model.json"])
def test_a_damaged_model_is_refused(tmp_path: Path, source: TrainedModel, name: str) -> None:
    source.save(tmp_path / "v1.model")
    file = tmp_path / "v1.model" / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptArtifact, match=r"v1\.model"):
        TrainedModel.load(tmp_path / "v1.model")
    file.unlink()
    with pytest.raises(CorruptArtifact, match=r"v1\.model"):
        TrainedModel.load(tmp_path / "v1.model")
    with pytest.raises(NotFound, match="written by save"):
        TrainedModel.load(tmp_path / "gone.model")
