"""The losses of compatible training against their equations written out, value by value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore import trainers
from compatstore.encoders.backbones import SmallConvNet
from compatstore.encoders.network import NetworkEncoder, Preprocessing
from lazily import Lazy
from properties import examples

terms = Lazy("compatstore.trainers.images.terms")
classification = Lazy("compatstore.trainers.images.classification")
compatible = Lazy("compatstore.trainers.images.compatible")
nn = Lazy("torch.nn")
torch = Lazy("torch")

CLASSES, DIM = 4, 6
HEADS = ["linear", "unit-linear", "cosine", "arcface", "cosface"]


def vectors(n: int, seed: int, dim: int = DIM) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32))


def views_of(embeddings: torch.Tensor, source: torch.Tensor, labels: torch.Tensor) -> compatible.Views:
    """Views whose source embeddings are given."""
    made = compatible.Views(torch.empty(0), labels, embeddings, nn.Identity())
    made.__dict__["source"] = source
    return made


def batch(seed: int = 0, n: int = 9) -> compatible.Views:
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, CLASSES, n))
    return views_of(vectors(n, seed + 1), vectors(n, seed + 2), labels)


def knowledge(seed: int = 5, n: int = 23) -> compatible.SourceKnowledge:
    labels = torch.from_numpy(np.arange(n) % CLASSES)
    return compatible.SourceKnowledge(rows=vectors(CLASSES, seed), features=vectors(n, seed + 1), labels=labels)


def dot(a, b) -> float:
    return float(sum(float(x) * float(y) for x, y in zip(a, b, strict=True)))


def cosine(a, b) -> float:
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def cross_entropy(logits: list[float], label: int) -> float:
    return math.log(sum(math.exp(value) for value in logits)) - logits[label]


def class_loss(method: compatible.CompatibleTraining, embedding, rows, label: int) -> float:
    """One embedding's loss through a head, as the heads are defined."""
    if method.head in ("linear", "unit-linear"):
        length = 1 if method.head == "linear" else math.sqrt(dot(embedding, embedding))
        logits = [dot(row, embedding) / length for row in rows]
        smoothed = [cross_entropy(logits, index) for index in range(len(rows))]
        share = method.label_smoothing
        return (1 - share) * smoothed[label] + share * sum(smoothed) / len(rows)
    angles = [math.acos(cosine(row, embedding)) for row in rows]
    if method.head == "arcface":
        if angles[label] + method.margin <= math.pi:
            true = math.cos(angles[label] + method.margin)
        else:
            true = math.cos(angles[label]) - method.margin * math.sin(method.margin)
    else:
        true = math.cos(angles[label]) - (method.margin if method.head == "cosface" else 0)
    logits = [method.scale * (true if index == label else math.cos(angle)) for index, angle in enumerate(angles)]
    return cross_entropy(logits, label)


def loss_of(
    method: compatible.CompatibleTraining, views: compatible.Views, known: compatible.SourceKnowledge
) -> torch.Tensor:
    torch.manual_seed(0)
    return method.term(known, classification.ClassHead(method, CLASSES))(views)


def close(found: torch.Tensor, expected: float) -> None:
    assert found.shape == ()
    assert found.item() == pytest.approx(expected, rel=2e-5, abs=1e-6)


@given(seed=st.integers(0, 99), head=st.sampled_from(HEADS), smoothing=st.floats(0, 0.5))
@examples(40)
def test_bct_classifies_through_the_source_s_rows(seed: int, head: str, smoothing: float) -> None:
    method = trainers.BCT(dim=DIM, head=head, weight=2.5, scale=7.0, margin=0.4, label_smoothing=smoothing)
    views, known = batch(seed), knowledge(seed + 50)
    plain = [class_loss(method, e, known.rows, int(y)) for e, y in zip(views.embeddings, views.labels, strict=True)]
    close(loss_of(method, views, known), 2.5 * sum(plain) / len(plain))


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_regression_measures_the_distance_to_the_source(distance: str) -> None:
    views, known = batch(), knowledge()
    pairs = list(zip(views.embeddings, views.source, strict=True))
    if distance == "cosine":
        plain = sum(1 - cosine(t, s) for t, s in pairs) / len(pairs)
    else:
        length = sum(dot(f, f) for f in known.features) / len(known.features)
        plain = sum(dot(t - s, t - s) for t, s in pairs) / len(pairs) / length
    close(loss_of(trainers.Regression(dim=DIM, distance=distance, weight=3.0), views, known), 3 * plain)


