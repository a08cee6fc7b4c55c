"""The transforms that FCT and FastFill are compared with, and what all trainers on pairs share."""

import numpy as np
import pytest

from compatstore import trainers
from compatstore.artifacts.network import Execution, Network
from compatstore.errors import InvalidInput
from compatstore.trainers import Pairs
from compatstore.versions import EmbeddingVersion
from lazily import Lazy

heads = Lazy("compatstore.trainers.pairs.two_branch")
loop = Lazy("compatstore.trainers.pairs.loop")
nn = Lazy("torch.nn")
torch = Lazy("torch")
two_branch = Lazy("compatstore.trainers.pairs.two_branch")

QUICK = {"epochs": 15, "batch_size": 128, "learning_rate": 4e-3}
TRAINERS = {
    "FCT": lambda: trainers.FCT(**QUICK, branch_width=16, mixer_width=32),
    "FastFill": lambda: trainers.FastFill(**QUICK, branch_width=16, mixer_width=32, disc_weight=1.0),
    "Residual": lambda: trainers.Residual(**QUICK, width=32),
    "RBT": lambda: trainers.RBT(**QUICK),
    "DriftAdapter": lambda: trainers.DriftAdapter(**QUICK | {"epochs": 60}, width=32),
    "DMUHead": lambda: trainers.DMUHead(**QUICK, width=32),
    "LCE": lambda: trainers.LCE(**QUICK, width=32),
}


def rotated(n=900, seed=0, output_dim=8):
    """Six classes; the target is the source turned and bent."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(6, size=n)
    source = np.random.default_rng(5).normal(size=(6, 8))[labels] + 0.4 * rng.normal(size=(n, 8))
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(8, 8)))[0][:, :output_dim]
    return source, np.tanh(source @ turn), labels


@pytest.mark.full
@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("output_dim", [8, 5])
def test_each_brings_items_near_their_class(name, output_dim):
    source, target, labels = rotated(output_dim=output_dim)
    artifact = TRAINERS[name]().fit(Pairs(source, target, labels=labels))
    fresh, native, fresh_labels = rotated(seed=1, output_dim=output_dim)
    head = heads.class_means(Pairs(fresh, native, labels=fresh_labels)).rows
    right = (artifact.apply(fresh).vectors @ head.T).argmax(axis=1) == fresh_labels
    assert right.mean() > 0.85
    assert artifact.manifest.method == name
    assert artifact.kind == "ForwardTransform"


@pytest.mark.full
@pytest.mark.parametrize("name", ["FCT", "FastFill", "Residual", "RBT", "DriftAdapter"])
def test_those_that_see_native_vectors_come_near_them(name):
    source, target, labels = rotated()
    fresh, native, _ = rotated(seed=1)
    moved = TRAINERS[name]().fit(Pairs(source, target, labels=labels)).apply(fresh).vectors
    assert np.square(moved - native).sum() < 0.3 * np.square(native - native.mean(axis=0)).sum()


@pytest.mark.full
@pytest.mark.parametrize("name", TRAINERS)
@pytest.mark.parametrize("with_side", [False, True])
def test_the_folded_network_is_the_module(name, with_side):
    source, target, labels = rotated(64)
    trainer = TRAINERS[name]()
    side = np.random.default_rng(2).normal(size=(64, 3)) if with_side else None
    artifact = trainer.fit(Pairs(source, target, side=side, labels=labels))
    architecture = artifact.manifest.networks["h"]
    rows = loop.Batch(
        source=torch.from_numpy(source).float(),
        target=torch.from_numpy(target).float(),
        side=None if side is None else torch.from_numpy(side).float(),
    )
    torch.manual_seed(0)
    model = trainer.network(architecture, rows)
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.3)
    model(rows.source, rows.side)  # moves the running statistics
    expected = model.eval()(rows.source, rows.side)
    tensors = {key: value.float().numpy() for key, value in two_branch.fold(model).items()}
    architecture.require("h", tensors)
    for execution in (Execution(), Execution(precision="bfloat16")):
        vectors, sigma2 = Network(architecture, tensors).run(
            rows.source.numpy(), None if rows.side is None else rows.side.numpy(), execution
        )
        loose = execution.precision == "bfloat16"
        scale = expected.vectors.detach().abs().max().item()
        np.testing.assert_allclose(vectors, expected.vectors.detach(), atol=(3e-2 if loose else 1e-5) * scale)
        assert (sigma2 is None) == (expected.log_sigma2 is None)


def test_rbt_keeps_its_paths_apart_and_the_identity_fixed():
    source, target, _ = rotated()
    tensors = trainers.RBT(**QUICK, paths=3, bottleneck=4).fit(Pairs(source, target)).tensors
    middle = tensors["h.mixer.1.weight"] != 0
    assert np.array_equal(middle, np.kron(np.eye(3), np.ones((4, 4))) != 0)
    assert np.array_equal(tensors["h.skip.weight"], np.eye(8, dtype=np.float32))


@pytest.mark.parametrize("kind", ["DMUHead", "LCE"])
def test_training_through_a_head_needs_labels_and_leaves_the_head_alone(kind):
    source, target, labels = rotated(100)
    with pytest.raises(InvalidInput, match="labels"):
        getattr(trainers, kind)(epochs=1).fit(Pairs(source, target))
    head = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    before = head.copy()
    getattr(trainers, kind)(epochs=2, width=16).fit(Pairs(source, target, labels=labels, head=head))
    assert np.array_equal(head, before)


def test_the_versions_head_is_the_given_one():
    source, target, labels = rotated(100)
    version = EmbeddingVersion("v2", dim=8, head=np.eye(8, dtype=np.float32))
    pairs = Pairs(source, target, labels=labels, target_version=version)
    assert trainers.LCE(epochs=1, width=8).fit(pairs).manifest.settings["resolved"]["head"] == "given"


def test_rows_or_classes_are_held_out():
    source, target, labels = rotated()
    pairs = Pairs(source, target, labels=labels)
    assert trainers.DriftAdapter(epochs=1).fit(pairs).manifest.figures["h"]["rows"] == 90
    one_class = trainers.DriftAdapter(epochs=1, holdout_by="class").fit(pairs).manifest.figures["h"]["rows"]
    assert one_class in np.bincount(labels)
    with pytest.raises(InvalidInput, match="labels"):
        trainers.DriftAdapter(epochs=1, holdout_by="class").fit(Pairs(source, target))
