import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from compatstore.encoders import NetworkEncoder
from compatstore.encoders.network import Preprocessing
from compatstore.errors import InvalidInput
from compatstore.trainers.augmentation import Augmentation
from compatstore.trainers.autoencoder import Autoencoder
from compatstore.trainers.images import Images
from compatstore.trainers.simclr import SimCLR

DATA = load_digits()
TRAIN, TEST = Images((DATA.images * 255 / 16).astype(np.uint8), DATA.target).split(0.4, seed=0)


def first_neighbour(encoder: NetworkEncoder) -> float:
    seen, held_out = encoder.encode(list(TRAIN.images)), encoder.encode(list(TEST.images))
    return float(KNeighborsClassifier(1).fit(seen, TRAIN.labels).score(held_out, TEST.labels))


@pytest.mark.parametrize("trainer", [SimCLR(dim=32, width=8, epochs=8), Autoencoder(dim=32, width=8, epochs=6)])
def test_side_information_tells_digits_apart_without_labels(trainer: SimCLR | Autoencoder) -> None:
    encoder = trainer.fit(TRAIN).encoder
    assert first_neighbour(encoder) > 0.85
    again = NetworkEncoder.from_bytes(encoder.to_bytes())
    assert again.fingerprint == encoder.fingerprint
    assert encoder.dim == 32


@pytest.mark.parametrize("kind", [SimCLR, Autoencoder])
def test_seeds_repeat_a_run_and_labels_change_nothing(kind: type[SimCLR] | type[Autoencoder]) -> None:
    few = TRAIN.take(range(60))
    unlabelled = Images(few.images, np.zeros(60, int))
    trainer = kind(dim=4, width=4, epochs=1, warmup_epochs=0)
    assert trainer.fit(few).encoder.fingerprint == trainer.fit(unlabelled).encoder.fingerprint


@pytest.mark.parametrize(("size", "mode"), [(9, "RGB"), (20, "L"), (64, "RGB")])
def test_other_sizes_and_colours_train(size: int, mode: str) -> None:
    colour = Images(np.random.default_rng(0).integers(0, 255, (4, 12, 10, 3), np.uint8), [0, 1, 0, 1])
    for trainer in (
        SimCLR(dim=4, width=2, epochs=1, warmup_epochs=0, size=size, mode=mode),
        Autoencoder(dim=4, width=2, epochs=1, warmup_epochs=0, size=size, mode=mode),
    ):
        encoder = trainer.fit(colour).encoder
        assert encoder.preprocessing == Preprocessing(size=size, mode=mode)
        assert encoder.encode(list(colour.images)).shape == (4, 4)


def test_the_contrastive_loss_is_nt_xent() -> None:
    torch.manual_seed(0)
    one, other = torch.randn(2, 9, 5)
    fast, plain = (losses.SelfSupervisedLoss(kind(temperature=0.2)) for kind in (losses.SupConLoss, losses.NTXentLoss))
    torch.testing.assert_close(fast(one, other), plain(one, other))


def test_views_keep_the_shape_differ_and_are_not_mirrored() -> None:
    torch.manual_seed(0)
    half = torch.zeros(64, 1, 16, 16, dtype=torch.uint8)
    half[..., :8] = 255
    views = Augmentation(group=1)(half)
    assert views.shape == half.shape
    assert (views[..., :5].mean(dim=(1, 2, 3)) > views[..., -5:].mean(dim=(1, 2, 3))).all()
    assert len({view.numpy().tobytes() for view in views}) == 64
    mirrored = Augmentation(group=1, flip=True)(half)
    assert (mirrored[..., :5].mean(dim=(1, 2, 3)) < mirrored[..., -5:].mean(dim=(1, 2, 3))).any()


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(InvalidInput, match="temperature"):
        SimCLR(temperature=0.0)
    with pytest.raises(InvalidInput, match="smallest_crop"):
        Augmentation(smallest_crop=0.0)
