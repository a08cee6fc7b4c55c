"""What the training loops of all families share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from compatstore import trainers
from compatstore.trainers import Pairs
from compatstore.trainers.training import one_thread
from lazily import Lazy

torch = Lazy("torch")


@pytest.fixture
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_the_callers_number_comes_back_even_after_an_error() -> None:
    def fail() -> None:
        with one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert torch.get_num_threads() == 2


def test_pairs_that_cannot_be_written_to_train_the_same_network() -> None:
    source, target = np.random.default_rng(0).normal(size=(2, 40, 6)).astype(np.float32)
    frozen = source.copy(), target.copy()
    for rows in frozen:
        rows.flags.writeable = False
    trainer = trainers.Residual(epochs=2, width=8, holdout=0.0)
    weights = [trainer.fit(pairs).manifest.weights_sha256 for pairs in (Pairs(*frozen), Pairs(source, target))]
    assert weights[0] == weights[1]