def test_focal_distillation_weighs_what_the_source_gets_right() -> None:
    views, known = batch(n=40), knowledge()
    length, total, right = sum(dot(f, f) for f in known.features) / len(known.features), 0.0, 0
    for t, s, y in zip(views.embeddings, views.source, views.labels, strict=True):
        logits = [dot(row, s) for row in known.rows]
        correct = logits.index(max(logits)) == int(y)
        right += correct
        total += (0.5 + 4.0 * correct) * dot(t - s, t - s) / length
    assert 0 < right < 40
    close(loss_of(trainers.FocalDistillation(dim=DIM, alpha=0.5, beta=4.0, weight=2.0), views, known), 2 * total / 40)


def walk(features: np.ndarray, temperature: float, restart: float) -> np.ndarray:
    """Iterate the walk with restarts until it stands still."""
    n = len(features)
    weights = [[math.exp(cosine(features[i], features[j]) / temperature) for j in range(n)] for i in range(n)]
    transition = np.array([[w / sum(row) for w in row] for row in weights])
    refined = features
    for _ in range(2000):
        refined = (1 - restart) * transition @ refined + restart * features
    return refined


@pytest.mark.parametrize(("temperature", "restart"), [(0.1, 0.1), (1.0, 0.5), (0.3, 1.0)])
def test_unibct_refines_features_by_a_random_walk_in_their_class(temperature: float, restart: float) -> None:
    views, known = batch(), knowledge()
    refined = terms.refined_features(known.features, known.labels, temperature=temperature, restart=restart)
    expected, prototypes = np.empty((len(known.features), DIM)), []
    length = sum(math.sqrt(dot(row, row)) for row in known.rows) / CLASSES
    for label in range(CLASSES):
        members = (known.labels == label).numpy()
        expected[members] = walk(known.features[members].double().numpy(), temperature, restart)
        mean = expected[members].mean(axis=0)
        prototypes.append(length * mean / math.sqrt(dot(mean, mean)))
    np.testing.assert_allclose(refined, expected, rtol=1e-4, atol=1e-5)
    method = trainers.UniBCT(dim=DIM, temperature=temperature, restart=restart, weight=0.5)
    plain = [class_loss(method, e, prototypes, int(y)) for e, y in zip(views.embeddings, views.labels, strict=True)]
    close(loss_of(method, views, known), 0.5 * sum(plain) / len(plain))


def test_lce_aligns_rows_with_centres_and_keeps_items_in_their_boundary() -> None:
    views, known = batch(), knowledge()
    method = trainers.LCEAlignment(dim=DIM, alignment=100.0, boundary=2.0, head="cosine")
    torch.manual_seed(0)
    rows = classification.ClassHead(method, CLASSES).rows.detach()
    alignment, centres, boundaries = 0.0, [], []
    for label in range(CLASSES):
        members = [f / math.sqrt(dot(f, f)) for f, y in zip(known.features, known.labels, strict=True) if y == label]
        centre = sum(members[1:], members[0]) / len(members)
        centres.append(centre / math.sqrt(dot(centre, centre)))
        boundaries.append(min(cosine(f, centre) for f in members))
        row = rows[label] / math.sqrt(dot(rows[label], rows[label]))
        alignment += dot(row - centres[-1], row - centres[-1]) / DIM / CLASSES
    outside = [
        max(0.0, boundaries[int(y)] - cosine(e, centres[int(y)]))
        for e, y in zip(views.embeddings, views.labels, strict=True)
    ]
    assert 0 < sum(value > 0 for value in outside) < len(outside)
    close(loss_of(method, views, known), 100 * alignment + 2 * sum(outside) / len(outside))


