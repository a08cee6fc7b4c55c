"""Read the data of a caller into checked items; nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowType, BoolArray, FloatArray, unpack
from compatstore.artifacts.matrix import as_matrix, to_numpy
from compatstore.boundary import foreign, shown
from compatstore.errors import InvalidInput, first_offenders
from compatstore.ingest.arrow import JSON, NOT_CONVERTIBLE, as_array, cast, countable, json_column, read_stream
from compatstore.ingest.metadata import require_names
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.columns import VersionColumns
from compatstore.storage.ids import refuse_null_ids, refuse_repeats
from compatstore.storage.registry import Registry
from compatstore.storage.same_model import of_another_length
from compatstore.storage.store import Store
from compatstore.storage.vector_form import to_matrix

Repeated = Literal["refuse", "last"]


@dataclass(frozen=True)
class Items:
    """n checked items.

    Attributes:
        ids: Arrow array of n distinct ids.
        sources: Arrow array of n sources, or None when the user gave none.
        vectors: By version, ((n, dim) float32, (n,) bool which are given).
        side: By version, the same for side-information.
        metadata: The user's other columns.
        operation: The caller's operation, for messages.
    """

    ids: Any
    sources: ArrowArray | None
    vectors: dict[str, Given]
    side: dict[str, Given]
    metadata: dict[str, Any]
    operation: str

    def __len__(self) -> int:
        return len(self.ids)

    def keep(self, rows: BoolArray) -> Items:
        """The items at the rows where `rows`, (n,) bool, is true."""
        mask = pa.array(rows)
        return replace(
            self,
            ids=self.ids.filter(mask),
            sources=None if self.sources is None else self.sources.filter(mask),
            vectors={name: (matrix[rows], valid[rows]) for name, (matrix, valid) in self.vectors.items()},
            side={name: (matrix[rows], valid[rows]) for name, (matrix, valid) in self.side.items()},
            metadata={name: column.filter(mask) for name, column in self.metadata.items()},
        )

    def last_of_each(self) -> Items:
        """The items without those whose id occurs again further down."""
        last = dict(zip(self.ids.to_pylist(), range(len(self)), strict=True))
        rows = np.zeros(len(self), bool)
        rows[list(last.values())] = True
        return self if len(last) == len(self) else self.keep(rows)


def read_items(data: Any, registry: Registry, version: str, store: Store, repeated: Repeated = "refuse") -> Items:
    """Check items against a gallery.

    Args:
        data: Arrow table or batch, anything that gives an Arrow stream (a pandas or polars frame), a mapping of
            columns, or a list of rows. `id` (or the gallery's id column), `vector` (of `version`; any live version's
            vectors under its own name), `source`, `side`; all else is metadata.
        registry: The gallery's registry.
        version: Version that `vector` and `side` belong to.
        store: The gallery's table; read-only.
        repeated: Handling of ids that occur twice.

    Raises:
        InvalidInput: Columns are missing or of unequal length, or ids have another type. An id occurs twice, and
            `repeated` is "refuse". Vectors have another length. NaN or infinite values.
        NotFound: The gallery keeps no vectors of that version.
    """
    schema, gallery = store.schema, store.location.name
    columns = _countable(_columns(data, f"add items to {gallery}"), f"add items to {gallery}")
    n = len(next(iter(columns.values()))) if columns else 0
    operation = f"add {n} items to {gallery}"
    _require_equal_lengths(columns, operation)
    _rename(columns, registry, version)
    if registry.id_column not in columns:
        raise InvalidInput(
            operation, expected=f"a column {registry.id_column!r}", found=", ".join(columns) or "no columns"
        )
    ids = _read_ids(columns.pop(registry.id_column), registry, operation)
    if repeated == "refuse":
        refuse_repeats(ids, operation)
    else:
        refuse_null_ids(ids, operation)
    sources = None
    if registry.source_column and registry.source_column in columns:
        source_type = schema.field(registry.source_column).type
        sources = cast(columns.pop(registry.source_column), source_type, registry.source_column, operation)
    vectors, side = _take_vectors(columns, registry, store, operation)
    registry.columns(version)
    require_names(columns, registry, schema, operation)
    of_json = {field.name for field in schema if field.type == JSON}
    metadata = {
        name: json_column(value, ids, name, operation) if name in of_json else as_array(value, operation)
        for name, value in columns.items()
    }
    items = Items(ids, sources, vectors, side, metadata, operation)
    return items.last_of_each() if repeated == "last" else items


def _columns(data: Any, operation: str) -> dict[str, Any]:
    if hasattr(data, "__arrow_c_stream__") and not isinstance(data, pa.Table):
        data = read_stream(data, operation)
    if isinstance(data, pa.RecordBatch | pa.Table):
        twice = sorted({name for name in data.schema.names if data.schema.names.count(name) > 1})
        if twice:
            raise InvalidInput(operation, expected="each column once", found=f"twice: {first_offenders(twice)}")
        return {name: data.column(name) for name in data.schema.names}
    if isinstance(data, Mapping):
        single = [
            name for name, values in data.items() if isinstance(values, str | bytes) or not hasattr(values, "__len__")
        ]
        if single:
            found = f"one value in {first_offenders([shown(name) for name in single])}"
            raise InvalidInput(operation, expected="a list or array of values in every column", found=found)
        return dict(data)
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        return {name: [row.get(name) for row in data] for name in dict.fromkeys(key for row in data for key in row)}
    raise InvalidInput(
        operation, expected="an Arrow table, a frame, a mapping of columns or a list of rows", found=type(data).__name__
    )


def _countable(columns: Mapping[Any, Any], operation: str) -> dict[str, Any]:
    odd = [shown(name) for name in columns if not isinstance(name, str)]
    if odd:
        raise InvalidInput(operation, expected="columns whose names are text", found=first_offenders(odd))
    return {name: countable(values, name, operation) for name, values in columns.items()}


def _require_equal_lengths(columns: Mapping[str, Any], operation: str) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise InvalidInput(operation, expected="columns of equal length", found=found)


def _rename(columns: dict[str, Any], registry: Registry, version: str) -> None:
    """Replace the API's names (`id`, `source`, `vector`, `side`) and versions' names by their columns' names."""
    target = registry.columns(version)
    words = {
        "id": registry.id_column,
        "source": registry.source_column,
        "vector": target.vector,
        "side": f"{version}__side",
    }
    for word, name in words.items():
        if word in columns and name and name not in columns:
            columns[name] = columns.pop(word)
    for name, kept in registry.stored.items():  # the vectors of an adopted table are in a column of the app's
        if name in columns and kept.vector not in columns:
            columns[kept.vector] = columns.pop(name)


