"""Create the table of a new gallery, or adopt an existing table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowField
from compatstore.errors import InvalidInput, first_offenders, meant
from compatstore.storage.app_columns import fault_of, renaming
from compatstore.storage.columns import VersionColumns
from compatstore.storage.history import HistoryEntry
from compatstore.storage.ids import build_index, refuse_repeats
from compatstore.storage.lancedb_functions import LANCEDB, function_of, with_function
from compatstore.storage.location import Location
from compatstore.storage.probe import require_conditional_writes
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import ID_TYPES, KEY, Registry, id_type_of, start
from compatstore.storage.store import PRIMARY_KEY, Store
from compatstore.storage.vector_form import VectorForm, to_matrix
from compatstore.versions import DType, EmbeddingVersion, require_usable_name

ID, SOURCE = "id", "source"
LOOKED_AT = 4_096  # vectors whose lengths an adoption checks


class AppColumns(NamedTuple):
    """Columns of an app's table that a gallery takes; "" for one that is not named.

    Attributes:
        vector: Of the vectors.
        id: Of the ids.
        source: To embed items from, or None.
    """

    vector: str
    id: str
    source: str | None = None


def create_table(
    location: Location, version: EmbeddingVersion, id_type: str, metadata: Sequence[ArrowField] = ()
) -> Store:
    """Make an empty table with the columns of one version, and metadata columns.

    Raises:
        InvalidInput: `id_type` is unknown. The version's name means something else here, or is too long.
        AlreadyExists: Something is there.
        StorageError: The place cannot be written, or is an object store without conditional writes.
    """
    operation = f"create a gallery at {location.uri}"
    if id_type not in ID_TYPES:
        raise InvalidInput(operation, expected=f"id_type of {', '.join(ID_TYPES)}", found=repr(id_type))
    require_usable_name(version.name, operation)
    columns = VersionColumns.of(version)
    # Lance keeps two concurrent inserts of one id apart only if the id is declared as the key.
    key = pa.field(ID, ID_TYPES[id_type], nullable=False, metadata=PRIMARY_KEY)
    store = Store.create(location, pa.schema([key, pa.field(SOURCE, pa.string()), *metadata, *columns.fields]))
    record = VersionRecord.of(version, columns=columns)
    registry = Registry(ID, id_type, SOURCE, version.name, {version.name: record})
    build_index(store, ID)
    start(store, registry, HistoryEntry("create", version.name, note=f"dim {version.dim}, {version.metric}"))
    store.tag(f"compatstore-{version.name}")
    return store


def adopt_table(location: Location, version: EmbeddingVersion, named: AppColumns, *, again: bool) -> Store:
    """Make an existing table a gallery: an entry in its metadata, nothing else.

    By default, the embedding function that LanceDB's metadata name for the column is the model, and the column that it
    embeds is the source.

    Its ids get no index: with one, a merge of the app's that names fewer columns than the table has would rewrite
    whole fragments and take them out of the app's vector index.

    No tag is set: a tagged table version makes the app's own clean-up (`table.optimize` with its defaults, after seven
    days) raise.

    Raises:
        NotFound: There is no table.
        InvalidInput: A column is missing or of another type, or the table is a gallery already. A column has a name
            that Lance or a gallery cannot handle. The vectors have another length. An id occurs twice. The version's
            name means something else here, or is too long.
        StorageError: The table lies in an object store without conditional writes.
    """
    store = Store.open(location)
    record, id_type, source = adoptable(store, version, named, again=again)
    require_conditional_writes(location, f"adopt {location.uri}")
    registry = Registry(named.id, id_type, source, version.name, {version.name: record})
    entry = HistoryEntry("adopt", version.name, rows=store.count(), note=f"column {named.vector}")
    start(store, registry, entry, again=again)
    return store


def adoptable(
    store: Store, version: EmbeddingVersion, named: AppColumns, *, again: bool = False
) -> tuple[VersionRecord, str, str | None]:
    """Make all checks of an adoption; read-only. Errors as of `adopt_table`.

    Returns:
        record: Of the version, with the model that LanceDB's metadata name, if no other is named.
        id_type: "string" or "int64".
        source: Column to re-embed from, or None.
    """
    operation, (vector, id_column, source) = f"adopt {store.location.uri}", named
    if not again:
        require_new(store, operation)
    require_usable_name(version.name, operation)
    columns = _adopted_columns(store, version, vector, operation)
    _require_lengths(store, version, columns, operation)
    declared = function_of(store.schema, vector)
    given, version = version, with_function(version, declared)
    if source is None and declared is not None and declared.source in store.schema.names:
        source = declared.source
    _require_names(store, version.name, vector, operation)
    id_type = _require_ids(store, id_column, operation)
    if source is not None:
        _require_column(store, source, operation)
    record = VersionRecord.of(version, columns=columns, adopted=True)
    if version is not given:
        record = replace(record, encoder=f"{LANCEDB}{vector}")
    return record, id_type, source


def _require_lengths(store: Store, version: EmbeddingVersion, columns: VersionColumns, operation: str) -> None:
    """Refuse to declare a column normalised whose vectors are not, by a check of some thousands."""
    if not version.normalised:
        return
    table = store.snapshot().to_table(columns=[columns.vector], filter=columns.present, limit=LOOKED_AT)
    vectors, _ = to_matrix(table[columns.vector], columns.dim)
    VectorForm(columns.dtype, version.metric, version.normalised).require_lengths(vectors, operation)


def require_new(store: Store, operation: str) -> None:
    """Refuse a table that is a gallery.

    Raises:
        InvalidInput: It is one.
    """
    if KEY in store.snapshot().config():
        fix = f"It is adopted: {next_step.call('status')}"
        raise InvalidInput(operation, expected="a table that is no gallery yet", found="a gallery", fix=fix)


def _require_column(store: Store, name: str, operation: str) -> Any:
    schema = store.schema
    if name not in schema.names:
        expected = f"a column of {', '.join(schema.names)}"
        raise InvalidInput(operation, expected=expected, found=f"no column {name!r}", fix=meant(name, schema.names))
    return schema.field(name).type


def _require_names(store: Store, version: str, vector: str, operation: str) -> None:
    """Refuse a table some columns of which could not be read beside a gallery's own, or would be taken for them."""
    names = store.schema.names
    odd = {name: fault_of(name) for name in names if fault_of(name)}
    if odd:
        found = first_offenders([f"{name!a} ({why})" for name, why in odd.items()])
        fix = renaming(next(iter(odd)), store.location)
        raise InvalidInput(
            operation, expected="columns whose names a gallery can read and search", found=found, fix=fix
        )
    taken = [name for name in names if name != vector and (name == version or name.startswith(f"{version}__"))]
    if taken:
        expected = f"no column of the app's that is called as version {version}'s are"
        raise InvalidInput(
            operation, expected=expected, found=first_offenders(taken), fix="Choose another name for the version."
        )


