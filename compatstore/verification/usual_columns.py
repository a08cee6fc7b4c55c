"""Which columns of an app's table an adoption takes where nobody names them: the vectors, the ids, and the sources."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowSchema
from compatstore.errors import InvalidInput
from compatstore.storage.create import require_new
from compatstore.storage.lancedb_functions import function_of
from compatstore.storage.location import Location
from compatstore.storage.store import Store

IDS = ("id", "ids", "key", "_id", "uuid", "uri")
SOURCES = ("source", "text", "content", "document", "body", "path", "image_path", "file", "image_uri", "url")


class UsualColumns(NamedTuple):
    """Columns for an adoption.

    Attributes:
        vector: Of the vectors.
        dim: Their length.
        id: Of the ids.
        source: To embed items from, or None.
    """

    vector: str
    dim: int
    id: str
    source: str | None


def usual_columns(
    location: Location,
    *,
    vector: str | None = None,
    id: str | None = None,
    source: str | None = None,
    again: bool = False,
) -> UsualColumns:
    """Choose what is not named: the only column of vectors, and ids and sources of a usual name; read-only.

    A source that LanceDB's metadata name is left to the adoption, which takes it.

    Raises:
        NotFound: There is no table.
        InvalidInput: It is a gallery already, or none or several columns could be meant.
    """
    store, asked = Store.open(location), f"adopt {location.name}"
    if not again:
        require_new(store, asked)
    schema, name = store.schema, location.name
    if vector is None:
        vector = _only_vectors(schema, asked, name)
    if id is None:
        id = _ids(schema, asked, name)
    if source is None and function_of(schema, vector) is None:
        source = next((name for name in SOURCES if name in _texts(schema) and name != id), None)
    # `adopt` says what is wrong with a column that is not there.
    dim = getattr(schema.field(vector).type, "list_size", 1) if vector in schema.names else 1
    return UsualColumns(vector, dim, id, source)


def _only_vectors(schema: ArrowSchema, asked: str, table: str) -> str:
    found = [str(field.name) for field in schema if pa.types.is_fixed_size_list(field.type)]
    found = [name for name in found if pa.types.is_floating(schema.field(name).type.value_type)]
    if len(found) == 1:
        return found[0]
    if not found:
        expected = "a column of fixed-size lists of float32 or float16"
        raise InvalidInput(asked, expected=expected, found=f"none of {', '.join(schema.names)}")
    fix = f"Name the one that the app searches: {next_step.call('adopt', at=table, vector=found[0])}"
    expected = f"one column of vectors, or {next_step.option('vector')}"
    raise InvalidInput(asked, expected=expected, found=", ".join(found), fix=fix)


def _ids(schema: ArrowSchema, asked: str, table: str) -> str:
    fits = [*_texts(schema), *(field.name for field in schema if pa.types.is_integer(field.type))]
    usual = next((name for name in IDS if name in fits), None)
    if usual is not None:
        return usual
    fix = f"Name it: {next_step.call('adopt', at=table, id=fits[0] if fits else next_step.COLUMN)}"
    found = f"none of these in {', '.join(schema.names)}"
    expected = f"ids in a column {', '.join(IDS)}, or {next_step.option('id')}"
    raise InvalidInput(asked, expected=expected, found=found, fix=fix)


def _texts(schema: ArrowSchema) -> list[str]:
    return [field.name for field in schema if pa.types.is_string(field.type) or pa.types.is_large_string(field.type)]
