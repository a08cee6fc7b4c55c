"""Queries are embedded by an encoder's own method for them, where it has one: another prefix, or another model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from compatstore.arrays import FloatArray
from compatstore.encoders.protocol import Encoded, Encoder, encode_readable


def query_vectors(encoder: Encoder, sources: Sequence[Any]) -> Encoded:
    """Embed queries that can be embedded, by `encode_queries` where the encoder has it and by `encode` elsewhere.

    Args:
        encoder: Any encoder.
        sources: n queries, or ids for an encoder that reads ids.

    Raises:
        DimensionMismatch: The encoder gave another shape than (rows, encoder.dim).
        InvalidInput: The encoder gave another type than float32.
    """
    return encode_readable(_OfQueries(encoder) if hasattr(encoder, "encode_queries") else encoder, sources)


class _OfQueries:
    """An encoder that encodes queries."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.dim: int = encoder.dim
        self.fingerprint: str = encoder.fingerprint
        self.spec: str = encoder.spec
        self.reads: Literal["source", "id"] = encoder.reads

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed a batch: (n, dim) float32."""
        vectors: FloatArray = self._encoder.encode_queries(sources)
        return vectors
