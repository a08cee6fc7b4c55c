"""Arrow columns of values that users hand over, and Python's values for columns of JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowSchema, ArrowTable, ArrowType
from compatstore.artifacts.matrix import to_numpy
from compatstore.boundary import foreign, shown
from compatstore.errors import InvalidInput

_INDEX = re.compile(r"__index_level_\d+__")
DEEPEST = 32  # levels of lists, or of objects and lists, in one another
JSON = pa.json_(pa.string())
NOT_CONVERTIBLE = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)


def cast(values: ArrowArray, kind: ArrowType, name: str, operation: str) -> ArrowArray:
    """Make values an Arrow array of a type.

    Args:
        values: n values, as `as_array` takes them.
        kind: Arrow type.
        name: Of their column, for messages.
        operation: The caller's operation, for messages.

    Raises:
        InvalidInput: They are none of that type.
    """
    array = as_array(values, operation)
    if array.type == kind:
        return array
    if pa.types.is_floating(array.type) and not pa.types.is_floating(kind):
        array = pc.if_else(pc.is_nan(array), None, array)  # pandas writes NaN for nothing
    try:
        return array.cast(kind)
    except NOT_CONVERTIBLE as error:
        raise InvalidInput(
            operation, expected=f"column {name!r} of type {kind}", found=f"{array.type} ({error})"
        ) from error


def cast_columns(columns: Mapping[str, ArrowArray], schema: ArrowSchema, operation: str) -> ArrowTable:
    """An Arrow table of columns in the order and with the types of a schema, which may have more; raises as `cast`."""
    fields = [field for field in schema if field.name in columns]
    return pa.table([cast(columns[f.name], f.type, f.name, operation) for f in fields], schema=pa.schema(fields))


def read_stream(data: Any, operation: str) -> ArrowTable:
    """Read a source of an Arrow stream: a frame of pandas or polars, a result of DuckDB, another gallery's scan.

    A frame of pandas numbers its rows if they were filtered; that index is no column of the user's.

    Raises:
        InvalidInput: It cannot be read.
    """
    with foreign(operation, "a frame that Arrow can read"):
        read = pa.table(data)
    if b"pandas" in (read.schema.metadata or {}):
        read = read.drop_columns([name for name in read.schema.names if _INDEX.fullmatch(name)])
    return pa.table({name: stored(read.column(name)) for name in read.schema.names})


def stored(values: ArrowArray) -> ArrowArray:
    """The same values in a type that Lance stores; views and categories, as polars gives them, become text."""
    if pa.types.is_dictionary(values.type):
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        kind = _stored(values.type)
        return pa.chunked_array([chunk.dictionary.cast(kind).take(chunk.indices) for chunk in chunks], kind)
    return values.cast(_stored(values.type))


def _stored(kind: ArrowType) -> ArrowType:
    """The type that Lance stores such values with; views (polars) are none."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _stored(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_stored(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored(field.type)) for field in kind])
    return kind


def countable(values: Any, name: str, operation: str) -> ArrowArray:
    """Values for a column in a form that has a length and that Arrow can read.

    Arrow walks through nested lists without a limit and overflows the stack of the process.

    Raises:
        InvalidInput: It is no list or array, or lists lie too deep in it.
    """
    with foreign(operation, f"a list or array of values in column {name!r}"):
        given = to_numpy(values)
        len(given)
    if hasattr(given, "__arrow_c_stream__") and not isinstance(given, pa.ChunkedArray):
        given = _lists(given)
    nested = given.tolist() if isinstance(given, np.ndarray) and given.dtype == object else given
    if not _is_shallow(nested, DEEPEST):
        raise InvalidInput(operation, expected=f"{DEEPEST} levels at most in column {name!r}", found="more")
    return given


def _lists(column: Any) -> Any:
    """A column of a frame whose values are lists, as Arrow reads them; any other column as it is."""
    try:
        read = pa.chunked_array(column)
    except NOT_CONVERTIBLE:
        return column
    kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return stored(read) if any(is_kind(read.type) for is_kind in kinds) else column


