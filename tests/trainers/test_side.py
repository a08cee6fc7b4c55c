from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from digit_images import lessons, others
from hypothesis import given
from hypothesis import strategies as st

from compatstore import trainers
from compatstore.arrays import signs
from compatstore.encoders import NetworkEncoder
from compatstore.encoders.backbones import FinalNorm
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput
from compatstore.trainers.training import EpochProgress
from lazily import Lazy
from properties import examples

augmentation = Lazy("compatstore.trainers.images.images")
losses = Lazy("pytorch_metric_learning.losses")
neighbors = Lazy("sklearn.neighbors")
torch = Lazy("torch")
training = Lazy("compatstore.trainers.side")


def first_neighbour(encoder: NetworkEncoder, *, codes: bool = False) -> float:
    seen, held_out = encoder.encode(list(lessons().images)), encoder.encode(list(others().images))
    if codes:
        seen, held_out = signs(seen), signs(held_out)
    return float(neighbors.KNeighborsClassifier(1).fit(seen, lessons().labels).score(held_out, others().labels))


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("SimCLR", {"dim": 64, "epochs": 4, "batch_size": 64, "codes": True}),
        ("SimCLR", {"dim": 32, "epochs": 3, "batch_size": 64, "local_views": 2}),
        ("SimCLR", {"dim": 32, "epochs": 8}),
        ("Autoencoder", {"dim": 64, "epochs": 5, "codes": True}),
        ("Autoencoder", {"dim": 32, "epochs": 6}),
        ("Alternate", {"dim": 32, "epochs": 3}),
        ("Alternate", {"dim": 32, "epochs": 4, "mixup": 0.5, "head": "cosine"}),
    ],
)
def test_every_kind_tells_digits_apart_and_codes_by_their_signs(kind: str, settings: dict[str, object]) -> None:
    trainer = getattr(trainers, kind)(width=8, **settings)
    made = trainer.fit(lessons())
    assert first_neighbour(made.encoder, codes=trainer.codes) > (0.85 if settings.get("epochs", 0) > 5 else 0.8)
    assert made.figures["images"] == len(lessons())
    again = NetworkEncoder.from_bytes(made.encoder.to_bytes())
    assert again.fingerprint == made.encoder.fingerprint
    assert made.encoder.dim == settings["dim"]
    if trainer.codes:
        share = (made.encoder.encode(list(others().images)) > 0).mean(axis=0)
        assert 0.2 < share.mean() < 0.8
    if trainer.codes or isinstance(trainer, trainers.SimCLR):
        assert isinstance(made.encoder.backbone, FinalNorm)


@pytest.mark.full
def test_figures_tell_how_much_a_model_adds_to_the_source() -> None:
    few, held_out = lessons().split(0.4, seed=0)
    source = trainers.Independent(dim=16, width=4, epochs=2, seed=0).fit(few).encoder
    settings = {"dim": 16, "width": 4, "epochs": 2}
    alike = trainers.Alternate(**settings, seed=0).fit(few, source=source, held_out=held_out)
    alternate = trainers.Alternate(**settings).fit(few, source=source, held_out=held_out)
    apart = trainers.Autoencoder(**settings).fit(few, source=source, held_out=held_out)
    assert alike.encoder.fingerprint == source.fingerprint
    assert alike.figures["cka"] == pytest.approx(1)
    assert max(alternate.figures["cka"], apart.figures["cka"]) < 0.9
    assert "cka" not in trainers.Autoencoder(**{**settings, "epochs": 1}, warmup_epochs=0).fit(few).figures


@pytest.mark.full
def test_a_killed_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    few = lessons().take(range(120))
    trainer = trainers.SimCLR(dim=8, width=4, epochs=3, batch_size=40)

    def kill(progress: EpochProgress) -> None:
        if progress.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.fit(few, checkpoint=tmp_path / "side.checkpoint", progress=kill)
    went_on = trainer.fit(few, checkpoint=tmp_path / "side.checkpoint")
    assert went_on.encoder.fingerprint == trainer.fit(few).encoder.fingerprint


