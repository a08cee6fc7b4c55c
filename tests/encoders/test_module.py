from __future__ import annotations

import numpy as np
import pytest

from compatstore.encoders import Module, encode_readable
from compatstore.errors import InvalidInput, SourceError
from lazily import Lazy

nn = Lazy("torch.nn")
torch = Lazy("torch")


def to_tensor(source: list[float]) -> torch.Tensor:
    if len(source) != 3:
        raise ValueError(f"{len(source)} values")
    return torch.tensor(source)


def linear(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))


ROWS = np.random.default_rng(0).normal(size=(7, 3)).tolist()


def test_rows_do_not_depend_on_their_batch() -> None:
    network = linear().train()
    whole = Module(network, 4, to_tensor).encode(ROWS)
    network.train()
    for size in (1, 3):
        np.testing.assert_allclose(Module(network, 4, to_tensor, batch_size=size).encode(ROWS), whole, atol=1e-6)
    assert whole.shape == (7, 4)
    assert Module(network, 4, to_tensor).encode([]).shape == (0, 4)


def test_normalised_rows_have_unit_length() -> None:
    rows = Module(linear(), 4, to_tensor, normalise=True).encode(ROWS)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_all_unreadable_sources_are_listed_over_all_batches() -> None:
    encoder = Module(linear(), 4, to_tensor, batch_size=2)
    sources = [ROWS[0], [1.0], ROWS[1], ROWS[2], []]
    with pytest.raises(SourceError) as caught:
        encoder.encode(sources)
    assert caught.value.failures == {1: "1 values", 4: "0 values"}
    np.testing.assert_allclose(encode_readable(encoder, sources).vectors, encoder.encode(ROWS[:3]), atol=1e-6)


def test_fingerprint_follows_weights_preprocessing_and_normalisation() -> None:
    same = [Module(linear(), 4, to_tensor).fingerprint for _ in range(2)]
    others = [
        Module(linear(1), 4, to_tensor),
        Module(linear(), 4, to_tensor, normalise=True),
        Module(linear(), 4, lambda source: to_tensor(source) / 2, identity="halved"),
        Module(linear().double().to(torch.bfloat16).float(), 4, to_tensor),
    ]
    assert same[0] == same[1]
    assert len({*same, *(other.fingerprint for other in others)}) == 5


def test_a_preprocessing_that_cannot_be_told_apart_needs_a_name() -> None:
    with pytest.raises(InvalidInput, match="identity="):
        Module(linear(), 4, lambda source: torch.tensor(source))
    with pytest.raises(InvalidInput, match="batch_size"):
        Module(linear(), 4, to_tensor, batch_size=0)


def test_a_module_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"\(7, 5\).*found \(7, 4\)"):
        Module(linear(), 5, to_tensor).encode(ROWS)
