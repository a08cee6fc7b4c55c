"""What all encoders of texts share: prefixes of queries and documents, unit length, and texts that are none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.encoders.protocol import EMPTY_SOURCE
from compatstore.errors import InvalidInput, SourceError


class TextEncoder(ABC):
    """Embeds texts; a kind of encoder implements `_encode`.

    Args:
        query_prefix: Put before each query ("query: ").
        document_prefix: Put before each item ("passage: ").
        normalise: Scale embeddings to unit length.
        batch_size: Texts that are embedded at once.

    Raises:
        InvalidInput: `batch_size` is below 1.
    """

    reads: Literal["source", "id"] = "source"

    def __init__(self, *, query_prefix: str, document_prefix: str, normalise: bool, batch_size: int) -> None:
        if batch_size < 1:
            raise InvalidInput("make an encoder of texts", expected="batch_size >= 1", found=f"{batch_size}")
        self.query_prefix, self.document_prefix = query_prefix, document_prefix
        self.normalise, self.batch_size = normalise, batch_size

    @property
    @abstractmethod
    def dim(self) -> int:
        """Length of an embedding."""

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed items: (n, dim) float32.

        Raises:
            SourceError: Some are no texts; all of them are listed.
        """
        return self._encode(sources, queries=False)

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed queries: (n, dim) float32; errors as those of `encode`."""
        return self._encode(queries, queries=True)

    @property
    def treatment(self) -> dict[str, str | bool]:
        """What beside the model decides an embedding, for the fingerprint."""
        return {"query": self.query_prefix, "document": self.document_prefix, "normalise": self.normalise}

    def _prefixed(self, sources: Sequence[Any], *, queries: bool) -> list[str]:
        require_texts(sources)
        return [f"{self.query_prefix if queries else self.document_prefix}{text}" for text in sources]

    @abstractmethod
    def _encode(self, sources: Sequence[Any], *, queries: bool) -> FloatArray:
        """Embed sources with their prefixes: (n, dim) float32."""


def require_texts(sources: Sequence[Any]) -> None:
    """Refuse what no model of texts can read.

    Raises:
        SourceError: Some sources are no texts, or empty; all of them are listed.
    """
    failures = {place: why for place, why in enumerate(map(_flaw, sources)) if why}
    if failures:
        fix = "Leave these sources out of the batch."
        raise SourceError(f"embed {len(sources)} texts", failures, fix=fix)


def unit(vectors: FloatArray) -> FloatArray:
    """Vectors of length 1; those of length 0 stay as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: FloatArray = np.divide(vectors, lengths, out=vectors.copy(), where=lengths > 0)
    return scaled


def _flaw(source: Any) -> str:
    if not isinstance(source, str):
        return f"{type(source).__name__} is no text"
    if not source.strip():
        return EMPTY_SOURCE
    try:
        source.encode()
    except UnicodeEncodeError:
        return "a text with half characters"
    return ""
