"""Queries are embedded by an encoder's own method for them, where it has one."""

from __future__ import annotations

import numpy as np
import pytest

import compatstore as cs
from compatstore.encoders.queries import query_vectors
from compatstore.errors import DimensionMismatch, SourceError


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


def test_queries_and_documents_may_be_embedded_in_two_ways():
    found = query_vectors(Prefixed(), ["a", "broken", "abc"])
    assert found.vectors.tolist() == [[2.0, 1.0], [2.0, 3.0]]
    assert found.readable.tolist() == [0, 2]
    assert found.failures == {1: "no text"}


def test_without_such_a_method_they_are_embedded_as_documents_are():
    encoder = cs.encoders.Function(lambda texts: [[len(text)] for text in texts], dim=1, fingerprint="length")
    assert query_vectors(encoder, ["a", "abc"]).vectors.tolist() == [[1.0], [3.0]]


def test_what_such_a_method_gives_is_checked():
    class Wrong(Prefixed):
        def encode_queries(self, sources):
            return np.ones((len(sources), 5), np.float32)

    with pytest.raises(DimensionMismatch):
        query_vectors(Wrong(), ["a"])
