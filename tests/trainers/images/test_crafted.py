"""A checkpoint or a trained model from anywhere loads as it was written, or is refused as corrupt."""

from __future__ import annotations

import json

import numpy as np
import pytest
from crafted import damages, mutations
from hypothesis import given

from compatstore.encoders.backbones import SmallConvNet
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from compatstore.errors import CorruptArtifact, Incompatible
from compatstore.trainers import TrainedModel
from lazily import Lazy
from properties import examples

pytestmark = pytest.mark.full

checkpoints = Lazy("compatstore.trainers.images.checkpoint")
torch = Lazy("torch")


def resumable():
    torch.manual_seed(0)
    objective = torch.nn.Linear(2, 1)
    optimiser = torch.optim.SGD(objective.parameters(), lr=0.1, momentum=0.9)
    objective(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    return checkpoints.Resumable(objective, optimiser, torch.Generator(), None)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A checkpoint and the bytes of its file."""
    kept = checkpoints.Checkpoint(path=tmp_path_factory.mktemp("run") / "c.safetensors", belongs_to={"trainer": "t"})
    training = resumable()
    training.save(kept, 3, 0.5)
    return kept, kept.path.read_bytes()


def assert_goes_on_or_is_refused(checkpoint, content):
    checkpoint.path.write_bytes(content)
    try:
        epoch, loss = resumable().resume(checkpoint)
    except (CorruptArtifact, Incompatible):
        return
    assert epoch >= 0
    assert isinstance(loss, float)


def test_damaged_checkpoints(checkpoint):
    kept, content = checkpoint

    @examples(150)
    @given(damages(content))
    def damaged(content):
        assert_goes_on_or_is_refused(kept, content)

    damaged()


def test_checkpoints_with_another_note(checkpoint):
    kept, content = checkpoint
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    description = json.loads(header["__metadata__"]["compatstore"])

    @examples(150)
    @given(mutations(description))
    def mutated(description):
        text = json.dumps(header | {"__metadata__": {"compatstore": json.dumps(description)}}).encode()
        assert_goes_on_or_is_refused(kept, len(text).to_bytes(8, "little") + text + content[end:])

    mutated()


def test_models_with_another_description(tmp_path):
    encoder = NetworkEncoder(SmallConvNet(size=8, dim=4, width=2), Preprocessing(size=8, mode="L"))
    model = TrainedModel(encoder=encoder, head=np.eye(2, 4, dtype=np.float32), class_names=("a", "b"))
    model.save(tmp_path / "m.model")
    description = json.loads((tmp_path / "m.model" / "model.json").read_text())

    @examples(150)
    @given(mutations(description))
    def mutated(description):
        (tmp_path / "m.model" / "model.json").write_text(json.dumps(description))
        try:
            loaded = TrainedModel.load(tmp_path / "m.model")
        except CorruptArtifact:
            return
        assert loaded.encoder.fingerprint == encoder.fingerprint

    mutated()
