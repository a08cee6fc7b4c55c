"""RACT's contrast, against its equation written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore import trainers
from lazily import Lazy

terms = Lazy("compatstore.trainers.images.terms")
torch = Lazy("torch")


def written_out(target: np.ndarray, source: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    def exp(a: np.ndarray, b: np.ndarray) -> float:
        return math.exp(float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) / temperature)

    total = 0.0
    for i in range(len(labels)):
        positive = exp(target[i], source[i])
        negatives = 0.0
        for k in range(len(labels)):
            if labels[k] != labels[i]:
                negatives += exp(target[i], source[k]) + exp(target[i], target[k])
        total -= math.log(positive / (positive + negatives))
    return total / len(labels)


@given(seed=st.integers(0, 1000), rows=st.integers(2, 9), temperature=st.sampled_from([0.05, 0.5, 1.0]))
def test_contrast_is_its_equation(seed: int, rows: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    target, source = rng.normal(size=(2, rows, 5))
    labels = rng.integers(0, 3, rows)
    found = terms.contrast(torch.tensor(target), torch.tensor(source), torch.tensor(labels), temperature)
    assert float(found) == pytest.approx(written_out(target, source, labels, temperature), abs=1e-9)


def test_a_batch_of_one_class_has_nothing_to_contrast() -> None:
    vectors = torch.randn(4, 3, requires_grad=True)
    loss = terms.contrast(vectors, torch.randn(4, 3), torch.zeros(4, dtype=torch.int64), 0.01)
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.equal(vectors.grad, torch.zeros_like(vectors))


@pytest.mark.full
def test_the_target_is_searched_as_it_is(split) -> None:
    train, test = split
    source = trainers.Independent(dim=12, width=8, epochs=6, head="cosine").fit(train.of_classes(range(5)))
    method = trainers.RACT(dim=12, width=8, epochs=6, batch_size=64, head="cosine", temperature=0.1)
    target = method.fit(train, source, held_out=test)
    assert target.artifact.kind == "Identity"
    assert target.figures["t/s"] > 0.5
    assert target.figures["t/t"] > 0.85
