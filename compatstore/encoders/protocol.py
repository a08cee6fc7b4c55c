"""The protocol of encoders, which every embedding model implements, and encoding of batches with unreadable sources.

Sources that cannot be read are listed as failures; the rest of the batch goes on. Many models embed queries
by another way than items: with another prefix, or another half of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.boundary import checked
from compatstore.errors import Incompatible, InvalidInput, SourceError


@runtime_checkable
class Encoder(Protocol):
    """Turns sources into embeddings.

    Attributes:
        dim: Length of an embedding.
        fingerprint: Hex digest of all that decides the embedding: weights, preprocessing, prefix, normalisation.
        spec: A string that builds this encoder again (`encoders.from_spec`), or "" when only the program that
            made it can ("" encoders are handed to `Gallery.open(..., encoders={...})` each time).
        reads: Contents of a batch: the items' `source` values, or their `id`s (`encoders.Precomputed`).

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


@runtime_checkable
class QueryEncoder(Protocol):
    """An encoder that embeds queries by another way than items: `encode` is for items, `encode_queries` for queries.

    Both ways belong to the one fingerprint.

    Examples:
        >>> isinstance(cs.encoders.Precomputed({"a": [0.0, 1.0]}), cs.encoders.QueryEncoder)
        False
    """

    def encode_queries(self, queries: Sequence[Any]) -> FloatArray:
        """Embed a batch of queries: (n, dim) float32, as `Encoder.encode` embeds items.

        Raises:
            SourceError: Some queries cannot be read; its `failures` maps their index to the reason.
        """
        ...


NOT_FINITE = "the encoder gave NaN or infinite values"
NO_SOURCE, EMPTY_SOURCE, NAN_SOURCE = "it has no source", "an empty text", "NaN is no source"
NOTHING_TO_EMBED = frozenset({NO_SOURCE, EMPTY_SOURCE, NAN_SOURCE})  # reasons that are no fault of an encoder


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """The embeddings of a batch, of which some sources may have failed.

    Args:
        vectors: (m, dim) float32, all finite.
        readable: (m,) int64, ascending: the position in the batch of each row of `vectors`.
        failures: Position in the batch -> reason, for every source that is not in `readable`.

    Examples:
        >>> encoder = cs.encoders.Precomputed({"a": [0.0, 1.0]})
        >>> encoded = cs.encoders.encode_readable(encoder, ["a", "lost"])
        >>> encoded.readable.tolist(), sorted(encoded.failures)
        ([0], [1])
    """

    vectors: FloatArray
    readable: npt.NDArray[np.int64]
    failures: Mapping[int, str]


@checked
def encode_readable(encoder: Encoder, sources: Sequence[Any]) -> Encoded:
    """Embed the sources that can be embedded; None and NaN are failures that no encoder is given.

    Args:
        encoder: Any encoder; a `SourceError` of it costs one more call for the rest of the batch.
        sources: n sources, or ids for an encoder that reads ids.

    Raises:
        InvalidInput: The encoder gave another shape than (rows, encoder.dim). The encoder gave another type than
            float32.
        SourceError: The encoder reported a failure at a position that it was not given.

    Examples:
        >>> encoder = cs.encoders.Precomputed({"a": [0.0, 1.0]})
        >>> cs.encoders.encode_readable(encoder, ["lost", "a"]).vectors.tolist()
        [[0.0, 1.0]]
    """
    return _encode_readable(encoder, encoder.encode, sources)


@checked
def encode_queries(encoder: Encoder, queries: Sequence[Any]) -> Encoded:
    """Embed the queries that can be embedded, by the encoder's own way for queries if it has one.

    Args:
        encoder: Any encoder; a `QueryEncoder` embeds queries by another way than items.
        queries: n queries, or ids for an encoder that reads ids.

    Raises:
        InvalidInput: The encoder gave another shape than (rows, encoder.dim). The encoder gave another type than
            float32.
        SourceError: The encoder reported a failure at a position that it was not given.

    Examples:
        >>> encoder = cs.encoders.Precomputed({"a": [0.0, 1.0]})
        >>> cs.encoders.encode_queries(encoder, ["a"]).vectors.tolist()
        [[0.0, 1.0]]
    """
    return _encode_readable(encoder, query_method(encoder), queries)


def query_method(encoder: Encoder) -> Callable[[Sequence[Any]], FloatArray]:
    """The encoder's own way for queries if it has one."""
    return encoder.encode_queries if isinstance(encoder, QueryEncoder) else encoder.encode


def _encode_readable(
    encoder: Encoder, encode: Callable[[Sequence[Any]], FloatArray], sources: Sequence[Any]
) -> Encoded:
    flaws = [] if encoder.reads == "id" else map(_flaw, sources)
    failures = {position: flaw for position, flaw in enumerate(flaws) if flaw}
    positions = [position for position in range(len(sources)) if position not in failures]
    dim, fingerprint = encoder.dim, encoder.fingerprint
    vectors = np.empty((0, dim), np.float32)
    while positions:
        try:
            vectors = _checked(encoder, encode([sources[i] for i in positions]), len(positions), dim)
            require_same_model(encoder, fingerprint)
            break
        except SourceError as error:
            if not error.failures or not error.failures.keys() <= set(range(len(positions))):
                raise
            failures |= {positions[i]: reason for i, reason in error.failures.items()}
            positions = [i for i in positions if i not in failures]
    finite, readable = np.isfinite(vectors).all(axis=1), np.array(positions, np.int64)
    failures |= {int(position): NOT_FINITE for position in readable[~finite]}
    return Encoded(vectors=vectors[finite], readable=readable[finite], failures=dict(sorted(failures.items())))


def _flaw(source: object) -> str:
    """The reason why no encoder can embed a source; "" if there is none."""
    if source is None:
        return NO_SOURCE
    return NAN_SOURCE if isinstance(source, float) and math.isnan(source) else ""


def require_same_model(encoder: Encoder, fingerprint: str) -> None:
    """Refuse vectors of an encoder that has become another model since its first use.

    Raises:
        Incompatible: It has.
    """
    if encoder.fingerprint != fingerprint:
        raise Incompatible(
            f"encode with {type(encoder).__name__}",
            expected=f"the former model ({fingerprint})",
            found=f"{encoder.fingerprint}: its fingerprint has changed",
            fix="Nothing of this batch is stored. Bring the former model back, or upgrade to this one as a version of "
            "its own.",
        )


def _checked(encoder: Encoder, vectors: Any, rows: int, dim: int) -> FloatArray:
    operation = f"encode {rows} sources with {type(encoder).__name__}"
    if not isinstance(vectors, np.ndarray):
        fix = "Return np.asarray(vectors, np.float32) from the encoder."
        raise InvalidInput(operation, expected="a NumPy array", found=type(vectors).__name__, fix=fix)
    if vectors.shape != (rows, dim):
        raise InvalidInput(operation, expected=f"shape {(rows, dim)}", found=f"{vectors.shape}")
    if vectors.dtype != np.float32:
        raise InvalidInput(operation, expected="float32", found=f"{vectors.dtype}", fix="Cast inside the encoder.")
    return vectors
