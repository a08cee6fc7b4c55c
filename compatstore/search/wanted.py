"""What a search is to return: how many results, and which columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowField, ArrowSchema, ArrowTable
from compatstore.boundary import shown
from compatstore.errors import InvalidInput, first_offenders, meant
from compatstore.ingest import metadata
from compatstore.storage.app_columns import OF_RESULTS
from compatstore.storage.registry import Registry

MOST_RESULTS = 2**31 - 1


def require_count(k: int) -> None:
    """Refuse a number of results that no search has.

    Raises:
        InvalidInput: It is below 1, or above `MOST_RESULTS`.
    """
    if not isinstance(k, int | np.integer) or k < 1:
        raise InvalidInput("search", expected="a whole number k >= 1", found=shown(k))
    if k > MOST_RESULTS:
        raise InvalidInput("search", expected=f"{MOST_RESULTS} results at most", found=shown(k))


def result_columns(registry: Registry, schema: ArrowSchema, columns: Sequence[str] | None) -> list[str]:
    """Columns that a search returns: those that are named, or the user's own: id, source, metadata.

    Raises:
        InvalidInput: The table has no such column.
    """
    if columns is not None:
        return require_columns([name for name in columns if name not in OF_RESULTS], schema)
    own = {registry.id_column, registry.source_column, *metadata.own_columns(registry, schema.names)}
    return [name for name in schema.names if name in own and name not in OF_RESULTS]


def require_columns(columns: Sequence[str], schema: ArrowSchema) -> list[str]:
    """Columns of a table, or fields of its structs as "meta.lang", all of which it has.

    Raises:
        InvalidInput: It lacks some.
    """
    unknown = [name for name in columns if not _has(schema, name)]
    if unknown:
        expected, found = f"some of {', '.join(schema.names)}", first_offenders(unknown)
        raise InvalidInput("read columns", expected=expected, found=found, fix=meant(unknown[0], _names(schema)))
    return list(columns)


def whole_columns(columns: Sequence[str]) -> list[str]:
    """The columns of the table that hold the named ones: `meta` for "meta.lang"."""
    return list(dict.fromkeys(name.partition(".")[0] for name in columns))


def with_fields(table: ArrowTable, columns: Sequence[str] | None) -> ArrowTable:
    """A result of `whole_columns` with the columns that were named, and with what was computed."""
    if columns is None or not any("." in name for name in columns):
        return table
    computed = [name for name in table.column_names if name not in whole_columns(columns)]
    named = [*(name for name in columns if name not in OF_RESULTS), *computed]
    parts = [name.split(".") for name in named]
    arrays = [pc.struct_field(table[first], inner) if inner else table[first] for first, *inner in parts]
    return pa.table(arrays, names=named).replace_schema_metadata(table.schema.metadata)


def _has(schema: ArrowSchema, name: str) -> bool:
    return name in schema.names or ("." in name and name in _names(schema))


def _names(fields: Iterable[ArrowField], above: str = "") -> list[str]:
    """Names of columns and of the fields of structs, in any depth."""
    names = []
    for field in fields:
        names.append(f"{above}{field.name}")
        if pa.types.is_struct(field.type):
            names += _names(field.type, f"{above}{field.name}.")
    return names
