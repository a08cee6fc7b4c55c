"""Documents of other frameworks as items of a gallery: text in the source, metadata in columns or in one of JSON.

A metadata key that has a metadata column is kept there, with the column's type. All others are kept in a column of JSON
objects, under any name: a key `id` or `source` never reaches the item's id or source. A gallery
without that column gets it with the first such key; the table of an app is unchanged.

The stores of LangChain and LlamaIndex on LanceDB keep metadata in a struct `metadata`. In such a table a key is a field
of that struct, and a document has all its fields, as these stores give them: None if it has no value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from compatstore.arrays import ArrowField, ArrowSchema, ArrowType
from compatstore.boundary import shown
from compatstore.errors import Incompatible, InvalidInput, first_offenders
from compatstore.gallery import Gallery
from compatstore.ingest.arrow import JSON, NOT_CONVERTIBLE, as_json
from compatstore.integrations.filter_sql import Fields, to_sql
from compatstore.integrations.filters import ID, TEXT, Condition, Field, apart, metadata
from compatstore.storage.vector_form import stored_type

Metadata: TypeAlias = Mapping[str, Any]
JSON_COLUMN = "metadata"
JSON_COLUMNS = (JSON_COLUMN, "document_metadata")  # the second if an app has a column `metadata` of another type
NOT_HELD = (*NOT_CONVERTIBLE, OverflowError)


@dataclass(frozen=True)
class Documents:
    """Layout of documents in one gallery.

    Args:
        id: Column of the ids.
        text: Column of the texts, or None.
        own: Arrow schema of the metadata columns that are no JSON of ours.
        struct: Arrow schema of the fields of a struct `metadata`; empty if there is none.
        json: Column of JSON for all other metadata.
        has_json: True if the gallery has that column already.
        apart: Columns that hold no metadata of documents but something else of the adapter's, by its name for them.
        adopted: True if the table is an app's, which gets no column from here.
    """

    id: str
    text: str | None
    own: ArrowSchema
    struct: ArrowSchema
    json: str
    has_json: bool
    apart: Mapping[str, ArrowField]
    adopted: bool

    @classmethod
    def of(cls, gallery: Gallery, apart: Mapping[str, str] | None = None) -> Documents:
        """Read the layout of a gallery's documents as of now.

        Raises:
            Incompatible: The table is one of lancedb-haystack.
        """
        table = gallery.columns
        schema = table.metadata
        _refuse_flags(schema)
        struct = pa.schema([])
        if JSON_COLUMN in schema.names and pa.types.is_struct(schema.field(JSON_COLUMN).type):
            struct = pa.schema(list(schema.field(JSON_COLUMN).type))
        found = next((n for n in JSON_COLUMNS if n in schema.names and _is_json(schema.field(n).type)), None)
        json = found or next(name for name in JSON_COLUMNS if name not in schema.names)
        named = {name: schema.field(column) for name, column in (apart or {}).items() if column in schema.names}
        columns = [field.name for field in named.values()]
        held = {*columns, found, *struct.names, *([JSON_COLUMN] if struct.names else [])}
        # An adopted table keeps its vectors when their version is retired: they are no metadata of a document.
        rest = [field for field in schema if field.name not in held]
        own = pa.schema([field for field in rest if not pa.types.is_fixed_size_list(stored_type(field.type))])
        return cls(table.id, table.source, own, struct, json, found is not None, named, table.adopted)

    @property
    def columns(self) -> list[str]:
        """Columns to read a document from."""
        text, json = [self.text] if self.text else [], [self.json] if self.has_json else []
        struct = [JSON_COLUMN] if self.struct.names else []
        return [self.id, *text, *self.own.names, *struct, *json, *(field.name for field in self.apart.values())]

    def rows(self, ids: Sequence[str], texts: Sequence[str | None], metadatas: Sequence[Metadata]) -> dict[str, Any]:
        """Columns of n documents, as `Gallery.add` takes them.

        Raises:
            InvalidInput: Metadata that JSON or the column's type cannot hold.
        """
        columns: dict[str, Any] = {self.id: list(ids)}
        if self.text is not None:
            columns[self.text] = list(texts)
        for field in self.own:
            columns[field.name] = _typed([values.get(field.name) for values in metadatas], field, ids)
        if self.struct.names:
            inside = [{name: values.get(name) for name in self.struct.names} for values in metadatas]
            columns[JSON_COLUMN] = _typed(inside, pa.field(JSON_COLUMN, pa.struct(list(self.struct))), ids)
        # A None is kept as JSON's null: in a column it would equal a missing key.
        keeps_null = self.has_json or not self.adopted
        rest = [
            {
                key: value
                for key, value in values.items()
                if key not in self.struct.names and (key not in self.own.names or (value is None and keeps_null))
            }
            for values in metadatas
        ]
        if self.has_json or any(rest):
            if not keeps_null:
                raise self._unknown_key(ids, rest)
            texts_of_json = [as_json(values, of_document(name)) for name, values in zip(ids, rest, strict=True)]
            columns[self.json] = pa.ExtensionArray.from_storage(JSON, pa.array(texts_of_json, pa.string()))
        return columns

    def metadata(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a row that `columns` were read of."""
        own = {name: row[name] for name in self.own.names if row[name] is not None}
        text = row.get(self.json) if self.has_json else None
        struct = (row[JSON_COLUMN] or {}) if self.struct.names else {}
        return (json.loads(text) if text is not None else {}) | own | struct

    def where(self, condition: Condition | None) -> str | None:
        """Compile a condition on ids, texts, metadata and the adapter's own columns to SQL; None stays None.

        Raises:
            InvalidInput: The gallery has no such field.
        """
        if condition is None:
            return None
        fields = {metadata(field.name): (field.name, field.type) for field in self.own}
        fields |= dict(_nested(self.struct, (JSON_COLUMN,)))
        fields |= {apart(name): (field.name, field.type) for name, field in self.apart.items()}
        fields[ID] = (self.id, pa.string())
        if self.text is not None:
            fields[TEXT] = (self.text, pa.string())
        return to_sql(condition, Fields(fields, self.json if self.has_json else None))

    def _unknown_key(self, ids: Sequence[str], rest: Sequence[Metadata]) -> InvalidInput:
        name, values = next((name, values) for name, values in zip(ids, rest, strict=True) if values)
        known = [*self.own.names, *self.struct.names]
        return InvalidInput(
            of_document(name),
            expected=f"metadata keys of the app's table: {first_offenders(known, 20) or 'none'}",
            found=f"the key {next(iter(values))[:80]!a}",
            fix=f"Give the table a column of JSON, which takes all other keys: "
            f"table.add_columns(pa.field({self.json!r}, pa.json_(pa.string())))",
        )


