"""DMU: its weights and losses against the equations, and three generations through a gallery."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from digit_images import gallery_of
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore import trainers
from compatstore.digests import digest_half
from compatstore.errors import Incompatible, InvalidInput
from compatstore.trainers import TrainedModel
from lazily import Lazy

dmu = Lazy("compatstore.trainers.images.dmu")
compatible = Lazy("compatstore.trainers.images.compatible")
torch = Lazy("torch")


@pytest.fixture(scope="module")
def source(split) -> TrainedModel:
    return trainers.Independent(dim=12, width=8, epochs=6, head="cosine").fit(split[0].of_classes(range(5)))


@pytest.fixture(scope="module")
def generations(split, source) -> list[TrainedModel]:
    """A source, its target, and that one's target, each knowing more classes."""
    models = [source]
    for classes in (8, 10):
        trainer = trainers.DMU(dim=12, width=8, epochs=12, batch_size=32, adapter_width=128, scale=16.0)
        chosen = [images.of_classes(range(classes)) for images in split]
        models.append(trainer.fit(chosen[0], models[-1], held_out=chosen[1]))
    return models


def predicted(logits: np.ndarray) -> list[list[float]]:
    exponentials = [[math.exp(value - max(row)) for value in row] for row in logits]
    return [[value / sum(row) for value in row] for row in exponentials]


def written_out_weights(logits: np.ndarray) -> list[float]:
    entropies = [-sum(value * math.log(value) for value in p if value > 0) for p in predicted(logits)]
    exponentials = [math.exp(value) for value in entropies]
    return [(1 - value / sum(exponentials)) / (len(logits) - 1) for value in exponentials]


def written_out_confidence(logits: np.ndarray, labels: np.ndarray) -> list[float]:
    exponentials = [math.exp(p[label]) for p, label in zip(predicted(logits), labels, strict=True)]
    return [value / sum(exponentials) for value in exponentials]


batches = given(seed=st.integers(0, 1000), rows=st.integers(2, 8), scale=st.sampled_from([0.1, 1.0, 20.0]))


