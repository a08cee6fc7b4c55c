import numpy as np
import pytest

from compatstore.encoders import Function
from compatstore.errors import InvalidInput


def lengths(texts: list[str]) -> list[list[int]]:
    return [[len(text), text.count("a")] for text in texts]


def test_a_callable_becomes_an_encoder() -> None:
    encoder = Function(lengths, 2, fingerprint="lengths-1")
    assert encoder.encode(["banana", ""]).tolist() == [[6, 3], [0, 0]]
    assert encoder.encode(["banana"]).dtype == np.float32
    assert encoder.encode([]).shape == (0, 2)


def test_the_declared_identity_is_the_fingerprint() -> None:
    one = Function(lengths, 2, fingerprint="lengths-1")
    assert one.fingerprint == Function(lengths, 2, fingerprint="lengths-1").fingerprint
    assert one.fingerprint != Function(lengths, 2, fingerprint="lengths-2").fingerprint
    with pytest.raises(InvalidInput, match="fingerprint that names the model"):
        Function(lengths, 2, fingerprint=" ")


def test_another_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"expected shape \(1, 3\).*found \(1, 2\)"):
        Function(lengths, 3, fingerprint="lengths-1").encode(["a"])
