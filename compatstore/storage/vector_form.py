"""Storage of vectors as Arrow columns, their comparison, and the vectors that a search can find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowType, BoolArray, Codes, FloatArray, pack, unpack
from compatstore.derivation import rounded
from compatstore.encoders.protocol import Encoded
from compatstore.errors import InvalidInput, first_offenders
from compatstore.versions import DType

if TYPE_CHECKING:
    from compatstore.storage.records import VersionRecord

LENGTH_TOLERANCE = 0.01  # of unit length: models in half precision and endpoints that round are not exact


@dataclass(frozen=True)
class VectorForm:
    """Storage and comparison of vectors.

    Args:
        dtype: "float32", "float16" or "bits".
        metric: "l2", "cosine" or "dot".
        normalised: True if the version declares unit length, which rankings rely on.
    """

    dtype: DType
    metric: str
    normalised: bool = False

    @classmethod
    def of(cls, record: VersionRecord) -> VectorForm:
        """The form of a version's vectors; an adopted column has the type that its app gave it."""
        dtype = record.dtype if record.columns is None else record.columns.dtype
        return cls(dtype, record.metric, record.normalised)

    def stored(self, vectors: FloatArray) -> FloatArray:
        """Vectors as they are read back: (n, dim) float32; infinite if the type cannot hold a value.

        Bits become -1 and 1, and values that are not finite stay so.

        Code that digests, compares or transforms vectors before they are in the table must round them with this first,
        or its results differ from those with the table's vectors.
        """
        return rounded(vectors, self.dtype)

    def searchable(self, vectors: FloatArray) -> BoolArray:
        """Mask of vectors that a search can find, as `stored` gives them: (n, dim) float32 -> (n,) bool.

        All values must be finite. Under cosine a vector must have a direction: a length above 0 in float32.
        """
        found = np.isfinite(vectors).all(axis=1)
        if self.metric == "cosine":
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                squares = np.einsum("ij,ij->i", vectors, vectors)
            found &= (squares > np.finfo(np.float32).tiny) & np.isfinite(squares)
        return np.asarray(found, bool)

    def flaw(self, vector: FloatArray) -> str:
        """The reason why a search cannot find a vector: (dim,) float32, as `stored` gives it."""
        if not np.isfinite(vector).all():
            return f"NaN, or values beyond {self.dtype}"
        return "a vector of length 0, which has no direction to be compared by cosine"

    def keep(self, encoded: Encoded) -> Encoded:
        """An encoder's vectors as they are stored; those that no search could find are failures.

        Raises:
            InvalidInput: They have other lengths than the version declares.
        """
        vectors = self.stored(encoded.vectors)
        self.require_lengths(vectors, "keep an encoder's vectors")
        good = self.searchable(vectors)
        flawed = {int(encoded.readable[i]): f"the encoder gave {self.flaw(vectors[i])}" for i in np.flatnonzero(~good)}
        failures = dict(sorted({**encoded.failures, **flawed}.items()))
        return Encoded(vectors=vectors[good], readable=encoded.readable[good], failures=failures)

    def require_lengths(self, vectors: FloatArray, operation: str) -> None:
        """Refuse vectors, (n, dim) float32, that are not of unit length if the version declares unit length.

        Raises:
            InvalidInput: Some are not. An endpoint that cuts an embedding, and does not scale it, gives such vectors.
        """
        if not self.normalised or self.dtype == "bits":
            return
        lengths = np.linalg.norm(vectors[self.searchable(vectors)], axis=1)
        off = lengths[np.abs(lengths - 1) > LENGTH_TOLERANCE]
        if len(off):
            raise InvalidInput(
                operation,
                expected="vectors of unit length, as the version is declared (normalised=True)",
                found=f"{len(off)} of {len(lengths)} are not, with lengths from {off.min():.3g} to {off.max():.3g}",
                fix="Have the encoder scale them (?normalise=true in its spec), or register the version without "
                "normalised.",
            )

    def require(self, vectors: FloatArray, valid: BoolArray, names: Any, operation: str) -> None:
        """Refuse vectors that no search could find.

        Args:
            vectors: (n, dim) float32, as `stored` gives them.
            valid: (n,) bool, which are there.
            names: n ids or positions, to name the offenders by.
            operation: The caller's operation, for the message.

        Raises:
            InvalidInput: Values are NaN, infinite or out of the stored type's range. A vector has length 0, under
                cosine.
        """
        flawed = np.flatnonzero(valid & ~self.searchable(vectors))
        if not len(flawed):
            self.require_lengths(vectors if valid.all() else vectors[valid], operation)
            return
        infinite = [row for row in flawed if not np.isfinite(vectors[row]).all()]
        first = infinite or list(flawed)
        expected = f"finite values that {self.dtype} can hold" if infinite else "vectors of a length above 0"
        found = f"{self.flaw(vectors[first[0]])}, for {first_offenders([names[int(row)] for row in first])}"
        fix = "" if infinite else "Cosine compares directions. Leave these out, or give the version another metric."
        raise InvalidInput(operation, expected=expected, found=found, fix=fix)


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

    Lists of bytes are codes too, the storage of versions whose vectors are bits.
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
    flat = array.values.slice(array.offset * width, n * width)
    values = (flat.fill_null(0) if flat.null_count else flat).to_numpy(zero_copy_only=False)
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
