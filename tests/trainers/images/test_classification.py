from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from digit_images import lessons, others
from PIL import Image

import compatstore as cs
from compatstore import trainers
from compatstore.encoders import NetworkEncoder
from compatstore.errors import InvalidInput
from compatstore.trainers.training import EpochProgress
from lazily import Lazy

classification = Lazy("compatstore.trainers.images.classification")
neighbors = Lazy("sklearn.neighbors")


def first_neighbour(encoder: NetworkEncoder, images: trainers.Images) -> float:
    """Share of images whose nearest other image is of the same class (CMC-1)."""
    vectors, labels = encoder.encode(list(images.images)), np.asarray(images.labels)
    nearest = (
        neighbors.KNeighborsClassifier(1).fit(vectors, labels).kneighbors(n_neighbors=1, return_distance=False)[:, 0]
    )
    return float(np.mean(labels[nearest] == labels))


@pytest.mark.full
def test_a_model_of_five_digits_is_good_at_them_and_weaker_on_all_ten() -> None:
    source = trainers.Independent(dim=16, width=8, epochs=10).fit(
        lessons().of_classes(range(5)), held_out=others().of_classes(range(5))
    )
    target = trainers.Independent(dim=64, width=16, epochs=10).fit(lessons(), held_out=others())
    assert source.figures["accuracy"] > 0.95
    assert target.figures["accuracy"] > 0.95
    assert 0.5 < first_neighbour(source.encoder, others()) < first_neighbour(target.encoder, others()) - 0.05
    assert source.class_names == ("0", "1", "2", "3", "4")
    assert (source.head.shape, source.head.dtype) == ((5, 16), np.float32)


@pytest.mark.full
@pytest.mark.parametrize("head", ["linear", "unit-linear", "cosine", "arcface", "cosface"])
def test_every_head_classifies_with_its_rows(head: str) -> None:
    few = lessons().of_classes(["3", "8"])
    model = trainers.Independent(dim=8, width=4, epochs=20, head=head).fit(few)
    assert classification.accuracy(model.encoder, model.head, others().of_classes(["3", "8"])) > 0.9
    lengths = np.linalg.norm(model.encoder.encode(list(few.images)), axis=1)
    assert np.allclose(lengths, 1, atol=1e-5) == (head != "linear")
    # Where a head's rows are as long as they were trained to be, that length is a part of the logits.
    lengths_of_rows = np.linalg.norm(model.head, axis=1)
    assert np.allclose(lengths_of_rows, 1, atol=1e-5) == (head in ("cosine", "arcface", "cosface"))


def test_seeds_repeat_a_run_and_leave_the_callers_random_state_alone() -> None:
    import torch

    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    few = lessons().take(range(100))
    prints = [
        trainers.Independent(dim=4, width=4, epochs=1, warmup_epochs=0, seed=seed).fit(few).encoder.fingerprint
        for seed in (0, 0, 1)
    ]
    assert prints[0] == prints[1] != prints[2]
    assert torch.equal(torch.rand(1), expected)


def test_progress_is_reported_once_an_epoch() -> None:
    seen: list[EpochProgress] = []
    trainers.Independent(dim=4, width=4, epochs=3).fit(lessons().take(range(64)), progress=seen.append)
    assert [(progress.epoch, progress.epochs) for progress in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[-1].loss < seen[0].loss


def test_files_of_every_mode_can_be_trained_on(tmp_path: Path) -> None:
    for name in ("light", "dark"):
        (tmp_path / name).mkdir()
        for index, mode in enumerate(("L", "RGB", "RGBA", "P")):
            grey = Image.new("L", (20, 14), 230 if name == "light" else 20)
            grey.convert(mode).save(tmp_path / name / f"{index}.png")
    (tmp_path / "single").mkdir()
    Image.new("L", (20, 14), 128).save(tmp_path / "single" / "only.png")
    images = trainers.Images.from_folder(tmp_path)
    model = trainers.Independent(dim=4, width=4, epochs=2, size=16, batch_size=4).fit(images)
    assert model.head.shape == (3, 4)
    assert NetworkEncoder.from_bytes(model.encoder.to_bytes()).encode(list(images.images)).shape == (9, 4)
    with pytest.raises(InvalidInput, match="size in pixels"):
        trainers.Independent(dim=4).fit(images)


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(InvalidInput, match="two classes"):
        trainers.Independent(dim=4).fit(lessons().of_classes(["1"]))
    with pytest.raises(InvalidInput, match="measure a classifier"):
        trainers.Independent(dim=4).fit(lessons(), held_out=others().of_classes(range(5)))
    with pytest.raises(InvalidInput, match="finite loss"):
        trainers.Independent(dim=4, width=4, epochs=2, learning_rate=1e30).fit(lessons().take(range(64)))


@pytest.mark.parametrize(
    ("settings", "loss"),
    [
        ({}, cs.HeadLoss("cross-entropy")),
        ({"head": "unit-linear"}, cs.HeadLoss("cross-entropy")),
        ({"head": "cosine", "margin": 0.2}, cs.HeadLoss("cosface", 0.0)),
        ({"head": "arcface", "margin": 0.2}, cs.HeadLoss("arcface", 0.2)),
        ({"head": "cosface", "margin": 0.2}, cs.HeadLoss("cosface", 0.2)),
    ],
)
def test_a_model_says_the_loss_that_it_was_trained_by(settings: dict[str, Any], loss: cs.HeadLoss) -> None:
    model = trainers.Independent(dim=4, width=4, epochs=1, warmup_epochs=0, **settings).fit(lessons().take(range(64)))
    assert model.head_loss == model.version("v1").head_loss == loss


@pytest.mark.full
def test_arcface_that_ends_opposite_to_its_rows_warns_and_cosface_does_not_end_there() -> None:
    """Labels that images do not tell: ArcFace's margin costs least at an angle of pi - m / 2, CosFace's the same."""
    rng = np.random.default_rng(0)
    noise = trainers.Images(rng.integers(0, 255, (400, 8, 8), np.uint8), np.arange(400) % 10)
    own = {}
    for head in ("arcface", "cosface"):
        trainer = trainers.Independent(
            dim=8,
            width=4,
            epochs=10,
            learning_rate=2e-2,
            weight_decay=0,
            warmup_epochs=0,
            head=head,
            scale=64,
            margin=1.0,
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model = trainer.fit(noise)
        vectors = model.encoder.encode(list(noise.images))
        own[head] = float(np.einsum("nd,nd->n", vectors, model.head[np.asarray(noise.labels)]).mean())
        said = [str(each.message) for each in told if "opposite to the rows" in str(each.message)]
        assert len(said) == (head == "arcface")
        assert all(f"{own[head]:.2f}" in text and 'head="cosface"' in text for text in said)
    assert own["arcface"] < -0.5 < own["cosface"]