def of_document(name: object) -> str:
    """The operation of errors on one document."""
    return f"write document {str(name)[:80]!a}"


def refuse_unknown(arguments: Metadata, operation: str) -> None:
    """Refuse arguments that a framework's signature permits and a store does not use.

    Raises:
        InvalidInput: There are some.
    """
    if arguments:
        raise InvalidInput(operation, expected="arguments of this store", found=", ".join(sorted(arguments)))


def _nested(fields: Iterable[ArrowField], above: tuple[str, ...]) -> Iterator[tuple[Field, tuple[Field, ArrowType]]]:
    """Field of a condition -> (path, type) of the fields of a struct, in any depth."""
    for field in fields:
        path = (*above, field.name)
        for name in {path[1:], (".".join(path[1:]),)}:
            yield metadata(*name), (path, field.type)
        if pa.types.is_struct(field.type):
            yield from _nested(field.type, path)


def _typed(values: list[Any], field: ArrowField, ids: Sequence[str]) -> Any:
    if _is_json(field.type):
        return [
            None if value is None else as_json(value, of_document(name))
            for name, value in zip(ids, values, strict=True)
        ]
    expected = f"metadata {field.name!r} of type {field.type}, as its column is"
    for name, value in zip(ids, values, strict=True):
        unknown = _unknown_key(value, field.type)
        if unknown:
            raise InvalidInput(of_document(name), expected=expected, found=f"the key {unknown[:80]!a} in it")
    try:
        return pa.array(values, field.type)
    except NOT_HELD:
        for name, value in zip(ids, values, strict=True):
            try:
                pa.array([value], field.type)
            except NOT_HELD as error:
                found = f"{shown(value)} ({error})"
                raise InvalidInput(of_document(name), expected=expected, found=found) from error
        raise


def _is_json(kind: Any) -> bool:
    return bool(kind == JSON)


def _unknown_key(value: object, kind: ArrowType) -> str:
    """A key of an object that its struct has no field for, which Arrow would leave out; "" if there is none."""
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        inside = ((key, kind.field(key).type, item) for key, item in value.items() if key in kind.names)
        unknown = (str(key) for key in value if key not in kind.names)
        return next(unknown, "") or next(filter(None, (_unknown_key(item, of) for _, of, item in inside)), "")
    if pa.types.is_list(kind) and isinstance(value, list | tuple):
        return next(filter(None, (_unknown_key(item, kind.value_type) for item in value)), "")
    return ""


def _refuse_flags(schema: ArrowSchema) -> None:
    """Refuse a table of lancedb-haystack, whose structs `_isempty` mark missing values.

    Raises:
        Incompatible: It is one.
    """
    if "_isempty" in schema.names:
        raise Incompatible(
            "keep documents in a gallery",
            expected="a table whose columns hold texts and metadata alone",
            found="a table of lancedb-haystack, with a struct _isempty that marks missing values",
            fix="Copy its documents into a gallery of their own: "
            "store.write_documents(LanceDBDocumentStore(database, table_name).filter_documents())",
        )