def _take_vectors(
    columns: dict[str, Any], registry: Registry, store: Store, operation: str
) -> tuple[dict[str, Given], dict[str, Given]]:
    vectors: dict[str, Given] = {}
    side: dict[str, Given] = {}
    for version, kept in registry.stored.items():
        if kept.vector in columns:
            values, source_of = columns.pop(kept.vector), f"{operation}, vectors of {version}"
            try:
                vectors[version] = given(values, kept.dim, kept.dtype, source_of)
            except InvalidInput as error:
                if error.dim is None:
                    raise
                raise of_another_length(registry, version, error) from None
        name = f"{version}__side"
        if name in columns:
            if kept.side_dim is None:
                expected = f"no side-information: version {version} was made without"
                fix = "Create or register the version with side_dim."
                raise InvalidInput(operation, expected=expected, found="some", fix=fix)
            side[version] = given_side(columns.pop(name), kept, f"{operation}, side-information of {version}")
    return vectors, side


def _read_ids(values: Any, registry: Registry, operation: str) -> ArrowArray:
    """Ids as an Arrow array; numbers are not made text nor text numbers, for `get` would not find them again."""
    with foreign(operation, f"ids of type {registry.id_type} in column {registry.id_column!r}"):
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    whole, text = pa.types.is_integer(array.type), _is_text(array.type)
    if not pa.types.is_null(array.type) and not (whole if registry.id_type == "int64" else text):
        expected = f"ids of type {registry.id_type} in column {registry.id_column!r}"
        fix = "Convert them, or create the gallery with id_type='int64'." if whole else "Convert them."
        raise InvalidInput(operation, expected=expected, found=str(array.type), fix=fix)
    return cast(array, id_arrow_type(registry), registry.id_column, operation)