def _is_shallow(values: Any, levels: int) -> bool:
    if not isinstance(values, list | tuple | dict):
        return True
    inner = values.values() if isinstance(values, dict) else values
    return levels > 0 and all(_is_shallow(value, levels - 1) for value in inner)


def as_array(values: Any, operation: str) -> ArrowArray:
    """Make n values of any kind one Arrow array; values of types that Arrow does not support become text.

    Raises:
        InvalidInput: Neither can be made of them.
    """
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if isinstance(values, pa.Array):
        return values
    with foreign(operation, "values that Arrow supports, or that have a text"):
        if isinstance(values, np.ndarray) and values.ndim > 1:
            values = list(values)
        try:
            return pa.array(values)
        except NOT_CONVERTIBLE:
            return pa.array([None if is_nothing(value) else str(value) for value in values])


def is_nothing(value: object) -> bool:
    """True for None, NaN, and the NaT and NA of pandas."""
    return value is None or (not isinstance(value, str) and str(value) in ("nan", "NaN", "NaT", "<NA>"))


INT64 = range(-(2**63), 2**63)


def json_column(values: Any, ids: ArrowArray, name: str, operation: str) -> ArrowArray:
    """Values as an Arrow array of JSON: a text is JSON as it stands, NaN is nothing, all else is written as JSON.

    Args:
        values: n texts of JSON or values that JSON can hold.
        ids: The n items' ids, for messages.
        name: Of the column, for messages.
        operation: The caller's operation, for messages.

    Raises:
        InvalidInput: JSON cannot hold a value, or a text is no JSON; the item is named.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray) and values.type == JSON:
        return values
    every = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    texts = [
        None if is_nothing(value) else _text_of(value, f"{operation}, column {name!r} of item {key!r}")
        for key, value in zip(ids.to_pylist(), every, strict=True)
    ]
    return pa.ExtensionArray.from_storage(JSON, pa.array(texts, pa.string()))


def _text_of(value: object, operation: str) -> str:
    """A text of JSON, as it is; Lance would end the write at the first that is none, without its row."""
    if not isinstance(value, str):
        return as_json(value, operation)
    try:
        json.loads(value, parse_constant=_not_json)
    except ValueError as error:
        raise InvalidInput(operation, expected="a text of JSON", found=f"{shown(value)} ({error})") from error
    return value


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def as_json(value: object, operation: str) -> str:
    """A value as a text of JSON; dates become texts of ISO 8601, tuples lists, and NumPy's values Python's.

    Raises:
        InvalidInput: JSON cannot hold it, or would not give it back.
    """
    return json.dumps(_plain(value, operation, ()), ensure_ascii=False, allow_nan=False)


def _plain(value: object, operation: str, keys: tuple[str, ...]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    deep = len(keys) < DEEPEST
    if isinstance(value, Mapping) and deep and all(isinstance(key, str) for key in value):
        return {_text(key, operation): _plain(item, operation, (*keys, key)) for key, item in value.items()}
    if isinstance(value, list | tuple) and deep:
        return [_plain(item, operation, (*keys, str(place))) for place, item in enumerate(value)]
    if isinstance(value, str):
        return _text(value, operation)
    if isinstance(value, date):
        return value.isoformat()
    fits = value is None or isinstance(value, bool)
    fits |= isinstance(value, int) and value in INT64
    fits |= isinstance(value, float) and math.isfinite(value)
    if not fits:
        expected = f"metadata that JSON can hold: texts, numbers of 64 bits, lists and objects, {DEEPEST} deep at most"
        named = f" under {'.'.join(keys)[:120]!a}" if keys else ""
        raise InvalidInput(operation, expected=expected, found=f"{shown(value)} of type {type(value).__name__}{named}")
    return value


def _text(text: str, operation: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput(operation, expected="texts of whole characters", found=ascii(text)[:120])
    return str(text)
