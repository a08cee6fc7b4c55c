"""The protocol of encoders, which every embedding model implements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from compatstore.arrays import FloatArray


@runtime_checkable
class Encoder(Protocol):
    """Turns sources into embeddings.

    Attributes:
        dim: Length of an embedding.
        fingerprint: Hex digest of all that decides the embedding: weights, preprocessing, prefix, normalisation.
        spec: A string that builds this encoder again (`encoders.from_spec`), or "" when only the program that
            made it can ("" encoders are handed to `Gallery.open(..., encoders={...})` each time).
        reads: What a batch holds: the items' `source` values, or their `id`s (`encoders.Precomputed`).

    Examples:
        >>> isinstance(cs.encoders.Precomputed({"a": [0.0, 1.0]}), cs.encoders.Encoder)
        True
    """

    @property
    def dim(self) -> int: ...  # noqa: D102
    @property
    def fingerprint(self) -> str: ...  # noqa: D102
    @property
    def spec(self) -> str: ...  # noqa: D102
    @property
    def reads(self) -> Literal["source", "id"]: ...  # noqa: D102

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed a batch.

        Args:
            sources: n sources (paths, URIs, texts, arrays or ids, as the encoder takes them).

        Returns:
            (n, dim) float32.

        Raises:
            SourceError: Some sources cannot be read; its `failures` maps their index to the reason. Callers
                that must go on use `encoders.encode_readable`.
        """
        ...
