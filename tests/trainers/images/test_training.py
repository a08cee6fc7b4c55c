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


def weights(precision):
    model = trainers.Independent(dim=8, width=8, epochs=2, precision=precision, warmup_epochs=0.0).fit(images())
    return model.encoder.encode(list(images().images[:20]))


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
