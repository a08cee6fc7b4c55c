"""Encoders of functions: a callable of your own, and LanceDB's embedding functions.

A function of LanceDB is identified by its name and by the arguments that it was made with, which LanceDB
stores with a table. Secrets are no part of that, nor are settings of its device and speed. LanceDB stores no defaults:
if a release of it changes one, the identity stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, foreign
from compatstore.digests import fingerprint as digest
from compatstore.encoders.specs import without_secrets
from compatstore.errors import InvalidInput, SourceError


@checked
class Function:
    """Embeds with a callable.

    Args:
        fn: (n sources) -> (n, dim) array-like. It may raise `SourceError` with the positions that failed.
        dim: Length of an embedding.
        fingerprint: Identity of the model behind the callable, changed whenever its vectors change
            ("text-embedding-3-small@2024-01"). A callable cannot be hashed, so it must be declared.
        reads: Input of `fn`: the items' sources or their ids.
        queries: Embeds queries, if the model embeds them by another way than items; None takes `fn` for both.
        spec: Spec by which `encoders.from_spec` finds this object again ("python:package.module:attribute"), if any.

    Raises:
        InvalidInput: `fn` is not callable, `dim` is below 1 or `fingerprint` is empty.

    Examples:
        >>> lengths = cs.encoders.Function(lambda texts: [[len(text)] for text in texts], dim=1, fingerprint="length")
        >>> lengths.encode(["a", "abc"]).tolist()
        [[1.0], [3.0]]
    """

    def __init__(
        self,
        fn: Callable[[Sequence[Any]], npt.ArrayLike],
        dim: int,
        *,
        fingerprint: str,
        reads: Literal["source", "id"] = "source",
        queries: Callable[[Sequence[Any]], npt.ArrayLike] | None = None,
        spec: str = "",
    ) -> None:
        if not callable(fn) or dim < 1 or not fingerprint.strip():
            raise InvalidInput(
                "make an encoder of a function",
                expected="a callable, dim >= 1 and a fingerprint that names the model",
                found=f"{type(fn).__name__}, {dim} and {fingerprint!r}",
            )
        self.fn, self.queries, self.dim, self.reads, self.spec = fn, queries or fn, dim, reads, spec
        self.fingerprint = digest(function=fingerprint, dim=dim, reads=reads)

    def encode(self, sources: Sequence[Any]) -> FloatArray:
        """Embed a batch: (n, dim) float32.

        Raises:
            InvalidInput: The callable gave another shape.
            SourceError: The callable could not read some sources.
        """
        return self._call(self.fn, sources)

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed a batch of queries: (n, dim) float32; errors as those of `encode`."""
        return self._call(self.queries, queries)

    def _call(self, fn: Callable[[Sequence[Any]], npt.ArrayLike], sources: Sequence[Any]) -> FloatArray:
        if not len(sources):
            return np.empty((0, self.dim), np.float32)
        return _vectors("encode with a function", fn(sources), (len(sources), self.dim))


@checked
class LanceDBFunction:
    """Embeds with an embedding function of LanceDB.

    Args:
        function: The function, as its class's `create` makes it.
        spec: Spec by which a gallery builds it again ("lancedb:vector", from the table's metadata), if any.

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

    def __init__(self, function: Any, *, spec: str = "") -> None:
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
        operation = f"embed {rows} sources with a function of LanceDB"
        if len(made) != rows:
            raise InvalidInput(operation, expected=f"{rows} embeddings", found=f"{len(made)}")
        failures = {place: "no embedding of it" for place, vector in enumerate(made) if vector is None}
        if failures:
            raise SourceError(operation, failures, fix="Leave these sources out of the batch.")
        return _vectors(operation, [np.asarray(vector) for vector in made], (rows, self.dim))


def identity_of(name: str, arguments: Mapping[str, Any]) -> str:
    """Digest (32 hex digits) of a function's name and its arguments, without secrets and without how it runs."""
    return digest(lancedb=name, arguments=without_secrets(arguments))


def _vectors(operation: str, made: Any, shape: tuple[int, int]) -> FloatArray:
    """The result of a function, as float32 of the required shape."""
    with foreign(operation, "vectors of numbers from it"):
        vectors = np.asarray(made, np.float32)
    if vectors.shape != shape:
        raise InvalidInput(operation, expected=f"shape {shape}", found=f"{vectors.shape}")
    return vectors
