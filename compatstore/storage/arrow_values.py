"""NumPy arrays as Arrow columns of vectors, codes, texts and numbers, and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowType, BoolArray, Codes, FloatArray, pack, unpack

VECTOR_TYPES = {"float32": pa.float32, "float16": pa.float16, "bits": pa.uint8}  # eight bits to a byte


def vector_type(width: int, dtype: str, tensor: bool = False) -> ArrowType:
    """Arrow type of vectors of `width` values: fixed-size lists of numbers, of bytes for bits.

    Args:
        width: Values of a vector.
        dtype: A key of `VECTOR_TYPES`.
        tensor: Arrow's extension type over such lists. Lance stores and searches both alike; LanceDB's Python library
            does not take a tensor for the vector column of an app's table.
    """
    length = width // 8 if dtype == "bits" else width
    kind = VECTOR_TYPES[dtype]()
    return pa.fixed_shape_tensor(kind, [length]) if tensor else pa.list_(kind, length)


def stored_type(kind: ArrowType) -> ArrowType:
    """The type without the name that an extension gives it."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def vector_bytes(width: int, dtype: str) -> int:
    """Bytes that a vector of `width` values takes."""
    return width // 8 if dtype == "bits" else width * np.dtype(dtype).itemsize


def side_type(width: int, dtype: str, tensor: bool = False) -> ArrowType:
    """Arrow type of side-information; binary for bits, so that LanceDB does not take the column for a vector column."""
    return pa.binary(width // 8) if dtype == "bits" else vector_type(width, dtype, tensor)


def to_codes(codes: Codes, valid: BoolArray) -> ArrowArray:
    """Make a fixed-size-binary array of (n, bytes) uint8, null where not valid."""
    n, size = codes.shape
    mask = None if valid.all() else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(pa.binary(size), n, [mask, pa.py_buffer(np.ascontiguousarray(codes))])


def to_vectors(
    matrix: FloatArray, width: int, dtype: str, valid: BoolArray | None = None, tensor: bool = False
) -> ArrowArray:
    """Make an array of `vector_type` of (n, dim) values, zero-padded to `width`, null where not valid."""
    n, dim = matrix.shape
    if dim < width:
        padded = np.zeros((n, width), matrix.dtype)
        padded[:, :dim] = matrix
        matrix = padded
    stored = pack(matrix) if dtype == "bits" else np.ascontiguousarray(matrix, np.dtype(dtype))
    mask = None if valid is None or valid.all() else pa.array(~valid)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(stored.reshape(-1)), type=vector_type(width, dtype), mask=mask)
    return pa.ExtensionArray.from_storage(vector_type(width, dtype, True), lists) if tensor else lists


def to_matrix(array: ArrowArray, dim: int) -> tuple[FloatArray, BoolArray]:
    """Read fixed-size lists, tensors or 1-bit codes as ((n, dim) float32, (n,) valid); null rows are zeros.

    Lists of bytes are codes too: what a version stores whose vectors are bits.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    array = array.storage if isinstance(array.type, pa.BaseExtensionType) else array
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    matrix = _from_codes(array) if pa.types.is_fixed_size_binary(array.type) else _from_lists(array, dim)
    if not valid.all():
        matrix = np.where(valid[:, None], matrix, np.float32(0))
    return matrix, valid


def _from_lists(array: ArrowArray, dim: int) -> FloatArray:
    n, width = len(array), array.type.list_size
    values = array.values.slice(array.offset * width, n * width).fill_null(0).to_numpy(zero_copy_only=False)
    if values.dtype == np.uint8:
        return unpack(values.reshape(n, width))[:, :dim]
    matrix: FloatArray = values.reshape(n, width)[:, :dim].astype(np.float32, copy=False)
    return matrix


def _from_codes(array: ArrowArray) -> FloatArray:
    n, size = len(array), array.type.byte_width
    codes = np.frombuffer(array.buffers()[1] or b"", np.uint8, n * size, array.offset * size)
    return unpack(codes.reshape(n, size))


def to_strings(array: ArrowArray) -> npt.NDArray[np.object_]:
    """Read texts: (n,) object, "" for null."""
    filled: npt.NDArray[np.object_] = array.fill_null("").to_numpy(zero_copy_only=False).astype(object)
    return filled


def to_floats(array: ArrowArray) -> FloatArray:
    """Read numbers: (n,) float32, NaN for null."""
    return np.array(array.to_numpy(zero_copy_only=False), np.float32)


def to_digests(array: ArrowArray) -> npt.NDArray[np.uint64]:
    """Read whole numbers: (n,) uint64, 0 for null."""
    return np.array(array.fill_null(0).to_numpy(zero_copy_only=False), np.uint64)
