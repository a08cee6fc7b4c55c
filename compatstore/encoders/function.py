"""An encoder from any callable: an API client, a numpy function, another library's model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.boundary import checked, foreign
from compatstore.digests import fingerprint as digest
from compatstore.errors import InvalidInput


@checked
class Function:
    """Embeds with a callable.

    Args:
        fn: (n sources) -> (n, dim) array-like. It may raise `SourceError` with the positions that failed.
        dim: Length of an embedding.
        fingerprint: Identity of the model behind the callable, changed whenever its vectors change
            ("text-embedding-3-small@2024-01"). A callable cannot be hashed, so it must be declared.
        reads: Whether `fn` takes the items' sources or their ids.
        queries: Embeds queries, where the model embeds them by another way than items; None takes `fn` for both.
        spec: How `encoders.from_spec` finds this object again ("python:package.module:attribute"), if it can.

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
        given = fn(sources)
        with foreign("encode with a function", "vectors of numbers from it"):
            vectors = np.asarray(given, dtype=np.float32)
        if vectors.shape != (len(sources), self.dim):
            raise InvalidInput(
                "encode with a function", expected=f"shape {(len(sources), self.dim)}", found=f"{vectors.shape}"
            )
        return vectors
