"""Trainings that follow each other in one process do not know of each other."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from compatstore import trainers
from digits import load_digits
from lazily import Lazy

torch = Lazy("torch")


@functools.cache
def images():
    digits = load_digits()
    return trainers.Images((digits.images[:200] * 255 / 16).astype(np.uint8), digits.target[:200])


def weights(precision, **settings):
    trainer = trainers.Independent(dim=8, width=8, epochs=2, precision=precision, warmup_epochs=0.0, **settings)
    return trainer.fit(images()).encoder.encode(list(images().images[:20]))


@pytest.mark.full
def test_each_training_has_its_own_precision():
    single, half = weights("float32"), weights("bfloat16")
    assert not np.array_equal(single, half)
    np.testing.assert_array_equal(weights("float32"), single)
    np.testing.assert_array_equal(weights("bfloat16"), half)


def test_a_training_leaves_the_callers_random_state_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    weights("float32")
    assert torch.equal(torch.rand(4), expected)


def test_embeddings_after_a_relu_have_no_values_below_zero():
    plain, clipped = weights("float32"), weights("float32", relu=True)
    assert plain.min() < 0 == clipped.min()
    assert (clipped > 0).any(axis=1).all()


def test_sgd_goes_on_after_a_kill_as_if_there_was_none(tmp_path):
    def stop(progress):
        if progress.epoch == 1:
            raise KeyboardInterrupt

    settings = {"dim": 8, "width": 8, "epochs": 3, "warmup_epochs": 0.0, "learning_rate": 0.05, "optimiser": "sgd"}
    trainer, path = trainers.Independent(**settings), tmp_path / "training.safetensors"
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(images(), progress=stop, checkpoint=path)
    whole, again = trainer.fit(images()), trainer.fit(images(), checkpoint=path)
    assert again.encoder.fingerprint == whole.encoder.fingerprint
    assert whole.figures["loss"] < np.log(10)
