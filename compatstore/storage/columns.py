"""The columns of one embedding version, and the values in them as NumPy arrays.

A LanceDB app whose search does not name a vector column must go on finding its own. LanceDB's Python library looks for
plain fixed-size lists; so an upgrade stores its vectors as tensors. Its clients in Rust and TypeScript take tensors
for lists and distinguish columns by their dimension; so beside an app's columns a vector is padded with zeros
if its column would have the width of another: neither l2, cosine nor dot changes.

Apps that own an adopted table change items through plain LanceDB, which ignores our columns: a new source
vector can be beside a target vector that was made from the previous one. Each target vector therefore carries a
64-bit digest of its inputs; if the two disagree, the target vector is stale. A transformed vector is made
from the source vector (and the `source` value), a native one from the `source` value alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowBatch, ArrowField, ArrowTable, BoolArray, Digests, FloatArray, pack
from compatstore.digests import hash_rows, mix
from compatstore.documents import WIDEST
from compatstore.errors import InvalidInput
from compatstore.storage.vector_form import (
    VECTOR_TYPES,
    side_type,
    stored_type,
    to_codes,
    to_digests,
    to_floats,
    to_matrix,
    to_strings,
    to_vectors,
    vector_bytes,
    vector_type,
)
from compatstore.versions import DType, EmbeddingVersion, SideDType

CHUNK = 65_536  # texts that are Python objects at once
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class InputHashes:
    """Digests of the current inputs of the target vectors of n rows.

    Equal rows have equal digests; a row that differs in one value always has another digest, one that differs in
    several has the same with a chance of 2^-64.

    Attributes:
        transformed: (n,) uint64, of the source vector and the `source` value.
        native: (n,) uint64, of the `source` value alone, since a model reads nothing else; of a row without one, as
            for transformed vectors.
    """

    transformed: Digests
    native: Digests

    @classmethod
    def of(cls, vectors: FloatArray, valid: BoolArray, sources: ArrowArray | None) -> InputHashes:
        """Digest rows.

        Args:
            vectors: (n, dim) float32, of the source version.
            valid: (n,) bool; a row without a vector counts as such.
            sources: Arrow array of n `source` values, or None.
        """
        digests = np.where(valid, hash_rows(vectors), np.uint64(1))
        if sources is None:
            both = mix(digests)
            return cls(both, both)
        values = hash_values(sources)
        both = mix(mix(digests) + values)
        return cls(both, np.where(values == 0, both, mix(values)))

    def fit(self, stored: Digests, native: BoolArray) -> BoolArray:
        """True for rows whose target vector was made from their current values.

        Args:
            stored: (n,) uint64, the digests beside the target vectors.
            native: (n,) bool, rows whose vector is native. One that was derived from a native vector of the source
                carries the digest of a transformed one.
        """
        return np.asarray((stored == self.transformed) | (native & (stored == self.native)))


def hash_values(values: ArrowArray) -> Digests:
    """Digest strings or numbers of an Arrow array: (n,) uint64, null as 0."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if pa.types.is_integer(values.type):
        return mix(values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64) + _GOLDEN)
    parts = (values.slice(start, CHUNK).to_pylist() for start in range(0, len(values), CHUNK))
    return np.fromiter((_hash_text(value) for part in parts for value in part), np.uint64, len(values))


def _hash_text(value: Any) -> int:
    if value is None:
        return 0
    data = value if isinstance(value, bytes) else str(value).encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


NATIVE = "native"

BYTES_BESIDE_VECTOR = 8 + 4 + 12  # input hash, uncertainty, and origin with its share of a page