def test_a_class_that_the_source_never_saw_has_no_boundary() -> None:
    known = knowledge()
    some = compatible.SourceKnowledge(rows=known.rows, features=known.features[:3], labels=torch.tensor([0, 1, 2]))
    views = batch()
    assert loss_of(trainers.LCEAlignment(dim=DIM, alignment=0.0), views, some).isfinite()


METHODS = ["BCT", "Regression", "FocalDistillation", "UniBCT", "LCEAlignment"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("head", ["linear", "arcface"])
def test_gradients_reach_the_target_and_nothing_of_the_source(method: str, head: str) -> None:
    images = trainers.Images(np.random.default_rng(0).integers(0, 255, (12, 8, 8), np.uint8), np.arange(12) % CLASSES)
    preprocessing = Preprocessing(size=8, mode="L")
    encoder = NetworkEncoder(SmallConvNet(size=8, dim=DIM, width=2), preprocessing, normalise=True, device="cpu")
    trainer = getattr(trainers, method)(dim=DIM + 2, width=2, head=head)
    features = torch.nn.functional.pad(torch.from_numpy(encoder.encode(list(images.images))), (0, 2))
    labels = torch.from_numpy(np.asarray(images.labels))
    rows = torch.nn.functional.pad(vectors(CLASSES, 1), (0, 2))
    known = compatible.SourceKnowledge(rows=rows, features=features, labels=labels)
    network = SmallConvNet(size=8, dim=DIM + 2, width=2).build()
    objective = trainer.objective(network, preprocessing, compatible.FrozenSource(encoder, DIM + 2), known).train()
    before = {name: tensor.clone() for name, tensor in objective.source.state_dict().items()}
    pixels = torch.from_numpy(images.images)[:, None]
    # Of the term alone: the target's own loss reaches all of the target anyway.
    views = compatible.Views(pixels, labels, objective.embed(pixels), objective.source)
    objective.term(views).backward()
    for name, parameter in objective.network.named_parameters():
        assert parameter.grad is not None, name
    assert any(parameter.grad.any() for parameter in objective.network.parameters())
    assert (objective.head.rows.grad is not None) == (method == "LCEAlignment")
    assert not any(parameter.requires_grad for parameter in objective.source.parameters())
    assert not any(module.training for module in objective.source.modules())
    for name, tensor in objective.source.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("head", HEADS)
def test_own_loss_and_term_are_weighed_apart(head: str) -> None:
    """`own_weight L(kappa_t) + weight L(w_s)`, both written out."""
    images = trainers.Images(np.random.default_rng(0).integers(0, 255, (12, 8, 8), np.uint8), np.arange(12) % CLASSES)
    preprocessing = Preprocessing(size=8, mode="L")
    encoder = NetworkEncoder(SmallConvNet(size=8, dim=DIM, width=2), preprocessing, device="cpu")
    trainer = trainers.BCT(dim=DIM, width=2, head=head, own_weight=0.25, weight=7.0, label_smoothing=0.1)
    known = knowledge()
    network = SmallConvNet(size=8, dim=DIM, width=2).build()
    objective = trainer.objective(network, preprocessing, compatible.FrozenSource(encoder, DIM), known).eval()
    pixels, labels = torch.from_numpy(images.images)[:, None], torch.from_numpy(np.asarray(images.labels))
    with torch.no_grad():
        found, embeddings = objective(pixels, labels), objective.embed(pixels)
    expected = 0.0
    for embedding, label in zip(embeddings, labels.tolist(), strict=True):
        expected += 0.25 * class_loss(trainer, embedding, objective.head.rows.detach(), label) / 12
        expected += 7.0 * class_loss(trainer, embedding, known.rows, label) / 12
    close(found, expected)
