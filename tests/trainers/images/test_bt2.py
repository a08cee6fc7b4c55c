"""BT^2: its loss and algebra against the paper's, and a series of updates through a gallery."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from digit_images import gallery_of

import compatstore as cs
from compatstore import trainers
from compatstore.encoders import NetworkEncoder
from compatstore.encoders.backbones import BasisTransformed, SmallConvNet
from compatstore.errors import InvalidInput
from compatstore.trainers import TrainedModel
from lazily import Lazy

basis_network = Lazy("compatstore.encoders.backbone_networks")
bt2 = Lazy("compatstore.trainers.images.bt2")
compatible = Lazy("compatstore.trainers.images.compatible")
torch = Lazy("torch")

TRAINING = {"width": 8, "epochs": 12, "batch_size": 32}
BRIEFLY = TRAINING | {"epochs": 6}


@pytest.fixture(scope="module")
def source(split) -> TrainedModel:
    return trainers.Independent(dim=12, head="cosine", **TRAINING).fit(split[0].of_classes(range(5)))


@pytest.fixture(scope="module")
def series(split, source) -> list[TrainedModel]:
    """Three versions of 12, 16 and 20 values."""
    second = trainers.BT2(dim=16, extra=4, **TRAINING).fit(split[0], source, held_out=split[1])
    third = trainers.BT2(dim=20, extra=4, **TRAINING).fit(split[0], second, held_out=split[1])
    return [source, second, third]


def network_of(seed: int = 0) -> basis_network.BasisNetwork:
    torch.manual_seed(seed)
    inner = SmallConvNet(size=8, dim=10 + 12, width=2)
    return BasisTransformed(inner=inner, source_dim=12, extra=4, scale=2.0).build().eval()


def test_a_change_of_basis_keeps_inner_products() -> None:
    """Lemma 3: x . y = Px . Py, so the output's products are 1 . phi_2's plus C^2 . phi_3's."""
    network = network_of()
    pixels = torch.randn(6, 1, 8, 8)
    with torch.no_grad():
        parts = network.parts(pixels)
        features = network.inner(pixels)
        extra = torch.nn.functional.normalize(network.extra(features), dim=1)
    products = extra @ extra.T + 2.0**2 * parts.target @ parts.target.T
    torch.testing.assert_close(parts.output @ parts.output.T, products, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(parts.output.norm(dim=1), torch.full((6,), math.sqrt(5.0)))
    assert torch.equal(parts.output[:, :12], parts.compared)
    assert parts.compared.norm(dim=1).std() > 1e-3
    torch.testing.assert_close(parts.output @ network.target_map().T, parts.target, rtol=1e-5, atol=1e-5)


def objective_of(
    method: trainers.BT2, source: TrainedModel, images: trainers.Images, goal: compatible.FrozenSource | None
) -> bt2.BT2Objective:
    preprocessing = method.preprocessing(images)
    known = compatible.SourceKnowledge.of(source, images, dim=method.dim)
    network = method.target_backbone(preprocessing, source.encoder.dim).build()
    return bt2.BT2Objective(
        method, network, preprocessing, known.rows[:, :12], compatible.FrozenSource(source.encoder, method.dim), goal
    )


@pytest.mark.full
@pytest.mark.parametrize("head", ["cosine", "unit-linear"])
@pytest.mark.parametrize("classified", ["target", "output"])
def test_the_loss_is_its_four_terms(split, source, classified: str, head: str) -> None:
    method = trainers.BT2(
        dim=14, extra=4, classified=classified, own_weight=0.5, target_weight=1.5, head=head, **TRAINING
    )
    objective = objective_of(method, source, split[0].take(range(40)), None)
    generator = torch.Generator().manual_seed(3)
    target, compared, output, of_source, goal = (torch.randn(7, n, generator=generator) for n in (10, 12, 14, 12, 10))
    labels = torch.tensor([0, 3, 9, 1, 1, 5, 7])
    found = objective.loss(basis_network.BasisParts(target, compared, output), labels, of_source, goal).item()

    def cos(a: torch.Tensor, b: torch.Tensor) -> float:
        return sum(float(x) * float(y) for x, y in zip(a, b, strict=True)) / float(a.norm()) / float(b.norm())

    def class_loss(vector: torch.Tensor, rows: torch.Tensor, label: int) -> float:
        scales = [16.0 if head == "cosine" else float(row.norm()) for row in rows]
        logits = [scale * cos(vector, row) for scale, row in zip(scales, rows, strict=True)]
        return math.log(sum(math.exp(value) for value in logits)) - logits[label]

    expected = 0.0
    rows = objective.head.rows.detach()
    for i, label in enumerate(labels.tolist()):
        expected += 0.5 * class_loss(output[i] if classified == "output" else target[i], rows, label) / 7
        expected += 1.5 * (1 - cos(target[i], goal[i])) / 7
        expected += 10 * class_loss(compared[i], objective.rows, label) / 7
        expected += 5 * (1 - cos(compared[i], of_source[i])) / 7
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.full
def test_gradients_reach_all_of_the_target_and_nothing_else(split, source) -> None:
    few = split[0].take(range(40))
    method = trainers.BT2(dim=16, extra=4, **TRAINING)
    goal = compatible.FrozenSource(
        trainers.Independent(dim=12, width=4, epochs=1, warmup_epochs=0).fit(few).encoder, 12
    )
    objective = objective_of(method, source, few, goal).train()
    objective(torch.from_numpy(few.images)[:, None], torch.from_numpy(np.asarray(few.labels))).backward()
    for name, parameter in objective.named_parameters():
        frozen = name.startswith(("source.", "goal."))
        assert (parameter.grad is None) == frozen, name
        assert frozen or parameter.grad.abs().sum() > 0, name


@pytest.mark.full
def test_bases_are_orthogonal_after_training_and_plain_when_stored(series) -> None:
    for model in series[1:]:
        network = model.encoder.module
        for basis in (network.basis1, network.basis2):
            matrix = basis.weight.detach().double()
            torch.testing.assert_close(matrix @ matrix.T, torch.eye(len(matrix)).double(), rtol=0, atol=1e-5)
        assert not any("parametrizations" in name for name in network.state_dict())
        again = NetworkEncoder.from_bytes(model.encoder.to_bytes())
        assert again.fingerprint == model.encoder.fingerprint


@pytest.mark.full
def test_the_target_is_good_alone_and_understands_its_source(series) -> None:
    for model in series[1:]:
        assert model.artifact.kind == "Prefix"
        assert model.figures["t/t"] > 0.85
        assert model.figures["t/s"] > 0.6
        assert model.figures["accuracy"] > 0.85


@pytest.mark.full
def test_a_series_is_compared_with_every_version_before_it(tmp_path: Path, split, series: list[TrainedModel]) -> None:
    test = split[1].take(range(300))
    gallery, vectors = gallery_of(tmp_path, series[0], test), series[0].encoder.encode(list(test.images))
    for number, model in enumerate(series[1:], 2):
        gallery.register(model.version(f"v{number}"))
        spaces = {"source": series[0].space("cosine"), "target": model.space("cosine")}
        gallery.artifacts.link(cs.Artifact.create("Prefix", **spaces), "v1", f"v{number}")
        queries = model.encoder.encode(list(test.images[:60]))
        found = gallery.search(queries, k=10, version=f"v{number}", columns=["id"]).to_pylist()
        cut = queries[:, :12] / np.linalg.norm(queries[:, :12], axis=1, keepdims=True)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        order = np.argsort(-(cut @ unit.T), axis=1, kind="stable")[:, :10]
        for row in range(60):
            ids = [int(hit["id"]) for hit in found if hit["_query"] == row]
            np.testing.assert_allclose((cut @ unit.T)[row, ids], (cut @ unit.T)[row, order[row]], atol=1e-5)
        nearest = [next(i for i in order[row] if i != row) for row in range(60)]
        assert np.mean(np.asarray(test.labels)[nearest] == np.asarray(test.labels)[:60]) > 0.6


@pytest.mark.full
def test_the_head_classifies_the_output(split, series) -> None:
    embeddings = series[1].encoder.encode(list(split[1].images))
    predicted = (embeddings @ series[1].head.T).argmax(axis=1)
    assert np.mean(predicted == np.asarray(split[1].labels)) == pytest.approx(series[1].figures["accuracy"])


@pytest.mark.full
def test_images_are_compared_with_given_vectors(split, source) -> None:
    """A stand-in for a text encoder's captions: each class's own direction, with noise."""
    train, test = split
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(10, 12)).astype(np.float32)
    captions = {
        part: directions[part.labels] + 0.3 * rng.normal(size=(len(part), 12)).astype(np.float32) for part in split
    }
    text = cs.EmbeddingVersion("captions", dim=12, model="a text model")
    method = trainers.BT2(dim=16, extra=4, **BRIEFLY)
    model = method.fit_across(train, captions[train], text, held_out=test, held_out_vectors=captions[test])
    assert {"accuracy", "s/s", "t/s", "s/t", "t/t"} <= set(model.figures)
    assert model.figures["t/s"] > 0.8
    assert model.artifact.manifest.figures == model.figures
    model.artifact.check(text, model.version("images"))
    cut = model.artifact.apply(model.encoder.encode(list(test.images))).vectors
    of_text = captions[test] / np.linalg.norm(captions[test], axis=1, keepdims=True)
    nearest = (cut @ of_text.T).argmax(axis=1)
    assert np.mean(np.asarray(test.labels)[nearest] == np.asarray(test.labels)) > 0.8
    with pytest.raises(InvalidInput, match="expected"):
        method.fit_across(train, captions[test], text)
    for held_out in (None, train):
        with pytest.raises(InvalidInput, match=r"held-out vectors|one an image"):
            method.fit_across(train, captions[train], text, held_out=held_out, held_out_vectors=captions[test])
    for version, trainer, words in (
        (cs.EmbeddingVersion("a", dim=12, metric="l2", model="m"), method, 'Set metric="l2"'),
        (cs.EmbeddingVersion("a", dim=12, metric="l2", model="m"), replace(method, metric="l2"), "of any length"),
        (text, trainers.BT2(dim=11, extra=4, **BRIEFLY), "dim of at least the source's 12"),
        (text, trainers.BT2(dim=32, extra=13, **BRIEFLY), "extra of at most that; found dim=32, extra=13"),
    ):
        with pytest.raises(InvalidInput, match=words):
            trainer.fit_across(train, captions[train], version)


def test_what_does_not_fit_is_refused(split, source) -> None:
    with pytest.raises(InvalidInput, match="extra from 1"):
        trainers.BT2(dim=16, extra=16)
    other = trainers.Independent(dim=9, width=2, epochs=1, warmup_epochs=0).fit(split[0].take(range(64)))
    with pytest.raises(InvalidInput, match="12 values; found 9"):
        trainers.BT2(dim=16, extra=4, **TRAINING).fit(split[0], source, target=other)
    shape = BasisTransformed(inner=SmallConvNet(size=8, dim=20), source_dim=12, extra=4)
    with pytest.raises(InvalidInput, match="1 <= extra <= source_dim"):
        replace(shape, extra=13)