@dataclass(frozen=True)
class VersionColumns:
    """The columns of one embedding version.

    Args:
        vector: Column of the vectors.
        dim: Values of a vector.
        width: Values stored for a vector: `dim`, or more with zeros behind (see `clear_of`).
        dtype: "float32", "float16", or "bits": eight values to a byte.
        origin: Column of the vectors' origins: `native`, or the id of the artifact that made it. None
            for an adopted column, whose vectors are all native.
        uncertainty: Column of sigma^2 of transformed vectors, or None.
        input_hash: Column of the digest of a vector's inputs (see `InputHashes`), or None.
        side: Column of the side-information, or None.
        side_dim: Values of the side-information, or None.
        side_dtype: "float32", or "bits": eight values to a byte.
        side_width: Values stored for float32 side-information: as many as `side_dim`, None, or more with zeros behind.
        tensor: True if vectors and float32 side-information are stored as tensors, as an upgrade adds them, in place of
            lists.
    """

    vector: str
    dim: int
    width: int
    dtype: DType = "float32"
    origin: str | None = None
    uncertainty: str | None = None
    input_hash: str | None = None
    side: str | None = None
    side_dim: int | None = None
    side_dtype: SideDType = "float32"
    side_width: int | None = None
    tensor: bool = False

    def __post_init__(self) -> None:
        lists = [(self.dim, self.width), (self.side_dim or 1, self.side_stored or 1)]
        whole = self.dtype != "bits" or (self.dim == self.width and not self.dim % 8)
        fits = all(1 <= dim <= width <= 2 * WIDEST for dim, width in lists)
        if self.dtype not in VECTOR_TYPES or not whole or not fits:
            expected = f"dtype of {', '.join(VECTOR_TYPES)}, 1 <= dim <= width <= {2 * WIDEST}"
            raise InvalidInput(f"describe the columns of {self.vector}", expected=expected, found=f"{self}")

    @classmethod
    def of(cls, version: EmbeddingVersion, *, avoid: Set[int] = frozenset(), tensor: bool = False) -> VersionColumns:
        """Columns for a version that the gallery keeps; no vector has a length in `avoid`."""
        name, side_dim = version.name, version.side_dim
        if version.dtype == "bits" and version.dim // 8 in avoid:
            expected = "a length in bytes that no column of the app has: LanceDB distinguishes vectors by it"
            raise InvalidInput(f"store {name} as bits", expected=expected, found=f"{version.dim // 8}")
        side_width = clear_of(side_dim, avoid) if side_dim is not None and version.side_dtype == "float32" else None
        return cls(
            vector=name,
            dim=version.dim,
            width=version.dim if version.dtype == "bits" else clear_of(version.dim, avoid),
            dtype=version.dtype,
            origin=f"{name}__origin",
            uncertainty=f"{name}__uncertainty",
            input_hash=f"{name}__input_hash",
            side=None if side_dim is None else f"{name}__side",
            side_dim=side_dim,
            side_dtype=version.side_dtype,
            side_width=None if side_width == side_dim else side_width,
            tensor=tensor,
        )

    @property
    def names(self) -> list[str]:
        """Columns, in the order they are written."""
        return [field.name for field in self.fields]

    @property
    def fields(self) -> list[ArrowField]:
        """Arrow fields of all columns."""
        fields = [pa.field(self.vector, vector_type(self.width, self.dtype, self.tensor))]
        if self.origin:
            fields.append(pa.field(self.origin, pa.string()))
        if self.uncertainty:
            fields.append(pa.field(self.uncertainty, pa.float32()))
        if self.input_hash:
            fields.append(pa.field(self.input_hash, pa.uint64()))
        if self.side and self.side_dim:
            fields.append(pa.field(self.side, side_type(self.side_stored, self.side_dtype, self.tensor)))
        return fields

    @property
    def side_stored(self) -> int:
        """Values stored for side-information, 0 if there is none."""
        return self.side_width or self.side_dim or 0

    @property
    def row_bytes(self) -> int:
        """Bytes that all columns take for a row, about."""
        vector = vector_bytes(self.width, self.dtype)
        side = self.side_stored * (4 if self.side_dtype == "float32" else 1 / 8)
        return vector + int(side) + BYTES_BESIDE_VECTOR

    @property
    def presence_column(self) -> str:
        """Column that has a value if there is a vector: the origin, far smaller to read than vectors are."""
        return self.origin or self.vector

    @property
    def present(self) -> str:
        """SQL condition: the row has a vector."""
        return f"`{self.presence_column}` IS NOT NULL"

    @property
    def missing(self) -> str:
        """SQL condition: the row has no vector."""
        return f"`{self.presence_column}` IS NULL"

    @property
    def native(self) -> str:
        """SQL condition: the row has a native vector."""
        return f"`{self.origin}` = '{NATIVE}'" if self.origin else self.present

    @property
    def transformed(self) -> str:
        """SQL condition: the row has a vector that an artifact has made."""
        return f"`{self.origin}` <> '{NATIVE}'" if self.origin else "FALSE"

    def origins(self, table: ArrowTable | ArrowBatch) -> ArrowArray:
        """The origin of each row's vector; vectors of an adopted column are all native."""
        return pa.repeat(NATIVE, table.num_rows) if self.origin is None else table[self.origin]

    @property
    def item_names(self) -> list[str]:
        """Columns with the version's data of an item: its vector, and its side-information if there is any."""
        return [self.vector, *([self.side] if self.side else [])]

    def hashed_names(self, source_column: str | None) -> list[str]:
        """Columns that an input hash digests: the vector's, and that of the items' sources if there is one."""
        return [self.vector, *([source_column] if source_column else [])]

    def read_items(self, table: ArrowTable | ArrowBatch, *, origins: bool = False) -> VersionValues:
        """Read `item_names` of a table or batch; uncertainty and input hash are left as of native vectors.

        Args:
            table: The columns.
            origins: True if they hold the origin too; else it is left as of native vectors.
        """
        return replace(self, origin=self.origin if origins else None, uncertainty=None, input_hash=None).decode(table)

    def input_hashes(self, table: ArrowTable | ArrowBatch, source_column: str | None) -> InputHashes:
        """Input hashes of vectors that are made from these rows now.

        Args:
            table: `hashed_names` of the rows.
            source_column: Column of the items' sources, or None.
        """
        vectors, valid = to_matrix(table[self.vector], self.dim)
        return InputHashes.of(vectors, valid, table[source_column] if source_column else None)

    def encode(self, values: VersionValues) -> dict[str, ArrowArray]:
        """Arrow arrays of all columns for n rows."""
        valid = values.valid
        arrays = {self.vector: to_vectors(values.vectors, self.width, self.dtype, valid, self.tensor)}
        if self.origin:
            arrays[self.origin] = pa.array(np.where(valid, values.origin, ""), pa.string(), mask=~valid)
        if self.uncertainty:
            unknown = ~valid | np.isnan(values.uncertainty)
            arrays[self.uncertainty] = pa.array(values.uncertainty, pa.float32(), mask=unknown)
        if self.input_hash:
            arrays[self.input_hash] = pa.array(values.input_hash, pa.uint64(), mask=~valid)
        if self.side and self.side_dim:
            side = values.side_matrix(self.side_dim)
            if self.side_dtype == "bits":
                arrays[self.side] = to_codes(pack(side), values.side_valid)
            else:
                arrays[self.side] = to_vectors(side, self.side_stored, "float32", values.side_valid, self.tensor)
        return arrays

    def decode(self, table: ArrowTable | ArrowBatch) -> VersionValues:
        """Read all columns of a table or batch back."""
        vectors, valid = to_matrix(table[self.vector], self.dim)
        n = len(valid)
        side, side_valid = (None, np.zeros(n, bool))
        if self.side and self.side_dim:
            side, side_valid = to_matrix(table[self.side], self.side_dim)
        found = VersionValues.of(vectors, valid, side=side, side_valid=side_valid)
        if self.origin:
            found.origin = to_strings(table[self.origin])
        if self.uncertainty:
            found.uncertainty = to_floats(table[self.uncertainty])
        if self.input_hash:
            found.input_hash = to_digests(table[self.input_hash])
        return found