@given(st.integers(0, 999))
@examples(20)
def test_mixup_blends_each_image_with_another_and_sees_more_of_its_own(seed: int) -> None:
    torch.manual_seed(seed)
    pixels = torch.randint(0, 256, (6, 1, 4, 4), dtype=torch.uint8)
    blended, own = augmentation.Mixup(alpha=0.5)(pixels), pixels.float() / 255
    other = own.roll(1, dims=0)
    for mixed, mine, rest in zip(blended, own, other, strict=True):
        weights = ((mixed - rest) / (mine - rest))[(mine - rest).abs() > 0.05]
        assert weights.std() < 1e-3
        assert 0.5 - 1e-3 <= weights.mean() <= 1 + 1e-3
    assert blended.dtype == torch.float32


def test_the_gradient_passes_the_sign() -> None:
    values = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], requires_grad=True)
    codes = training.StraightThrough()(values)
    codes.backward(torch.arange(1.0, 6.0))
    assert codes.tolist() == [-1, -1, -1, 1, 1]
    assert values.grad is not None
    assert values.grad.tolist() == [0, 2, 3, 4, 0]


@pytest.mark.parametrize("kind", ["SimCLR", "Autoencoder"])
def test_seeds_repeat_a_run_and_labels_change_nothing(kind: str) -> None:
    few = lessons().take(range(60))
    unlabelled = trainers.Images(few.images, np.zeros(60, int))
    trainer = getattr(trainers, kind)(dim=4, width=4, epochs=1, warmup_epochs=0)
    assert trainer.fit(few).encoder.fingerprint == trainer.fit(unlabelled).encoder.fingerprint


@pytest.mark.parametrize(("size", "mode"), [(9, "RGB"), (20, "L"), (64, "RGB")])
def test_other_sizes_and_colours_train(size: int, mode: str) -> None:
    colour = trainers.Images(np.random.default_rng(0).integers(0, 255, (4, 12, 10, 3), np.uint8), [0, 1, 0, 1])
    for trainer in (
        trainers.SimCLR(dim=4, width=2, epochs=1, warmup_epochs=0, size=size, mode=mode),
        trainers.Autoencoder(dim=4, width=2, epochs=1, warmup_epochs=0, size=size, mode=mode),
    ):
        encoder = trainer.fit(colour).encoder
        assert encoder.preprocessing == Preprocessing(size=size, mode=mode)
        assert encoder.encode(list(colour.images)).shape == (4, 4)


@pytest.mark.parametrize(("projection", "local_views"), [(0, 0), (5, 2)])
def test_the_loss_of_views_is_nt_xent_written_out(projection: int, local_views: int) -> None:
    """Of the views that were drawn: what the network saw is recorded, and its loss computed value by value."""
    few = lessons().take(range(4))
    trainer = trainers.SimCLR(dim=6, width=2, projection=projection, local_views=local_views)
    preprocessing = trainer.preprocessing(few)
    torch.manual_seed(0)
    objective = trainer.objective(trainer.backbone(preprocessing, final_norm=True).build(), preprocessing, few).eval()
    outputs: list[torch.Tensor] = []
    sides: list[int] = []

    def record(_module: torch.nn.Module, inputs: tuple[torch.Tensor], made: torch.Tensor) -> None:
        outputs.append(made)
        sides.append(inputs[0].shape[-1])

    objective.network.register_forward_hook(record)
    with torch.no_grad():
        found = objective(torch.from_numpy(few.images)[:, None], torch.zeros(4, dtype=torch.int64)).item()
        made = torch.cat(outputs).double()
        if projection:
            first, _, last = objective.projection.double()
            made = (made @ first.weight.T + first.bias).clamp_min(0) @ last.weight.T + last.bias
    assert sides == [8] * (1 + bool(local_views))
    views, unit = 2 + local_views, (made / made.norm(dim=1, keepdim=True)).numpy()
    assert len(unit) == 4 * views
    losses_of_views = []
    for i in range(len(unit)):
        powers = [math.exp(float(unit[i] @ unit[k]) / 0.2) for k in range(len(unit))]
        others = [k for k in range(len(unit)) if k != i]
        positives = [k for k in others if k % 4 == i % 4]
        total = sum(powers[k] for k in others)
        losses_of_views.append(sum(-math.log(powers[p] / total) for p in positives) / len(positives))
    assert found == pytest.approx(sum(losses_of_views) / len(losses_of_views), rel=1e-4)