def drawn(seed: int, rows: int, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return torch.tensor(scale * rng.normal(size=(rows, 4))), torch.tensor(rng.integers(4, size=rows))


@batches
def test_weights_are_equation_10(seed: int, rows: int, scale: float) -> None:
    logits, labels = drawn(seed, rows, scale)
    weights = dmu.selective_weights(logits, labels, "entropy")
    np.testing.assert_allclose(weights, written_out_weights(logits.numpy()), rtol=1e-6)
    assert float(weights.sum()) == pytest.approx(1)
    assert dmu.selective_weights(logits, labels, "none").tolist() == pytest.approx([1 / rows] * rows)


@batches
def test_least_confidence_is_equation_13(seed: int, rows: int, scale: float) -> None:
    logits, labels = drawn(seed, rows, scale)
    weights = dmu.selective_weights(logits, labels, "least-confidence")
    np.testing.assert_allclose(weights, written_out_confidence(logits.numpy(), labels.numpy()), rtol=1e-6)
    assert float(weights.sum()) == pytest.approx(1)
    assert float(weights.max() / weights.min()) <= math.e * (1 + 1e-12)


@given(entropies=st.lists(st.floats(0, 50), min_size=2, max_size=64))
def test_deviations_of_entropy_weights_add_up_to_two_in_a_batch_at_most(entropies: list[float]) -> None:
    """Whatever the uncertainties: (1 - s) / (b - 1) is apart from 1/b by (1/b - s) / (b - 1)."""
    softmax = torch.tensor(entropies, dtype=torch.float64).softmax(dim=0)
    size = len(entropies)
    apart = (1 - softmax) / (size - 1) - 1 / size
    assert float(apart.abs().sum()) <= 2 / size + 1e-12


def test_the_bound_holds_for_the_weights_of_a_prediction_that_is_as_uneven_as_can_be() -> None:
    """One item of which nothing is known among many that are certain: it loses all weight that there is to lose."""
    classes, size = 10_000, 64
    logits = torch.zeros(size, classes, dtype=torch.float64)
    logits[1:, 0] = 1000.0
    weights = dmu.selective_weights(logits, torch.zeros(size, dtype=torch.int64), "entropy")
    total = float((weights - 1 / size).abs().sum())
    assert 1.9 / size < total <= 2 / size


def test_what_the_source_is_unsure_of_is_inherited_less() -> None:
    logits, labels = torch.tensor([[9.0, 0, 0], [1.0, 1, 1], [3.0, 2, 0]]), torch.zeros(3, dtype=torch.int64)
    for selection in ("entropy", "least-confidence"):
        weights = dmu.selective_weights(logits, labels, selection)
        assert weights[0] > weights[2] > weights[1]


def test_least_confidence_asks_for_the_true_class() -> None:
    """A source that is sure and wrong is not to be inherited from; its entropy does not say so."""
    logits = torch.tensor([[9.0, 0, 0], [9.0, 0, 0]])
    labels = torch.tensor([0, 1])
    right, wrong = dmu.selective_weights(logits, labels, "least-confidence").tolist()
    assert right > 2.6 * wrong
    assert dmu.selective_weights(logits, labels, "entropy").tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.full
def test_on_digits_least_confidence_is_uneven_and_entropy_is_not(split, source) -> None:
    """At 64 images a batch 0.51 to 1.49 of an even weight; the form of equation 10 would give 0.99 to 1.00."""
    spread = {}
    for selection in ("entropy", "least-confidence"):
        method = trainers.DMU(dim=12, width=4, adapter_width=16, selection=selection)
        spread[selection] = objective_of(method, source, split[0]).weight_spread(64)
    assert 1 / math.e < spread["least-confidence"]["smallest_weight"] < 0.6
    assert 1.1 < spread["least-confidence"]["largest_weight"] < 1.6
    assert 0.8 < spread["entropy"]["smallest_weight"] < spread["entropy"]["largest_weight"] < 1.02


def objective_of(
    method: trainers.DMU, source: TrainedModel, images: trainers.Images, refreshed: Sequence[trainers.Refreshed] = ()
) -> dmu.DMUObjective:
    preprocessing = method.preprocessing(images)
    known = compatible.SourceKnowledge.of(source, images, dim=method.dim)
    network = method.backbone(preprocessing).build()
    frozen = compatible.FrozenSource(source.encoder, method.dim)
    return dmu.DMUObjective(method, network, preprocessing, frozen, known, refreshed)


def tensors(images: trainers.Images) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(images.images)[:, None], torch.from_numpy(np.asarray(images.labels))


@pytest.mark.parametrize(
    ("compatibility", "weighed"),
    [
        ("head", {}),
        ("regression", {}),
        ("head", {"own_weight": 0.5, "inherited_weight": 3.0, "adaptation_weight": 0.25, "adaptation_scale": 4.0}),
        ("head", {"adaptation_weight": 0.0}),
    ],
)
def test_the_loss_is_equation_8(split, source, compatibility: str, weighed: dict[str, float]) -> None:
    few = split[0].take(range(24))
    method = trainers.DMU(dim=12, width=4, adapter_width=16, compatibility=compatibility, **weighed)
    objective = objective_of(method, source, few).eval()
    pixels, labels = tensors(few)
    with torch.no_grad():
        embeddings = objective.embed(pixels).double().numpy()
        of_source = objective.source(pixels)
        # Without its loss there is no head; its embeddings have the weight 0 below.
        adapted = of_source if objective.adapter is None else objective.adapter(of_source, None).vectors
        adapted = adapted.double().numpy()
    rows = {"new": objective.head.rows, "source": objective.rows}
    rows = {name: value.detach().double().numpy() for name, value in rows.items()}
    of_source = of_source.double().numpy()

    def cos(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    def arcface(x: np.ndarray, head: np.ndarray, label: int, scale: float = 30) -> float:
        logits = [scale * cos(x, row) for row in head]
        logits[label] = scale * math.cos(math.acos(cos(x, head[label])) + 0.3)
        return -logits[label] + math.log(sum(math.exp(value) for value in logits))

    weights = written_out_weights(np.array([[30 * cos(x, row) for row in rows["source"]] for x in of_source]))
    expected = 0.0
    own, inherits, adapts = (weighed.get(name, 1.0) for name in ("own_weight", "inherited_weight", "adaptation_weight"))
    for i, label in enumerate(few.labels):
        expected += own * arcface(embeddings[i], rows["new"], label) / 24
        inherited = arcface(embeddings[i], rows["source"], label)
        inherited = inherited if compatibility == "head" else 1 - cos(embeddings[i], of_source[i])
        expected += inherits * weights[i] * inherited
        expected += adapts * arcface(adapted[i], rows["new"], label, weighed.get("adaptation_scale", 30)) / 24
    assert objective(pixels, labels).item() == pytest.approx(expected, rel=1e-4)


def test_gradients_reach_the_target_its_head_and_the_adaptation_alone(split, source) -> None:
    few = split[0].take(range(24))
    objective = objective_of(trainers.DMU(dim=12, width=4, adapter_width=16), source, few).train()
    pixels, labels = torch.from_numpy(few.images)[:, None], torch.from_numpy(np.asarray(few.labels))
    objective(pixels, labels).backward()
    moved = {name for name, parameter in objective.named_parameters() if parameter.grad is not None}
    assert moved == {name for name, _ in objective.named_parameters() if not name.startswith("source.")}
    assert any(name.startswith("adapter.") for name in moved)
    assert all(torch.isfinite(parameter.grad).all() for parameter in objective.parameters() if parameter.requires_grad)


def test_without_the_adaptation_s_loss_no_head_is_trained(split, source) -> None:
    few = split[0].take(range(200))
    trainer = trainers.DMU(dim=12, width=4, epochs=1, warmup_epochs=0, adaptation_weight=0.0)
    model = trainer.fit(few, source, held_out=few)
    assert set(model.artifacts()) == {"artifact"}
    assert "t/h" not in model.figures
    assert model.adaptation is None


@pytest.mark.parametrize("two_views", [True, False])
def test_source_and_target_see_views_of_their_own(split, source, two_views: bool) -> None:
    """Algorithm 1 draws `x_old = aug(x)` and `x_new = aug(x)`."""
    few = split[0].take(range(24))
    method = trainers.DMU(dim=12, width=4, adapter_width=16, augmentation=trainers.Augmentation(), two_views=two_views)
    objective, seen = objective_of(method, source, few).eval(), []
    objective.source.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    objective.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    objective(*tensors(few))
    assert len(seen) == 2
    assert torch.equal(*seen) != two_views


@pytest.mark.full
def test_the_adaptation_learns_from_refreshed_vectors_too(split, generations) -> None:
    """The mean of equation 11 over native vectors of the source and over those that a refresh made."""
    few = split[0].take(range(24))
    first, second = generations[:2]
    refreshed = trainers.Refreshed(first, [second.adaptation])
    method = trainers.DMU(
        dim=12, width=4, adapter_width=16, own_weight=1e-12, inherited_weight=0.0, scale=8.0, margin=0.0
    )
    objective = objective_of(method, second, few, [refreshed]).eval()
    native = second.encoder.encode(list(few.images))
    made = second.adaptation.apply(first.encoder.encode(list(few.images))).vectors
    np.testing.assert_allclose(refreshed.vectors(few), made)
    losses = []
    with torch.no_grad():
        rows = torch.nn.functional.normalize(objective.head.rows, dim=1).double().numpy()
        for stored in (native, made):
            for adapted, label in zip(
                objective.adapter(torch.from_numpy(stored), None).vectors, few.labels, strict=True
            ):
                logits = [8 * float(np.dot(adapted.double().numpy(), row)) for row in rows]
                losses.append(math.log(sum(map(math.exp, logits))) - logits[label])
        assert objective(*tensors(few)).item() == pytest.approx(sum(losses) / 48, rel=1e-4)


@pytest.mark.full
def test_a_gallery_refreshed_twice_is_learned_from_and_measured(split, generations) -> None:
    first, second = generations[:2]
    refreshed = trainers.Refreshed(first, [second.adaptation])
    trainer = trainers.DMU(dim=12, width=4, epochs=2, adapter_width=32, head="cosine")
    few, held_out = split[0].take(range(300)), split[1].take(range(150))
    third = trainer.fit(few, second, refreshed=[refreshed], held_out=held_out)
    assert 0 < third.figures["t/h, refreshed 1"] <= 1
    for vectors in (second.encoder.encode(list(few.images)), refreshed.vectors(few)):
        assert np.isin(digest_half(vectors), third.adaptation.seen).all()
    again = trainers.Refreshed(first, [second.adaptation, third.adaptation])
    assert again.vectors(few).shape == (300, 12)
    with pytest.raises(Incompatible, match="for the source"):
        trainer.fit(few, first, refreshed=[refreshed])
    with pytest.raises(Incompatible, match="for adaptation 1"):
        trainer.fit(few, second, refreshed=[trainers.Refreshed(second, [second.adaptation])])
    with pytest.raises(InvalidInput, match="found Identity"):
        trainers.Refreshed(first, [second.artifact])
    with pytest.raises(InvalidInput, match="found none"):
        trainers.Refreshed(first, [])
    with pytest.raises(InvalidInput, match="adaptations"):
        trainers.Refreshed(first, None)  # type: ignore[arg-type]
    without = trainers.DMU(dim=12, width=4, adaptation_weight=0.0)
    with pytest.raises(InvalidInput, match="trains no adaptation"):
        without.fit(few, second, refreshed=[refreshed])


@pytest.mark.full
def test_figures_say_how_even_the_weights_are(generations) -> None:
    for model in generations[1:]:
        assert {"t/s", "t/h", "t/t"} <= set(model.figures)
        assert 0.5 < model.figures["smallest_weight"] <= 1 <= model.figures["largest_weight"] < 1.2


@pytest.mark.full
def test_three_generations_in_one_gallery(tmp_path: Path, split, generations: list[trainers.CompatibleModel]) -> None:
    test = split[1].take(range(300))
    gallery = gallery_of(tmp_path, generations[0], test)
    for number, (old, new) in enumerate(pairwise(generations), 1):
        source, target = f"v{number}", f"v{number + 1}"
        gallery.register(new.version(target))
        queries = new.encoder.encode(list(test.images))
        of_nobody = right(gallery, np.roll(queries, 1, axis=1), test, source)
        gallery.artifacts.link(new.artifact, source, target)
        assert right(gallery, queries, test, target) > of_nobody + 0.2
        gallery.artifacts.link(new.adaptation, source, target)
        gallery.upgrade(target)
        gallery.cutover(target)
        origins = gallery.search(queries, k=2, version=target).column("_origin").unique().to_pylist()
        assert origins == [new.adaptation.short_id]
        assert right(gallery, queries, test, target) > of_nobody + 0.2
        assert old.encoder.fingerprint != new.encoder.fingerprint


def right(gallery: cs.Gallery, queries: np.ndarray, images: trainers.Images, version: str) -> float:
    """Share of queries whose nearest other image is of their class."""
    found = gallery.search(queries, k=2, version=version, columns=["id", "digit"]).to_pylist()
    nearest: dict[int, int] = {}
    for hit in found:
        if hit["id"] != str(hit["_query"]):
            nearest.setdefault(hit["_query"], hit["digit"])
    return float(np.mean([nearest[row] == images.labels[row] for row in range(len(images))]))