@dataclass
class VersionValues:
    """The values of one embedding version for n rows.

    Attributes:
        vectors: (n, dim) float32; rows that are not valid hold anything.
        valid: (n,) bool, whether the row has a vector.
        origin: (n,) object, `native` or an artifact's id.
        uncertainty: (n,) float32, NaN if unknown.
        input_hash: (n,) uint64.
        side: (n, side_dim) float32 or None; bits are read as -1 and 1.
        side_valid: (n,) bool.
    """

    vectors: FloatArray
    valid: BoolArray
    origin: npt.NDArray[np.object_]
    uncertainty: FloatArray
    input_hash: npt.NDArray[np.uint64]
    side: FloatArray | None
    side_valid: BoolArray

    @classmethod
    def of(cls, vectors: FloatArray, valid: BoolArray, **known: Any) -> VersionValues:
        """N rows of which all but the `known` fields is as of native vectors without side-information."""
        origin, hashes, n = np.full(len(valid), NATIVE, object), np.zeros(len(valid), np.uint64), len(valid)
        none: dict[str, Any] = {
            "origin": origin,
            "uncertainty": np.full(n, np.nan, np.float32),
            "input_hash": hashes,
            "side": None,
        }
        return cls(vectors, valid, **none | {"side_valid": np.zeros(n, bool)} | known)

    @classmethod
    def absent(cls, n: int, dim: int) -> VersionValues:
        """N rows without a vector."""
        return cls.of(np.zeros((n, dim), np.float32), np.zeros(n, bool), origin=np.full(n, "", object))

    def side_matrix(self, side_dim: int) -> FloatArray:
        """The side-information, zeros if there is none: (n, side_dim) float32."""
        return self.side if self.side is not None else np.zeros((len(self.valid), side_dim), np.float32)

    def take(self, rows: BoolArray | npt.NDArray[np.int64]) -> VersionValues:
        """Chosen rows, as a copy."""
        chosen = {name: values[rows] for name, values in vars(self).items() if values is not None}
        return replace(self, **chosen)

    def put(self, rows: BoolArray | npt.NDArray[np.int64], other: VersionValues) -> None:
        """Replace chosen rows, in place, by all the rows of another."""
        if other.side is not None:
            self.side = self.side_matrix(other.side.shape[1])
        for name, values in vars(other).items():
            if values is not None:
                self._writable(name)[rows] = values

    def clear(self, rows: BoolArray) -> None:
        """Mark the vectors and the side-information of chosen rows as missing, in place."""
        self._writable("valid")[rows] = False
        self._writable("side_valid")[rows] = False

    def _writable(self, name: str) -> npt.NDArray[Any]:
        """An array that may be written to; one read from Arrow is shared and is copied first."""
        array: npt.NDArray[Any] = getattr(self, name)
        if not array.flags.writeable:
            array = array.copy()
            setattr(self, name, array)
        return array


PADDING = 8  # keeps the width divisible for product quantisation


def clear_of(dim: int, taken: Set[int]) -> int:
    """The smallest width for `dim` values that is none of those taken."""
    while dim in taken:
        dim += PADDING
    return dim


def widths(fields: Iterable[ArrowField]) -> Iterator[int]:
    """The dimensions that LanceDB sees in Arrow fields: fixed-size lists, those in lists and structs too."""
    for field in fields:
        kind = stored_type(field.type)
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_fixed_size_list(kind):
            yield kind.list_size
        elif pa.types.is_struct(kind):
            yield from widths(kind)
