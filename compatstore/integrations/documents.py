"""Documents of other frameworks as items of a gallery: text in the source, metadata in columns or in one of JSON.

A metadata key that has a column of its own is kept there, with the column's type; None is no value then. All others
are kept in the column `metadata` of JSON objects, as they are. A gallery without that column gets a column for each
new key, as `Gallery.add` makes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowSchema
from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.gallery import Gallery
from compatstore.integrations.filter_sql import Fields, to_sql
from compatstore.integrations.filters import ID, INT64, TEXT, Condition, metadata

Metadata: TypeAlias = Mapping[str, Any]
JSON_COLUMN = "metadata"
DEEPEST = 32  # objects and lists in one another


@dataclass(frozen=True)
class Documents:
    """How documents lie in one gallery.

    Args:
        id: Column of the ids.
        text: Column of the texts, or None.
        own: Arrow schema of the metadata columns that are no JSON of ours.
        json: Whether there is a column `metadata` of JSON.
        apart: Columns that hold no metadata of documents but something else of the adapter's.
    """

    id: str
    text: str | None
    own: ArrowSchema
    json: bool
    apart: tuple[str, ...] = ()

    @classmethod
    def of(cls, gallery: Gallery, apart: Sequence[str] = ()) -> Documents:
        """How they lie in a gallery as of now."""
        schema = gallery.metadata_schema
        has_json = JSON_COLUMN in schema.names and _is_json(schema.field(JSON_COLUMN).type)
        kept = [field for field in schema if field.name not in apart and not (has_json and field.name == JSON_COLUMN)]
        there = tuple(name for name in apart if name in schema.names)
        return cls(gallery.id_column, gallery.source_column, pa.schema(kept), has_json, there)

    @property
    def columns(self) -> list[str]:
        """Columns to read a document from."""
        extra = [JSON_COLUMN] if self.json else []
        return [self.id, *([self.text] if self.text else []), *self.own.names, *extra, *self.apart]

    def rows(self, ids: Sequence[str], texts: Sequence[str | None], metadatas: Sequence[Metadata]) -> dict[str, Any]:
        """Columns of n documents, as `Gallery.add` takes them.

        Raises:
            InvalidInput: Metadata that JSON or the column's type cannot hold.
        """
        columns: dict[str, Any] = {self.id: list(ids)}
        if self.text is not None:
            columns[self.text] = list(texts)
        asked = f"write {len(ids)} documents"
        for field in self.own:
            columns[field.name] = _typed([values.get(field.name) for values in metadatas], field, asked)
        rest = [{key: value for key, value in values.items() if key not in self.own.names} for values in metadatas]
        if self.json:
            columns[JSON_COLUMN] = [as_json(values, asked) for values in rest]
        else:
            for name in dict.fromkeys(key for values in rest for key in values):
                columns[name] = [values.get(name) for values in rest]
        return columns

    def metadata(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of a row that `columns` were read of."""
        own = {name: row[name] for name in self.own.names if row[name] is not None}
        text = row.get(JSON_COLUMN) if self.json else None
        return own if text is None else own | json.loads(text)

    def where(self, condition: Condition) -> str:
        """SQL of a condition on ids, texts and metadata.

        Raises:
            InvalidInput: The gallery has no such field.
        """
        fields = {metadata(field.name): (field.name, field.type) for field in self.own}
        fields[ID] = (self.id, pa.string())
        if self.text is not None:
            fields[TEXT] = (self.text, pa.string())
        return to_sql(condition, Fields(fields, JSON_COLUMN if self.json else None))


def as_json(value: object, asked: str) -> str:
    """A value as a text of JSON; dates become texts of ISO 8601, tuples lists, and NumPy's values Python's.

    Raises:
        InvalidInput: JSON cannot hold it, or would not give it back.
    """
    return json.dumps(_plain(value, asked, DEEPEST), ensure_ascii=False, allow_nan=False)


def refuse_unknown(arguments: Metadata, asked: str) -> None:
    """Refuse arguments that a framework's signature lets through and a store has no use for.

    Raises:
        InvalidInput: There are some.
    """
    if arguments:
        raise InvalidInput(asked, expected="arguments of this store", found=", ".join(sorted(arguments)))


def _plain(value: object, asked: str, levels: int) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping) and levels and all(isinstance(key, str) for key in value):
        return {_text(key, asked): _plain(item, asked, levels - 1) for key, item in value.items()}
    if isinstance(value, list | tuple) and levels:
        return [_plain(item, asked, levels - 1) for item in value]
    if isinstance(value, str):
        return _text(value, asked)
    if isinstance(value, date):
        return value.isoformat()
    fits = value is None or isinstance(value, bool)
    fits |= isinstance(value, int) and value in INT64
    fits |= isinstance(value, float) and math.isfinite(value)
    if not fits:
        expected = f"metadata that JSON can hold: texts, numbers of 64 bits, lists and objects, {DEEPEST} deep at most"
        raise InvalidInput(asked, expected=expected, found=f"{shown(value)} of type {type(value).__name__}")
    return value


def _text(text: str, asked: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput(asked, expected="texts of whole characters", found=ascii(text)[:120])
    return str(text)


def _typed(values: list[Any], field: Any, asked: str) -> Any:
    if _is_json(field.type):
        return [None if value is None else as_json(value, asked) for value in values]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        expected = f"metadata {field.name!r} of type {field.type}, as its column is"
        raise InvalidInput(asked, expected=expected, found=f"{error}") from error


def _is_json(kind: Any) -> bool:
    return bool(kind == pa.json_(pa.string()))
