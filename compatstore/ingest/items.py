"""Read the data of a caller into checked items; nothing is written here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowType
from compatstore.boundary import foreign, shown
from compatstore.errors import DimensionMismatch, InvalidInput, first_offenders
from compatstore.ingest.arrow import as_array, cast, countable
from compatstore.ingest.metadata import require_names
from compatstore.ingest.vectors import Given, given_side, given_vectors
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.ids import refuse_repeats
from compatstore.storage.registry import Registry
from compatstore.storage.store import Store
from compatstore.storage.version_hints import of_another_length


@dataclass(frozen=True)
class Items:
    """n checked items.

    Attributes:
        ids: Arrow array of n distinct ids.
        sources: Arrow array of n sources, or None when the user gave none.
        vectors: By version, ((n, dim) float32, (n,) bool which are given).
        side: By version, the same for side-information.
        metadata: The user's other columns.
        asked: What the user wanted, for messages.
    """

    ids: Any
    sources: ArrowArray | None
    vectors: dict[str, Given]
    side: dict[str, Given]
    metadata: dict[str, Any]
    asked: str

    def __len__(self) -> int:
        return len(self.ids)


def read_items(data: Any, registry: Registry, version: str, store: Store) -> Items:
    """Check items against a gallery.

    Args:
        data: Arrow table or batch, a mapping of columns, or a list of rows. `id` (or the gallery's id column), `vector`
            (of `version`; any live version's vectors under its own name), `source`, `side`; all else is metadata.
        registry: The gallery's registry.
        version: Version that `vector` and `side` belong to.
        store: The gallery's table; read-only.

    Raises:
        InvalidInput: Columns are missing or of unequal length, or ids have another type.
        DuplicateIds: An id occurs twice.
        DimensionMismatch: Vectors have another length.
        NonFiniteVectors: NaN or infinite values.
        UnknownVersion: The gallery keeps no vectors of that version.
    """
    schema, gallery = store.schema, store.location.name
    columns = _countable(_columns(data, f"add items to {gallery}"), f"add items to {gallery}")
    n = len(next(iter(columns.values()))) if columns else 0
    asked = f"add {n} items to {gallery}"
    _require_equal_lengths(columns, asked)
    _rename(columns, registry, version)
    if registry.id_column not in columns:
        raise InvalidInput(asked, expected=f"a column {registry.id_column!r}", found=", ".join(columns) or "no columns")
    ids = _read_ids(columns.pop(registry.id_column), registry, asked)
    refuse_repeats(ids, asked)
    sources = None
    if registry.source_column and registry.source_column in columns:
        source_type = schema.field(registry.source_column).type
        sources = cast(columns.pop(registry.source_column), source_type, registry.source_column, asked)
    vectors, side = _take_vectors(columns, registry, store, asked)
    registry.columns(version)
    require_names(columns, registry, schema, asked)
    return Items(ids, sources, vectors, side, {name: as_array(value, asked) for name, value in columns.items()}, asked)


def _columns(data: Any, asked: str) -> dict[str, Any]:
    if isinstance(data, pa.RecordBatch | pa.Table):
        twice = sorted({name for name in data.schema.names if data.schema.names.count(name) > 1})
        if twice:
            raise InvalidInput(asked, expected="each column once", found=f"twice: {first_offenders(twice)}")
        return {name: data.column(name) for name in data.schema.names}
    if isinstance(data, Mapping):
        single = [
            name for name, values in data.items() if isinstance(values, str | bytes) or not hasattr(values, "__len__")
        ]
        if single:
            raise InvalidInput(
                asked,
                expected="a list or array of values in every column",
                found=f"one value in {first_offenders([shown(name) for name in single])}",
            )
        return dict(data)
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        return {name: [row.get(name) for row in data] for name in dict.fromkeys(key for row in data for key in row)}
    raise InvalidInput(
        asked, expected="an Arrow table, a mapping of columns or a list of rows", found=type(data).__name__
    )


def _countable(columns: Mapping[Any, Any], asked: str) -> dict[str, Any]:
    odd = [shown(name) for name in columns if not isinstance(name, str)]
    if odd:
        raise InvalidInput(asked, expected="columns whose names are text", found=first_offenders(odd))
    return {name: countable(values, name, asked) for name, values in columns.items()}


def _require_equal_lengths(columns: Mapping[str, Any], asked: str) -> None:
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise InvalidInput(asked, expected="columns of equal length", found=found)


def _rename(columns: dict[str, Any], registry: Registry, version: str) -> None:
    """Give the words of the API (`id`, `source`, `vector`, `side`) their columns' names."""
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


def _take_vectors(
    columns: dict[str, Any], registry: Registry, store: Store, asked: str
) -> tuple[dict[str, Given], dict[str, Given]]:
    vectors: dict[str, Given] = {}
    side: dict[str, Given] = {}
    for record in registry.live:
        kept = record.columns
        if kept is None:
            continue
        if kept.vector in columns:
            values, asked_of = columns.pop(kept.vector), f"{asked}, vectors of {record.name}"
            try:
                vectors[record.name] = given_vectors(values, kept.dim, asked_of)
            except DimensionMismatch as error:
                raise of_another_length(store, registry, record.name, error) from None
        name = f"{record.name}__side"
        if name in columns:
            if kept.side_dim is None:
                raise InvalidInput(
                    asked,
                    expected=f"no side-information: version {record.name} was made without",
                    found="some",
                    fix="Create or register the version with side_dim.",
                )
            side[record.name] = given_side(columns.pop(name), kept, f"{asked}, side-information of {record.name}")
    return vectors, side


def _read_ids(values: Any, registry: Registry, asked: str) -> ArrowArray:
    """Ids as an Arrow array; numbers are not made text nor text numbers, for `get` would not find them again."""
    with foreign(asked, f"ids of type {registry.id_type} in column {registry.id_column!r}"):
        array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    whole, text = pa.types.is_integer(array.type), _is_text(array.type)
    if not pa.types.is_null(array.type) and not (whole if registry.id_type == "int64" else text):
        raise InvalidInput(
            asked,
            expected=f"ids of type {registry.id_type} in column {registry.id_column!r}",
            found=str(array.type),
            fix="Convert them, or create the gallery with id_type='int64'." if whole else "Convert them.",
        )
    return cast(array, id_arrow_type(registry), registry.id_column, asked)


def _is_text(kind: ArrowType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(plain) or pa.types.is_large_string(plain) or pa.types.is_string_view(plain))
