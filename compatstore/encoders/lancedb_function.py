"""LanceDB's embedding functions as encoders: items and queries are embedded by the function's own methods for each.

A function is identified by its name and by the arguments that it was made with, which are what LanceDB stores with a
table. Secrets are no part of that, nor is where and how fast it runs. LanceDB stores no defaults: where a release of it
changes one, the identity does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, foreign
from compatstore.digests import fingerprint as digest
from compatstore.encoders.specs import without_secrets
from compatstore.errors import InvalidInput, SourceError


class LanceFunction(Protocol):
    """What is needed of LanceDB's `EmbeddingFunction`."""

    def ndims(self) -> int: ...  # noqa: D102
    def safe_model_dump(self) -> dict[str, Any]: ...  # noqa: D102
    def compute_source_embeddings(self, texts: Any) -> Sequence[Any]: ...  # noqa: D102
    def compute_query_embeddings(self, query: Any) -> Sequence[Any]: ...  # noqa: D102


@checked
class LanceDBFunction:
    """Embeds with an embedding function of LanceDB.

    Args:
        function: The function, as its class's `create` makes it.
        spec: How a gallery builds it again ("lancedb:vector", by what the table says of that column), if it can.

    Examples:
        >>> from lancedb.embeddings import TextEmbeddingFunction, register
        >>> @register("lengths of texts")
        ... class Lengths(TextEmbeddingFunction):
        ...     def ndims(self):
        ...         return 1
        ...     def generate_embeddings(self, texts):
        ...         return [[float(len(text))] for text in texts]
        >>> cs.encoders.LanceDBFunction(Lengths.create()).encode(["a", "abc"]).tolist()
        [[1.0], [3.0]]
    """

    reads: Literal["source", "id"] = "source"

    def __init__(self, function: LanceFunction, *, spec: str = "") -> None:
        self.function, self.spec = function, spec
        with foreign("embed with a function of LanceDB", "a function made by its class's create()"):
            self.dim, arguments = int(function.ndims()), function.safe_model_dump()
        name = getattr(function, "__embedding_function_registry_alias__", None) or type(function).__name__
        self.fingerprint = identity_of(name, arguments)

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed items: (n, dim) float32.

        Raises:
            SourceError: The function gave no embedding for some.
            InvalidInput: The function gave another number of embeddings, or another length.
        """
        if not len(sources):
            return np.empty((0, self.dim), np.float32)
        return self._read(self.function.compute_source_embeddings(list(sources)), len(sources))

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed queries, one by one, as LanceDB does: (n, dim) float32; errors as those of `encode`."""
        if not len(queries):
            return np.empty((0, self.dim), np.float32)
        made = [self.function.compute_query_embeddings(query) for query in queries]
        return self._read([found[0] if len(found) else None for found in made], len(queries))

    def _read(self, made: Sequence[Any], rows: int) -> FloatArray:
        asked = f"embed {rows} sources with a function of LanceDB"
        if len(made) != rows:
            raise InvalidInput(asked, expected=f"{rows} embeddings", found=f"{len(made)}")
        failures = {place: "no embedding of it" for place, vector in enumerate(made) if vector is None}
        if failures:
            raise SourceError(asked, failures, fix="Leave these sources out of the batch.")
        with foreign(asked, "vectors of numbers from it"):
            vectors = np.asarray([np.asarray(vector, np.float32) for vector in made])
        if vectors.shape != (rows, self.dim):
            raise InvalidInput(asked, expected=f"shape {(rows, self.dim)}", found=f"{vectors.shape}")
        return vectors


def identity_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Digest (32 hex digits) of a function's name and its arguments, without secrets and without how it runs."""
    return digest(lancedb=name, arguments=without_secrets(arguments))
