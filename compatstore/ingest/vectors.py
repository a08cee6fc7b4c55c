"""Read vectors and side-information that a user hands over, some of which may be null."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray, BoolArray, FloatArray
from compatstore.artifacts.matrix import as_matrix, to_numpy, unpack
from compatstore.errors import DimensionMismatch, InvalidInput
from compatstore.ingest.arrow import NOT_CONVERTIBLE
from compatstore.storage.arrow_values import to_matrix
from compatstore.storage.columns import VersionColumns

Given = tuple[FloatArray, BoolArray]


def given_vectors(values: ArrowArray, dim: int, asked: str) -> Given:
    """Read vectors: ((n, dim) float32, (n,) bool which are there).

    Raises:
        InvalidInput: They are no numbers, or single values are null.
        DimensionMismatch: They have another length.
        NonFiniteVectors: NaN or infinite values.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if pa.types.is_fixed_size_list(values.type):
            _refuse_holes(values, asked)
            if values.type.list_size == dim:
                matrix, valid = to_matrix(values.cast(pa.list_(pa.float32(), dim)), dim)
                return as_matrix(asked, matrix, dim), valid
            return as_matrix(asked, to_matrix(values, values.type.list_size)[0], dim), np.ones(len(values), bool)
        values = values.to_pylist()
    if isinstance(values, list) and any(value is None for value in values):
        valid = np.array([value is not None for value in values])
        matrix = np.zeros((len(values), dim), np.float32)
        if valid.any():
            matrix[valid] = as_matrix(asked, [value for value in values if value is not None], dim)
        return matrix, valid
    matrix = as_matrix(asked, values, dim) if len(values) else np.zeros((0, dim), np.float32)
    return matrix, np.ones(len(matrix), bool)


def given_side(values: ArrowArray, kept: VersionColumns, asked: str) -> Given:
    """Read side-information: values, or for a version that stores bits also packed codes, as `get` returns them.

    Args:
        values: Values as for `given_vectors`; or codes: binary, or (n, side_dim / 8) uint8.
        kept: Where it goes.
        asked: What the user wanted, for messages.

    Raises:
        InvalidInput: It is neither, or single values are null.
        DimensionMismatch: It has another length.
        NonFiniteVectors: NaN or infinite values.
    """
    dim = kept.side_dim or 0
    if kept.side_dtype == "bits" and _is_binary(values):
        return to_matrix(_of_size(values, dim // 8, asked), dim)
    if kept.side_dtype == "bits" and _is_packed(values, dim // 8):
        codes, valid = given_vectors(values, dim // 8, asked)
        return unpack(codes.astype(np.uint8)), valid
    return given_vectors(values, dim, asked)


def _is_binary(values: ArrowArray) -> bool:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        kind = values.type
        return bool(pa.types.is_fixed_size_binary(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
    return isinstance(values, list) and isinstance(next((v for v in values if v is not None), None), bytes)


def _is_packed(values: ArrowArray, size: int) -> bool:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        lists = pa.types.is_fixed_size_list(values.type)
        return bool(lists and pa.types.is_uint8(values.type.value_type) and values.type.list_size == size)
    array = to_numpy(values)
    return isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.shape[1:] == (size,)


def _of_size(values: ArrowArray, size: int, asked: str) -> ArrowArray:
    try:
        return values.cast(pa.binary(size)) if hasattr(values, "cast") else pa.array(values, pa.binary(size))
    except NOT_CONVERTIBLE as error:
        raise DimensionMismatch(asked, expected=f"codes of {size} bytes", found=str(error)) from error


def _refuse_holes(values: ArrowArray, asked: str) -> None:
    """Refuse vectors in which single values are null; a null vector is fine."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    holes = array.flatten().null_count
    if holes:
        raise InvalidInput(asked, expected="vectors without null values", found=f"{holes} null values")
