"""Array types, and 1-bit codes: the sign of each value, eight to a byte.

Docstrings give the shapes, as in (n, dim). pyarrow ships no type information: the Arrow names state the kind of a value
for readers, and mypy does not check them. Code that computes with 1-bit codes reads them as -1 and 1.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FloatArray = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]
RowNumbers = npt.NDArray[np.int64]
Digests = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint8]

Id: TypeAlias = str | int  # of an item

ArrowTable: TypeAlias = pa.Table
ArrowBatch: TypeAlias = pa.RecordBatch
ArrowArray: TypeAlias = pa.Array | pa.ChunkedArray
ArrowType: TypeAlias = pa.DataType
ArrowSchema: TypeAlias = pa.Schema
ArrowField: TypeAlias = pa.Field


def signs(values: npt.NDArray[Any]) -> FloatArray:
    """Signs of values, as a code keeps them: (n, dim) numbers -> (n, dim) float32, 1 above zero and -1 otherwise."""
    kept: FloatArray = np.where(values > 0, np.float32(1), np.float32(-1))
    return kept


def pack(values: npt.NDArray[Any]) -> Codes:
    """Pack signs: (n, dim) numbers, dim a multiple of 8 -> (n, dim / 8) uint8, the first value in the highest bit."""
    return np.packbits(values > 0, axis=1)


def unpack(codes: Codes) -> FloatArray:
    """Read codes: (n, bytes) uint8 -> (n, 8 bytes) float32 of -1 and 1."""
    return signs(np.unpackbits(codes, axis=1))
