"""Metadata columns of the user: their names, their creation with the first rows, and their removal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowField, ArrowSchema, ArrowType
from compatstore.errors import CompatStoreError, InvalidInput, first_offenders
from compatstore.ingest.arrow import JSON
from compatstore.storage.app_columns import fault_of, require_storable
from compatstore.storage.catalog import Catalog
from compatstore.storage.create import ID, SOURCE
from compatstore.storage.history import HistoryEntry
from compatstore.storage.ids import column
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import Registry, edit
from compatstore.storage.store import Store
from compatstore.versions import EmbeddingVersion


def require_names(names: Iterable[str], registry: Registry, schema: ArrowSchema, operation: str) -> None:
    """Refuse names of metadata that mean something else to the gallery, or that Lance cannot handle.

    Args:
        names: Columns that are no ids, sources, vectors or side-information.
        registry: The gallery's registry.
        schema: Arrow schema of the table; a column that it has keeps its name.
        operation: The caller's operation, for messages.

    Raises:
        InvalidInput: Names the first such column.
    """
    for name in names:
        control = any(unicodedata.category(character) == "Cc" for character in name)
        if name not in schema.names and (fault_of(name) or name.startswith("_") or control):
            raise InvalidInput(
                operation,
                expected="metadata columns whose names do not start with an underscore and hold no dot, backtick, "
                "control character or half of one",
                found=ascii(name),
                fix="Rename the column.",
            )
        if name in ("vector", "side") or name.rpartition("__")[0] in registry.versions or name in registry.versions:
            expected = "metadata columns that are not an embedding version's"
            fix = "Rename the column, or upgrade to that version first."
            raise InvalidInput(operation, expected=expected, found=repr(name), fix=fix)


TYPES: Mapping[str, ArrowType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
    "json": JSON,
}


def declared_fields(
    metadata: Mapping[str, str] | ArrowSchema | None, version: EmbeddingVersion, operation: str
) -> list[ArrowField]:
    """Arrow fields of metadata columns that a new gallery is to have from the start.

    Args:
        metadata: Arrow schema, or names with types, which are keys of `TYPES`.
        version: The gallery's first version.
        operation: The caller's operation, for messages.

    Raises:
        InvalidInput: A name means something else to the gallery, or Lance cannot handle it. A type is unknown, or Lance
            cannot keep it.
    """
    if metadata is None:
        return []
    schema = _schema(metadata, operation) if isinstance(metadata, Mapping) else metadata
    record = VersionRecord.of(version)
    registry = Registry(ID, "string", SOURCE, version.name, {version.name: record})
    require_names(schema.names, registry, pa.schema([]), operation)
    taken = sorted({name for name in schema.names if name in (ID, SOURCE) or schema.names.count(name) > 1})
    if taken:
        raise InvalidInput(
            operation, expected=f"each column once, and none called {ID} or {SOURCE}", found=first_offenders(taken)
        )
    fields = [pa.field(field.name, field.type) for field in schema]
    require_storable(pa.table([pa.nulls(0, field.type) for field in fields], schema=pa.schema(fields)), operation)
    return fields


def _schema(types: Mapping[str, str], operation: str) -> ArrowSchema:
    unknown = [f"{name!a}: {kind!a}" for name, kind in types.items() if kind not in TYPES]
    if unknown:
        raise InvalidInput(operation, expected=f"types of {', '.join(TYPES)}", found=first_offenders(unknown))
    return pa.schema([pa.field(name, TYPES[kind]) for name, kind in types.items()])


def new_fields(
    metadata: Mapping[str, ArrowArray], registry: Registry, schema: ArrowSchema, operation: str
) -> list[ArrowField]:
    """Arrow fields of the metadata columns that the table does not have yet; none for a column of nulls.

    Raises:
        InvalidInput: The table is an app's, or Lance cannot keep the values.
    """
    unknown = [name for name in metadata if name not in schema.names]
    if unknown and registry.adopted:
        expected = f"columns of the adopted table ({', '.join(n for n in schema.names if '__' not in n)})"
        found = ", ".join(unknown)
        raise InvalidInput(operation, expected=expected, found=found, fix="Add the column to your table first.")
    kept = [name for name in unknown if not pa.types.is_null(metadata[name].type)]
    require_storable(pa.table([metadata[name] for name in kept], names=kept), operation)
    return [pa.field(name, metadata[name].type) for name in kept]


@contextmanager
def new_columns(store: Store) -> Iterator[Callable[[Sequence[ArrowField]], None]]:
    """Make columns right before their first rows; they go again if these rows do not come.

    A killed process can leave a column without values behind; the next rows fill it, or `drop` takes it away.

    Yields:
        What makes those columns that are not there yet.
    """
    made = list[str]()

    def make(fields: Sequence[ArrowField]) -> None:
        names = store.schema.names
        made.extend(field.name for field in fields if field.name not in names)
        store.add_columns(fields)

    try:
        yield make
    except BaseException:
        with suppress(CompatStoreError, OSError, ValueError, RuntimeError):  # the first error is reported
            there = [name for name in made if name in store.schema.names]
            store.drop_columns([n for n in there if not store.count(f"{column(n)} IS NOT NULL")])
        raise


def drop(catalog: Catalog, names: Sequence[str]) -> list[str]:
    """Drop columns of the user's; see `Gallery.maintenance.drop_columns`."""
    store, registry = catalog.store, catalog.registry()
    operation = f"drop {len(names)} columns of {store.location.name}"
    mine = own_columns(registry, store.schema.names)
    if registry.adopted:
        expected = "a gallery whose table is not an app's"
        fix = "Drop it where the table is made, with LanceDB: table.drop_columns([...])."
        raise InvalidInput(operation, expected=expected, found="an adopted table", fix=fix)
    foreign = [name for name in names if name not in mine]
    if foreign:
        expected = f"metadata columns ({', '.join(mine) or 'there is none'})"
        found = first_offenders([ascii(name) for name in foreign])
        fix = f"A version's columns go with it: {next_step.call('retire', 'VERSION')}. Ids and sources stay."
        raise InvalidInput(operation, expected=expected, found=found, fix=fix)
    for run in registry.runs.values():
        column_of_order = run.policy.removeprefix("column:")
        if run.open and column_of_order in names:
            other = next_step.made("Backfill", order="random")
            found = f"{column_of_order!r}, which orders the backfill of the upgrade to {run.target}"
            fix = f"Finish it, or give it another order: {next_step.call('upgrade', run.target, backfill=other)}"
            raise InvalidInput(operation, expected="columns that no upgrade needs", found=found, fix=fix)
    if names:
        store.drop_columns(names)
        note = ", ".join(ascii(name) for name in names)
        edit(store, lambda state: state, HistoryEntry("drop columns", registry.active, note=note))
    return [name for name in mine if name not in names]


def own_columns(registry: Registry, schema: Sequence[str]) -> list[str]:
    """The user's metadata columns: not the id, not the source, no version's, and none that a killed retire left."""
    ours = {name for columns in registry.stored.values() for name in columns.names}
    ours |= {registry.id_column, *registry.unused(schema)}
    return [name for name in schema if name not in ours and name != registry.source_column]