def _is_text(kind: ArrowType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_string_view(plain))


Given = tuple[FloatArray, BoolArray]


def given_vectors(values: ArrowArray, dim: int, operation: str) -> Given:
    """Read vectors: ((n, dim) float32, (n,) bool which are there).

    Raises:
        InvalidInput: They are no numbers, or single values are null. They have another length. NaN or infinite values.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = _of_one_length(values)
        if pa.types.is_fixed_size_list(values.type):
            _refuse_holes(values, operation)
            if values.type.list_size == dim:
                matrix, valid = to_matrix(values.cast(pa.list_(pa.float32(), dim)), dim)
                return as_matrix(operation, matrix, dim), valid
            return as_matrix(operation, to_matrix(values, values.type.list_size)[0], dim), np.ones(len(values), bool)
        values = values.to_pylist()
    if isinstance(values, list) and any(value is None for value in values):
        valid = np.array([value is not None for value in values])
        matrix = np.zeros((len(values), dim), np.float32)
        if valid.any():
            matrix[valid] = as_matrix(operation, [value for value in values if value is not None], dim)
        return matrix, valid
    matrix = as_matrix(operation, values, dim) if len(values) else np.zeros((0, dim), np.float32)
    return matrix, np.ones(len(matrix), bool)


def _of_one_length(values: ArrowArray) -> ArrowArray:
    """Lists that are all there and of one length as fixed-size lists, which are read at once; others as they are."""
    lists = pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
    if not lists or not len(values) or values.null_count:
        return values
    lengths = pc.min_max(pc.list_value_length(values)).as_py()
    if lengths["min"] != lengths["max"] or not lengths["max"]:
        return values
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    whole = whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
    return pa.FixedSizeListArray.from_arrays(whole.flatten(), lengths["max"])


def given_side(values: ArrowArray, kept: VersionColumns, operation: str) -> Given:
    """Read side-information: values, or for a version that stores bits also packed codes, as `get` returns them.

    Args:
        values: Values as for `given_vectors`; or codes: binary, or (n, side_dim / 8) uint8.
        kept: Columns of the version.
        operation: The caller's operation, for messages.

    Raises:
        InvalidInput: It is neither, or single values are null. It has another length. NaN or infinite values.
    """
    dim = kept.side_dim or 0
    if kept.side_dtype == "bits" and _is_binary(values):
        return to_matrix(_of_size(values, dim // 8, operation), dim)
    return given(values, dim, kept.side_dtype, operation)


def given(values: ArrowArray, dim: int, dtype: str, operation: str) -> Given:
    """Read vectors as `given_vectors`; for storage as bits also packed codes, (n, dim / 8) uint8."""
    if dtype == "bits" and _is_packed(values, dim // 8):
        codes, valid = given_vectors(values, dim // 8, operation)
        return unpack(codes.astype(np.uint8)), valid
    return given_vectors(values, dim, operation)


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


def _of_size(values: ArrowArray, size: int, operation: str) -> ArrowArray:
    try:
        return values.cast(pa.binary(size)) if hasattr(values, "cast") else pa.array(values, pa.binary(size))
    except NOT_CONVERTIBLE as error:
        raise InvalidInput(operation, expected=f"codes of {size} bytes", found=str(error)) from error


def _refuse_holes(values: ArrowArray, operation: str) -> None:
    """Refuse vectors in which single values are null; a null vector is fine."""
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    holes = sum(chunk.flatten().null_count for chunk in chunks)
    if holes:
        raise InvalidInput(operation, expected="vectors without null values", found=f"{holes} null values")
