"""Vectors as matrices: checked ones from arrays, lists and torch tensors of callers."""

from __future__ import annotations

from typing import Any

import numpy as np

from compatstore.arrays import FloatArray, signs, unpack
from compatstore.boundary import foreign, refuse_masked
from compatstore.errors import InvalidInput, first_offenders


def as_matrix(operation: str, values: Any, dim: int | None = None) -> FloatArray:
    """Return vectors as a matrix, without a copy if they are one already.

    Args:
        operation: The caller's operation, for the message of an error.
        values: (n, dim) array, nested list or torch tensor of any real type, on any device.
        dim: Length that each vector must have, or None for any.

    Returns:
        (n, dim) float32, contiguous.

    Raises:
        InvalidInput: It is not a matrix of numbers. The vectors have another length. Some values are NaN, infinite or
            beyond float32; names the first rows.
    """
    refuse_masked(values, operation)
    try:
        with foreign(operation, "vectors, an array of numbers"):
            array = np.asarray(to_numpy(values))
    except InvalidInput as error:
        if not isinstance(error.__cause__, ValueError) or not hasattr(values, "__len__"):
            raise
        found = f"{len(values)} of different lengths or shapes"
        raise InvalidInput(operation, expected="vectors of one length", found=found) from error
    if array.dtype.kind not in "fiub":
        raise InvalidInput(operation, expected="numbers", found=f"type {array.dtype}")
    with np.errstate(over="ignore"):  # a double beyond float32 becomes inf, which is refused below
        matrix: FloatArray = np.ascontiguousarray(array, dtype=np.float32)
    if matrix.ndim != 2:
        raise InvalidInput(operation, expected="a matrix, one vector a row", found=f"shape {matrix.shape}")
    if dim is not None and matrix.shape[1] != dim:
        length = matrix.shape[1]
        raise InvalidInput(operation, expected=f"vectors of {dim} values", found=f"{length} values", dim=length)
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        rows = np.flatnonzero(~finite).tolist()
        raise InvalidInput(operation, expected="finite values", found=f"NaN or inf in rows {first_offenders(rows)}")
    return matrix


def as_side(operation: str, values: Any, dim: int, dtype: str) -> FloatArray:
    """Return side-information as a matrix, as a transform reads it.

    Args:
        operation: The caller's operation, for the message of an error.
        values: As for `as_matrix`; for "bits" also packed codes, (n, dim / 8) uint8.
        dim: Length that each row must have.
        dtype: "float32", or "bits" for the signs of the values in 1-bit codes.

    Returns:
        (n, dim) float32, contiguous; of -1 and 1 for "bits".

    Raises:
        InvalidInput: It is not a matrix of numbers. The rows have another length. Some values are NaN, infinite or
            beyond float32.
    """
    if dtype == "float32":
        return as_matrix(operation, values, dim)
    array = to_numpy(values)
    if isinstance(array, np.ndarray) and array.dtype == np.uint8 and array.ndim == 2 and array.shape[1] * 8 == dim:
        return unpack(array)
    return signs(as_matrix(operation, array, dim))


def to_numpy(values: Any) -> Any:
    """Return a torch tensor, on any device and of any type, as a NumPy array; leave the rest as it is."""
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
