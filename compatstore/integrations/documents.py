"""Documents of other frameworks as items of a gallery: text in the source, metadata in columns or in one of JSON.

A metadata key that has a metadata column is kept there, with the column's type. All others are kept in a column of JSON
objects, as they are, whatever they are called: a key `id` or `source` never reaches the item's id or source. A gallery
without that column gets it with the first such key; the table of an app is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from compatstore.arrays import ArrowSchema
from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.gallery import Gallery
from compatstore.ingest.arrow import JSON, NOT_CONVERTIBLE
from compatstore.ingest.json_values import as_json
from compatstore.integrations.filter_sql import Fields, to_sql
from compatstore.integrations.filters import ID, TEXT, Condition, apart, metadata

Metadata: TypeAlias = Mapping[str, Any]
JSON_COLUMN = "metadata"
JSON_COLUMNS = (JSON_COLUMN, "document_metadata")  # the second where an app has a column `metadata` of another type
NOT_HELD = (*NOT_CONVERTIBLE, OverflowError)


@dataclass(frozen=True)
class Documents:
    """How documents lie in one gallery.

    Args:
        id: Column of the ids.
        text: Column of the texts, or None.
        own: Arrow schema of the metadata columns that are no JSON of ours.
        json: Column of JSON for all other metadata.
        has_json: Whether the gallery has that column already.
        apart: Arrow schema of columns that hold no metadata of documents but something else of the adapter's.
    """

    id: str
    text: str | None
    own: ArrowSchema
    json: str
    has_json: bool
    apart: ArrowSchema

    @classmethod
    def of(cls, gallery: Gallery, apart: Sequence[str] = ()) -> Documents:
        """How they lie in a gallery as of now."""
        schema = gallery.columns.metadata
        found = next((n for n in JSON_COLUMNS if n in schema.names and _is_json(schema.field(n).type)), None)
        json = found or next(name for name in JSON_COLUMNS if name not in schema.names)
        own = pa.schema([field for field in schema if field.name not in (*apart, found)])
        there = pa.schema([field for field in schema if field.name in apart])
        return cls(gallery.columns.id, gallery.columns.source, own, json, found is not None, there)

    @property
    def columns(self) -> list[str]:
        """Columns to read a document from."""
        text, json = [self.text] if self.text else [], [self.json] if self.has_json else []
        return [self.id, *text, *self.own.names, *json, *self.apart.names]

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
        # A None is kept as JSON's null: a column cannot tell it from a key that is not there.
        rest = [
            {key: value for key, value in values.items() if value is None or key not in self.own.names}
            for values in metadatas
        ]
        if self.has_json or any(rest):
            texts_of_json = [as_json(values, of_document(name)) for name, values in zip(ids, rest, strict=True)]
            columns[self.json] = pa.ExtensionArray.from_storage(JSON, pa.array(texts_of_json, pa.string()))
        return columns

    def metadata(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a row that `columns` were read of."""
        own = {name: row[name] for name in self.own.names if row[name] is not None}
        text = row.get(self.json) if self.has_json else None
        return own if text is None else json.loads(text) | own

    def where(self, condition: Condition) -> str:
        """SQL of a condition on ids, texts, metadata and the adapter's own columns.

        Raises:
            InvalidInput: The gallery has no such field.
        """
        fields = {metadata(field.name): (field.name, field.type) for field in self.own}
        fields |= {apart(field.name): (field.name, field.type) for field in self.apart}
        fields[ID] = (self.id, pa.string())
        if self.text is not None:
            fields[TEXT] = (self.text, pa.string())
        return to_sql(condition, Fields(fields, self.json if self.has_json else None))


def of_document(name: object) -> str:
    """The operation of errors on one document."""
    return f"write document {str(name)[:80]!a}"


def refuse_unknown(arguments: Metadata, asked: str) -> None:
    """Refuse arguments that a framework's signature lets through and a store has no use for.

    Raises:
        InvalidInput: There are some.
    """
    if arguments:
        raise InvalidInput(asked, expected="arguments of this store", found=", ".join(sorted(arguments)))


def _typed(values: list[Any], field: Any, ids: Sequence[str]) -> Any:
    if _is_json(field.type):
        return [
            None if value is None else as_json(value, of_document(name))
            for name, value in zip(ids, values, strict=True)
        ]
    try:
        return pa.array(values, field.type)
    except NOT_HELD:
        for name, value in zip(ids, values, strict=True):
            try:
                pa.array([value], field.type)
            except NOT_HELD as error:
                expected = f"metadata {field.name!r} of type {field.type}, as its column is"
                found = f"{shown(value)} ({error})"
                raise InvalidInput(of_document(name), expected=expected, found=found) from error
        raise


def _is_json(kind: Any) -> bool:
    return bool(kind == JSON)
