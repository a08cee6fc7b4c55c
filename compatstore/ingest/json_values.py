"""Values of Python for columns of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray
from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.ingest.arrow import JSON, is_nothing

DEEPEST = 32  # objects and lists in one another
INT64 = range(-(2**63), 2**63)


def json_column(values: Any, ids: ArrowArray, name: str, asked: str) -> ArrowArray:
    """Values as an Arrow array of JSON: a text is JSON as it stands, NaN is nothing, all else is written as JSON.

    Args:
        values: n texts of JSON or values that JSON can hold.
        ids: The n items' ids, for messages.
        name: Of the column, for messages.
        asked: What the caller wants, for messages.

    Raises:
        InvalidInput: JSON cannot hold a value, or a text is no JSON; the item is named.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray) and values.type == JSON:
        return values
    every = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    texts = [
        None if is_nothing(value) else _text_of(value, f"{asked}, column {name!r} of item {key!r}")
        for key, value in zip(ids.to_pylist(), every, strict=True)
    ]
    return pa.ExtensionArray.from_storage(JSON, pa.array(texts, pa.string()))


def _text_of(value: object, asked: str) -> str:
    """A text of JSON, as it is; Lance would end the write at the first that is none, without its row."""
    if not isinstance(value, str):
        return as_json(value, asked)
    try:
        json.loads(value, parse_constant=_not_json)
    except ValueError as error:
        raise InvalidInput(asked, expected="a text of JSON", found=f"{shown(value)} ({error})") from error
    return value


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def as_json(value: object, asked: str) -> str:
    """A value as a text of JSON; dates become texts of ISO 8601, tuples lists, and NumPy's values Python's.

    Raises:
        InvalidInput: JSON cannot hold it, or would not give it back.
    """
    return json.dumps(_plain(value, asked, ()), ensure_ascii=False, allow_nan=False)


def _plain(value: object, asked: str, keys: tuple[str, ...]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    deep = len(keys) < DEEPEST
    if isinstance(value, Mapping) and deep and all(isinstance(key, str) for key in value):
        return {_text(key, asked): _plain(item, asked, (*keys, key)) for key, item in value.items()}
    if isinstance(value, list | tuple) and deep:
        return [_plain(item, asked, (*keys, str(place))) for place, item in enumerate(value)]
    if isinstance(value, str):
        return _text(value, asked)
    if isinstance(value, date):
        return value.isoformat()
    fits = value is None or isinstance(value, bool)
    fits |= isinstance(value, int) and value in INT64
    fits |= isinstance(value, float) and math.isfinite(value)
    if not fits:
        expected = f"metadata that JSON can hold: texts, numbers of 64 bits, lists and objects, {DEEPEST} deep at most"
        named = f" under {'.'.join(keys)[:120]!a}" if keys else ""
        raise InvalidInput(asked, expected=expected, found=f"{shown(value)} of type {type(value).__name__}{named}")
    return value


def _text(text: str, asked: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidInput(asked, expected="texts of whole characters", found=ascii(text)[:120])
    return str(text)
