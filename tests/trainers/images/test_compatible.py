"""What every method of compatible training shares, shown with BCT."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from digit_images import gallery_of, lessons, others

import compatstore as cs
from compatstore import trainers
from compatstore.encoders import NetworkEncoder
from compatstore.encoders.backbones import SmallConvNet
from compatstore.encoders.network import Preprocessing
from compatstore.errors import Incompatible, InvalidInput
from compatstore.trainers import TrainedModel
from lazily import Lazy
from tiers import few

compatible = Lazy("compatstore.trainers.images.compatible")
torch = Lazy("torch")


@pytest.fixture(scope="module")
def source() -> TrainedModel:
    return trainers.Independent(dim=12, width=8, epochs=8, head="cosine").fit(lessons().of_classes(range(5)))


@pytest.fixture(scope="module", params=few(1, [12, 20]), ids=["BCT", "BCT(+8)"])
def target(request: pytest.FixtureRequest, source: TrainedModel):
    trainer = trainers.BCT(dim=request.param, width=12, epochs=10, batch_size=32, head="cosine")
    return trainer.fit(lessons(), source, held_out=others())


def nearest_is_right(gallery: cs.Gallery, version: str | None = None) -> float:
    """Share of test images whose nearest other image in the gallery is of their class."""
    right = []
    for row, image in enumerate(others().images[:80]):
        found = gallery.search(image, k=2, version=version, columns=["id", "digit"]).to_pydict()
        other = next(i for i, item in enumerate(found["id"]) if item != str(row))
        right.append(found["digit"][other] == others().labels[row])
    return float(np.mean(right))


@pytest.mark.full
def test_target_queries_search_the_source_gallery_before_any_backfill(tmp_path: Path, source, target) -> None:
    gallery = gallery_of(tmp_path, source, others())
    gallery.register(target.version("v2"))
    gallery.artifacts.link(target.artifact, "v1", "v2")
    assert nearest_is_right(gallery, "v2") > 0.6
    assert target.figures["t/s"] > 0.6
    assert target.figures["t/t"] > 0.9
    assert target.artifact.manifest.figures == target.figures
    assert target.artifact.kind == ("Identity" if target.encoder.dim == 12 else "Prefix")


def test_an_artifact_belongs_to_its_two_models_and_their_metric(source, target) -> None:
    target.artifact.check(source.version("v1"), target.version("v2"))
    for v1, v2 in (
        (source.version("v1", metric="l2"), target.version("v2", metric="l2")),
        (source.version("v1"), trainers.Independent(dim=target.encoder.dim, width=2, epochs=1, warmup_epochs=0)
         .fit(lessons().take(range(64))).version("v2")),
    ):  # fmt: skip
        with pytest.raises(Incompatible, match=r"model|fingerprint"):
            target.artifact.check(v1, v2)


@pytest.mark.full
def test_training_leaves_the_source_as_it_was_and_repeats(source) -> None:
    before = source.encoder.fingerprint, source.head.tobytes()
    state = copy.deepcopy(source.encoder.module.state_dict())
    trainer = trainers.BCT(dim=12, width=4, epochs=2, batch_size=32, augmentation=trainers.Augmentation())
    few = lessons().take(range(150))
    prints = {trainer.fit(few, source).encoder.fingerprint for _ in range(2)}
    assert len(prints) == 1
    assert (source.encoder.fingerprint, source.head.tobytes()) == before
    for name, tensor in source.encoder.module.state_dict().items():
        assert torch.equal(tensor, state[name])


def test_views_that_a_source_embeds_are_float32_in_bfloat16_too(source) -> None:
    trainer = trainers.RACT(
        dim=12, width=4, epochs=1, warmup_epochs=0, batch_size=32, augmentation=trainers.Augmentation()
    )
    model = replace(trainer, precision="bfloat16").fit(lessons().take(range(64)), source)
    assert np.isfinite(model.figures["loss"])


def test_only_the_target_is_trained(source) -> None:
    method = trainers.BCT(dim=12, width=4, head="cosine")
    few = lessons().take(range(64))
    known = compatible.SourceKnowledge.of(source, few, dim=12)
    preprocessing = method.preprocessing(few)
    objective = method.objective(
        method.backbone(preprocessing).build(), preprocessing, compatible.FrozenSource(source.encoder, 12), known
    )
    objective.train()
    assert not any(module.training for module in objective.source.modules())
    pixels = torch.from_numpy(few.images)[:, None]
    objective(pixels, torch.from_numpy(few.labels)).backward()
    for name, parameter in objective.named_parameters():
        frozen = name.startswith("source.")
        assert parameter.requires_grad != frozen
        assert (parameter.grad is None) == frozen


def test_the_source_sees_views_as_its_own_encoder_would() -> None:
    images = np.random.default_rng(0).integers(0, 255, (5, 16, 16, 3), np.uint8)
    views = torch.from_numpy(images).permute(0, 3, 1, 2)
    torch.manual_seed(0)
    for size, mode in ((16, "RGB"), (16, "L"), (8, "RGB"), (8, "L")):
        backbone = SmallConvNet(size=size, dim=6, channels=len(mode), width=4)
        encoder = NetworkEncoder(backbone, Preprocessing(size=size, mode=mode), normalise=True, device="cpu")
        seen = compatible.FrozenSource(encoder, 9)(views).numpy()
        # Pillow rounds grey values and resized pixels to whole numbers.
        np.testing.assert_allclose(seen[:, :6], encoder.encode(list(images)), atol=5e-3)
        assert not seen[:, 6:].any()


@pytest.mark.full
def test_classes_new_to_the_source_get_the_mean_of_its_features(source) -> None:
    known = compatible.SourceKnowledge.of(source, lessons(), dim=15, take="head")
    features = source.encoder.encode(list(lessons().images))
    np.testing.assert_array_equal(known.rows[:5, :12], source.head)
    for digit in range(5, 10):
        mean = features[np.asarray(lessons().labels) == digit].mean(axis=0)
        np.testing.assert_allclose(known.rows[digit, :12], mean / np.linalg.norm(mean), rtol=1e-4, atol=1e-5)
    assert not known.rows[:, 12:].any()
    means = compatible.SourceKnowledge.of(source, lessons(), dim=12)
    assert not np.allclose(means.rows[:5], source.head, atol=1e-3)
    plain = compatible.SourceKnowledge.of(source, lessons(), dim=12, take="plain-means")
    for digit in range(10):
        mean = features[np.asarray(lessons().labels) == digit].mean(axis=0)
        np.testing.assert_allclose(plain.rows[digit], mean, rtol=1e-4, atol=1e-5)
    seen = lessons().of_classes(range(4))
    np.testing.assert_array_equal(compatible.SourceKnowledge.of(source, seen, dim=12).rows, source.head[:4])
    assert compatible.class_means(torch.ones(2, 3), torch.tensor([2, 2]), 4).tolist() == [
        [0] * 3,
        [0] * 3,
        [1] * 3,
        [0] * 3,
    ]


def test_a_model_that_was_trained_compatibly_is_the_next_ones_source(source) -> None:
    trainer, few = trainers.BCT(dim=12, width=4, epochs=1, warmup_epochs=0, head="cosine"), lessons().take(range(200))
    second = trainer.fit(few, source)
    third = trainer.fit(few, second)
    third.artifact.check(second.version("v2"), third.version("v3"))


def test_a_checkpoint_of_another_source_is_refused(tmp_path: Path, source, target) -> None:
    trainer, few = trainers.BCT(dim=20, width=4, epochs=1, warmup_epochs=0), lessons().take(range(80))
    path = tmp_path / "training.safetensors"
    first = trainer.fit(few, source, checkpoint=path)
    assert trainer.fit(few, source, checkpoint=path).encoder.fingerprint == first.encoder.fingerprint
    with pytest.raises(Incompatible, match="expected source"):
        trainer.fit(few, target, checkpoint=path)


def test_what_cannot_be_compared_is_refused(source) -> None:
    with pytest.raises(InvalidInput, match="at most 8 values; found 12"):
        trainers.BCT(dim=8).fit(lessons(), source)
    with pytest.raises(InvalidInput, match='metric="cosine"'):
        trainers.BCT(dim=12, head="linear", metric="l2").fit(lessons(), source)
    with pytest.raises(InvalidInput, match="two classes"):
        trainers.BCT(dim=12).fit(lessons().of_classes([1]), source)
    with pytest.raises(InvalidInput, match="weight >= 0"):
        trainers.BCT(dim=12, weight=-1.0)
    with pytest.raises(InvalidInput, match=r"metric: .l2. or .cosine. or .dot."):
        trainers.BCT(dim=12, metric="far")
