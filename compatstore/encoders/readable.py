"""Encoding what can be encoded: failing sources are listed and the rest of the batch goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compatstore.arrays import FloatArray
from compatstore.boundary import checked
from compatstore.encoders.protocol import Encoder
from compatstore.errors import DimensionMismatch, InvalidInput, SourceError

NOT_FINITE = "the encoder gave NaN or infinite values"


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
    """Embed the sources that can be embedded.

    Args:
        encoder: Any encoder; a `SourceError` of it costs one more call for the rest of the batch.
        sources: n sources, or ids for an encoder that reads ids.

    Raises:
        DimensionMismatch: The encoder gave another shape than (rows, encoder.dim).
        InvalidInput: The encoder gave another type than float32.
        SourceError: The encoder reported a failure at a position that it was not given.

    Examples:
        >>> encoder = cs.encoders.Precomputed({"a": [0.0, 1.0]})
        >>> cs.encoders.encode_readable(encoder, ["lost", "a"]).vectors.tolist()
        [[0.0, 1.0]]
    """
    positions = list(range(len(sources)))
    failures: dict[int, str] = {}
    vectors = np.empty((0, encoder.dim), np.float32)
    while positions:
        try:
            vectors = _checked(encoder, encoder.encode([sources[i] for i in positions]), len(positions))
            break
        except SourceError as error:
            if not error.failures or not error.failures.keys() <= set(range(len(positions))):
                raise
            failures |= {positions[i]: reason for i, reason in error.failures.items()}
            positions = [i for i in positions if i not in failures]
    return _finite(vectors, np.array(positions, np.int64), failures)


def _checked(encoder: Encoder, vectors: FloatArray, rows: int) -> FloatArray:
    asked = f"encode {rows} sources with {type(encoder).__name__}"
    if vectors.shape != (rows, encoder.dim):
        raise DimensionMismatch(asked, expected=f"shape {(rows, encoder.dim)}", found=f"{vectors.shape}")
    if vectors.dtype != np.float32:
        raise InvalidInput(asked, expected="float32", found=f"{vectors.dtype}", fix="Cast inside the encoder.")
    return vectors


def _finite(vectors: FloatArray, positions: npt.NDArray[np.int64], failures: dict[int, str]) -> Encoded:
    finite = np.isfinite(vectors).all(axis=1)
    failures |= {int(i): NOT_FINITE for i in positions[~finite]}
    return Encoded(vectors=vectors[finite], readable=positions[finite], failures=dict(sorted(failures.items())))
