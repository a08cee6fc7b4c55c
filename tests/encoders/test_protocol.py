import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.encoders import Encoder, Function, Precomputed, encode_queries, encode_readable
from compatstore.errors import InvalidInput, SourceError

VECTORS = {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]}


class Shaped:
    """An encoder of somebody else's that breaks the protocol's promises."""

    dim, fingerprint, spec, reads = 2, "shaped", "", "source"

    def __init__(self, output: np.ndarray) -> None:
        self.output = output

    def encode(self, sources: list[object]) -> np.ndarray:
        return self.output


@pytest.mark.full
@given(ids=st.lists(st.sampled_from(["a", "b", "c", "x", "y"]), max_size=12))
def test_readable_and_failures_split_the_batch(ids: list[str]) -> None:
    encoded = encode_readable(Precomputed(VECTORS), ids)
    assert [ids[i] for i in encoded.readable] == [key for key in ids if key in VECTORS]
    assert sorted([*encoded.readable.tolist(), *encoded.failures]) == list(range(len(ids)))
    assert encoded.vectors.shape == (len(encoded.readable), 2)
    assert encoded.vectors.dtype == np.float32
    for row, position in zip(encoded.vectors, encoded.readable, strict=True):
        assert row.tolist() == VECTORS[ids[position]]


def test_rows_that_are_not_finite_are_failures() -> None:
    encoder = Function(lambda rows: np.log(np.asarray(rows)), 1, fingerprint="log")
    with np.errstate(all="ignore"):
        encoded = encode_readable(encoder, [[1.0], [0.0], [-1.0]])
    assert encoded.readable.tolist() == [0]
    assert "NaN or infinite" in encoded.failures[1]
    assert "NaN or infinite" in encoded.failures[2]


def test_an_encoder_that_stops_at_its_first_failure_still_gets_through() -> None:
    def first_only(sources: list[int]) -> list[list[int]]:
        for index, source in enumerate(sources):
            if source % 2:
                raise SourceError("embed", {index: f"{source} is odd"})
        return [[source] for source in sources]

    encoded = encode_readable(Function(first_only, 1, fingerprint="even"), range(6))
    assert encoded.vectors[:, 0].tolist() == [0, 2, 4]
    assert encoded.failures == {1: "1 is odd", 3: "3 is odd", 5: "5 is odd"}


def test_a_failure_at_no_position_of_the_batch_is_passed_on() -> None:
    def lost(sources: list[int]) -> list[list[int]]:
        raise SourceError("embed", {99: "who?"})

    with pytest.raises(SourceError, match="who"):
        encode_readable(Function(lost, 1, fingerprint="lost"), [0])


def test_wrong_shapes_and_types_are_refused_with_both_values() -> None:
    with pytest.raises(InvalidInput, match=r"expected shape \(3, 2\).*found \(3, 5\)"):
        encode_readable(Shaped(np.zeros((3, 5), np.float32)), list("abc"))
    with pytest.raises(InvalidInput, match=r"expected float32.*found float64"):
        encode_readable(Shaped(np.zeros((3, 2))), list("abc"))


def test_shipped_encoders_follow_the_protocol() -> None:
    assert isinstance(Precomputed(VECTORS), Encoder)
    assert isinstance(Function(len, 1, fingerprint="len"), Encoder)


class Prefixed:
    """Documents have 1 as their first value and queries 2; the text "broken" cannot be read."""

    dim, fingerprint, spec, reads = 2, "prefixed", "", "source"

    def encode(self, sources):
        return self._encode(1, sources)

    def encode_queries(self, sources):
        return self._encode(2, sources)

    def _encode(self, prefix, sources):
        broken = {place: "no text" for place, text in enumerate(sources) if text == "broken"}
        if broken:
            raise SourceError("encode", broken)
        return np.array([[prefix, len(text)] for text in sources], np.float32)


def test_queries_and_documents_may_be_embedded_in_two_ways() -> None:
    found = encode_queries(Prefixed(), ["a", "broken", "abc"])
    assert found.vectors.tolist() == [[2.0, 1.0], [2.0, 3.0]]
    assert found.readable.tolist() == [0, 2]
    assert found.failures == {1: "no text"}


def test_without_such_a_method_they_are_embedded_as_documents_are():
    encoder = Function(lambda texts: [[len(text)] for text in texts], dim=1, fingerprint="length")
    assert encode_queries(encoder, ["a", "abc"]).vectors.tolist() == [[1.0], [3.0]]


def test_what_such_a_method_gives_is_checked():
    class Wrong(Prefixed):
        def encode_queries(self, sources):
            return np.ones((len(sources), 5), np.float32)

    with pytest.raises(InvalidInput, match="shape"):
        encode_queries(Wrong(), ["a"])
