"""What all encoders of texts share: prefixes of queries and documents, unit length, and texts that are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import foreign
from compatstore.errors import InvalidInput, SourceError


class TextEncoder:
    """Embeds texts; a kind of encoder implements `embed`.

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
    def dim(self) -> int:
        """Length of an embedding."""
        raise NotImplementedError

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed items: (n, dim) float32.

        Raises:
            SourceError: Some are no texts; all of them are listed.
        """
        return self._encode(sources, queries=False)

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed queries: (n, dim) float32; errors as those of `encode`."""
        return self._encode(queries, queries=True)

    def embed(self, texts: list[str], *, queries: bool) -> FloatArray:
        """Embed at most `batch_size` texts, prefixes included: (n, dim) float32."""
        raise NotImplementedError

    @property
    def treatment(self) -> dict[str, str | bool]:
        """What beside the model decides an embedding, for the fingerprint."""
        return {"query": self.query_prefix, "document": self.document_prefix, "normalise": self.normalise}

    def _prefixed(self, sources: Sequence[Any], *, queries: bool) -> list[str]:
        require_texts(sources)
        return [f"{self.query_prefix if queries else self.document_prefix}{text}" for text in sources]

    def _encode(self, sources: Sequence[Any], *, queries: bool) -> FloatArray:
        texts = self._prefixed(sources, queries=queries)
        vectors = [np.empty((0, self.dim), np.float32)]
        for start in range(0, len(texts), self.batch_size):
            part = texts[start : start + self.batch_size]
            with foreign(f"embed {len(part)} texts with {type(self).__name__}", "vectors of numbers from the model"):
                made = np.asarray(self.embed(part, queries=queries), np.float32)
            vectors.append(unit(made) if self.normalise else made)
        return np.concatenate(vectors)


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
        return "an empty text"
    try:
        source.encode()
    except UnicodeEncodeError:
        return "a text with half characters"
    return ""