def _adopted_columns(store: Store, version: EmbeddingVersion, vector: str, operation: str) -> VersionColumns:
    kind = _require_column(store, vector, operation)
    floats: dict[pa.DataType, DType] = {pa.float32(): "float32", pa.float16(): "float16"}
    if not pa.types.is_fixed_size_list(kind) or kind.value_type not in floats:
        raise InvalidInput(
            operation,
            expected=f"column {vector!r} of fixed-size lists of float32 or float16",
            found=str(kind),
            fix=f"Cast it, with LanceDB: table.alter_columns({{'path': {vector!r}, "
            f"'data_type': pa.list_(pa.float32(), {version.dim})}})",
        )
    if kind.list_size != version.dim:
        expected = f"vectors of {version.dim} values in column {vector!r}"
        raise InvalidInput(operation, expected=expected, found=f"{kind.list_size} values")
    return VersionColumns(vector, version.dim, version.dim, floats[kind.value_type])


def _require_ids(store: Store, id_column: str, operation: str) -> str:
    kind = _require_column(store, id_column, operation)
    id_type = id_type_of(kind)
    if id_type is None:
        found, fix = str(kind), _texts_of(id_column, kind)
        raise InvalidInput(operation, expected=f"column {id_column!r} of text or whole numbers", found=found, fix=fix)
    ids = store.snapshot().to_table(columns=[id_column]).column(id_column)
    try:
        refuse_repeats(pc.cast(ids, ID_TYPES[id_type]), operation)
    except pa.ArrowInvalid as error:
        expected = "ids that are whole numbers of 64 bits, signed"
        raise InvalidInput(operation, expected=expected, found=str(error), fix=_texts_of(id_column, kind)) from error
    return id_type


def _texts_of(column: str, kind: Any) -> str:
    """The fix for ids of another type: a column of texts."""
    is_bytes = any(
        check(kind) for check in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    )
    made = f"encode(`{column}`, 'hex')" if is_bytes else f"CAST(`{column}` AS STRING)"
    return (
        f'Add a column of texts, with LanceDB: table.add_columns({{"id": "{made}"}}); and name it: '
        + next_step.option("id", "id")
    )
