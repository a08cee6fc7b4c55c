"""Derivations: vectors that are computed of a model's vectors alone, with the same bits on every processor.

The first values of a Matryoshka model's vector are a vector of their own (Kusupati et al., NeurIPS 2022), and scaling
to unit length changes no direction. Neither calls a model, so a vector derived from a native one is native.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from compatstore.arrays import BoolArray, Doubles, FloatArray, signs
from compatstore.boundary import checked_fields
from compatstore.digests import fingerprint
from compatstore.documents import WIDEST
from compatstore.errors import InvalidInput

StoredAs = Literal["float32", "float16", "bits"]
UNIT_TOLERANCE = 1e-4  # of a length; float32 rounding leaves 1e-6, float16 rounding of 16 values or more less than this
_VALUES = 32_768  # scaled at a time: their squares stay in the processor's cache


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Derivation:
    """One step from a model's vectors to shorter or scaled ones: round as stored, cut off, scale.

    Args:
        dim: Values that are kept, the first ones.
        normalise: True to scale these to unit length.
        read_as: Stored type of the original vectors: "float32", "float16" or "bits". An encoder's vectors are
            rounded to it first, to be derived like those in the table.

    Raises:
        InvalidInput: `dim` is out of its range.

    Examples:
        >>> cs.Derivation(dim=2, normalise=True).apply(np.array([[3.0, 4.0, 12.0]], np.float32)).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """

    dim: int
    normalise: bool = False
    read_as: StoredAs = "float32"

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= WIDEST:
            raise InvalidInput("derive vectors", expected=f"1 to {WIDEST} values", found=f"{self.dim}")

    def apply(self, vectors: FloatArray) -> FloatArray:
        """Derive vectors: (n, at least `dim`) float32 -> (n, dim) float32; NaN for a row that has no direction."""
        kept = rounded(vectors[:, : self.dim], self.read_as)
        return scaled_to_unit(kept) if self.normalise else np.ascontiguousarray(kept)

    def changes(self, dim: int) -> bool:
        """True if vectors of `dim` values are changed."""
        return self.dim != dim or self.normalise or self.read_as != "float32"

    def identity(self, model: str) -> str:
        """Identity (32 hex digits) of the derived model, from the identity of the model before."""
        return fingerprint(model=model, derivation=asdict(self))


def rounded(vectors: FloatArray, dtype: str) -> FloatArray:
    """Round vectors as storage in a type does: (n, dim) float32 -> (n, dim) float32.

    Values beyond float16 become infinite. Bits become -1 and 1, and values that are not finite stay so.
    """
    if dtype == "float32":
        return vectors
    if dtype == "bits":
        return np.where(np.isfinite(vectors), signs(vectors), vectors)
    with np.errstate(over="ignore"):
        return vectors.astype(np.dtype(dtype)).astype(np.float32)


def scaled_to_unit(vectors: FloatArray) -> FloatArray:
    """Divide each row by its length: (n, dim) float32 -> (n, dim) float32; NaN for a row of length 0.

    Squares of float32 are exact in float64. They are added in an order that the number of values alone decides, so no
    processor, thread or number of rows changes a bit.
    """
    scaled = np.empty(vectors.shape, np.float32)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for rows, made in zip(_blocks(vectors), _blocks(scaled), strict=True):
            np.divide(rows, np.sqrt(_squared_lengths(rows))[:, None], out=made, casting="same_kind")
    return scaled


def not_unit(vectors: FloatArray) -> BoolArray:
    """Mask of rows that differ from unit length by more than `UNIT_TOLERANCE`: (n, dim) float32 -> (n,) bool."""
    with np.errstate(invalid="ignore", over="ignore"):
        lengths = np.concatenate([np.zeros(0), *(np.sqrt(_squared_lengths(rows)) for rows in _blocks(vectors))])
    return np.asarray(~(np.abs(lengths - 1) <= UNIT_TOLERANCE), bool)


def _squared_lengths(rows: FloatArray) -> Doubles:
    """(n, dim) float32 -> (n,) float64; the halves of a row are added to each other until one value is left."""
    values = np.square(rows, dtype=np.float64)
    width = values.shape[1]
    while width > 1:
        half = (width + 1) // 2
        values[:, : width - half] += values[:, half:width]
        width = half
    sums: Doubles = values[:, 0]
    return sums


def _blocks(vectors: FloatArray) -> list[FloatArray]:
    rows = max(_VALUES // vectors.shape[1], 1)
    return [vectors[start : start + rows] for start in range(0, len(vectors), rows)]