def test_the_projection_is_dropped_after_training() -> None:
    few = lessons().take(range(60))
    settings = {"dim": 6, "width": 4, "epochs": 1, "warmup_epochs": 0}
    with_one, without = trainers.SimCLR(**settings).fit(few), trainers.SimCLR(**settings, projection=0).fit(few)
    shapes = [
        {name: value.shape for name, value in made.encoder.module.state_dict().items()} for made in (with_one, without)
    ]
    assert shapes[0] == shapes[1]
    assert with_one.encoder.dim == 6
    assert with_one.encoder.fingerprint != without.encoder.fingerprint


@given(images=st.integers(2, 5000), batch=st.integers(2, 300), steps=st.integers(1, 3000))
def test_steps_are_the_least_whole_passes_that_reach_them(images: int, batch: int, steps: int) -> None:
    trainer = trainers.Autoencoder(batch_size=batch, steps=steps, epochs=10, warmup_epochs=2).epochs_for(images)
    a_pass = images // min(batch, images)
    assert (trainer.epochs - 1) * a_pass < steps <= trainer.epochs * a_pass
    assert trainer.warmup_epochs == pytest.approx(0.2 * trainer.epochs)


@pytest.mark.full
def test_kinds_of_other_batches_are_trained_for_equal_steps() -> None:
    few = lessons().take(range(120))
    settings = {"dim": 4, "width": 2, "steps": 5}
    kinds = [trainers.SimCLR(batch_size=60, **settings), trainers.Autoencoder(batch_size=24, **settings)]
    assert [trainer.fit(few).figures["steps"] for trainer in kinds] == [6, 5]
    assert trainers.Autoencoder(dim=4, width=2, batch_size=24, epochs=2).fit(few).figures["steps"] == 10


def test_the_contrastive_loss_is_nt_xent() -> None:
    torch.manual_seed(0)
    one, other = torch.randn(2, 9, 5)
    fast, plain = (losses.SelfSupervisedLoss(kind(temperature=0.2)) for kind in (losses.SupConLoss, losses.NTXentLoss))
    torch.testing.assert_close(fast(one, other), plain(one, other))


def test_views_keep_the_shape_differ_and_are_not_mirrored() -> None:
    torch.manual_seed(0)
    half = torch.zeros(64, 1, 16, 16, dtype=torch.uint8)
    half[..., :8] = 255
    views = trainers.Augmentation(group=1)(half)
    assert views.shape == half.shape
    assert (views[..., :5].mean(dim=(1, 2, 3)) > views[..., -5:].mean(dim=(1, 2, 3))).all()
    assert len({view.numpy().tobytes() for view in views}) == 64
    mirrored = trainers.Augmentation(group=1, flip=True)(half)
    assert (mirrored[..., :5].mean(dim=(1, 2, 3)) < mirrored[..., -5:].mean(dim=(1, 2, 3))).any()


def test_what_is_no_blend_and_a_single_class_are_refused() -> None:
    with pytest.raises(InvalidInput, match="alpha > 0"):
        augmentation.Mixup(alpha=0.0)
    with pytest.raises(InvalidInput, match="two classes"):
        trainers.Alternate().fit(lessons().of_classes([3]))
