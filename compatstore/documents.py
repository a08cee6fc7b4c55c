"""JSON that anybody may have written, read as the records that it must hold, in bounded memory.

A manifest, a registry, a lease or the description of an encoder comes from a file or a table that may be damaged or
made to do harm. So a document is limited in size and depth, and every field is held against the type that its
dataclass declares, before anything is made of it.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from compatstore.boundary import from_outside

LARGEST = 8 << 20  # bytes; parsed, a document takes some thirty times as much
DEEPEST = 32
WIDEST = 1 << 20  # values of a vector or of a layer

_ODD = re.compile(r"\\u[dD]|\d{19}")  # what half a surrogate pair and a whole number beyond 64 bits begin with
_TEXTS, _BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"'), re.compile(r"[\[\]{}]")

Record = TypeVar("Record")
_PLAIN = (str, int, float, bool)


class Malformed(ValueError):  # noqa: N818  (a signal to the reader of a document, who names what is damaged)
    """A document is not what it should be; whoever reads it says what was read, and what to do."""


def parse(content: bytes | str, largest: int = LARGEST) -> Any:
    """Read JSON.

    Args:
        content: UTF-8.
        largest: Bytes, or characters of text, that are read at most.

    Raises:
        Malformed: It is too large, too deep, no UTF-8 or no JSON.
    """
    if len(content) > largest:
        raise Malformed(f"{len(content)} bytes, more than {largest}")
    try:
        text = content if isinstance(content, str) else content.decode()
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from error
    if _ODD.search(text) or not text.isascii() or _depth(text) > DEEPEST:
        _require_plain(values, "it", DEEPEST)
    return values


def _depth(text: str) -> int:
    """Levels of JSON, at least: brackets in texts do not count."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_TEXTS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest + 1


def read_record(kind: type[Record], values: Any, name: str, made: Mapping[str, Any] | None = None) -> Record:
    """Make a dataclass of a JSON object, and of the objects within it.

    Args:
        kind: A dataclass whose fields are text, numbers, truth values, `None`, `Literal`s, dataclasses, tuples and
            mappings of these, or one of several of these.
        values: The object.
        name: What to call it in messages.
        made: Fields that are no JSON any more, by their names; of any type.

    Raises:
        Malformed: A field is missing, unknown or of another type, or the dataclass refuses its values.
    """
    if not isinstance(values, dict):
        raise Malformed(f"{name} is {_shown(values)}, not an object")
    hints, made = _hints(kind), made or {}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise Malformed(f"{name} has the unknown field {_shown(unknown[0])}")
    fitted = {key: _fit(value, hints[key], f"{name}.{key}") for key, value in values.items() if key not in made}
    try:
        with from_outside():
            return kind(**fitted, **made)
    except (TypeError, ValueError) as error:  # a field is missing, or the dataclass says what else is wrong
        raise Malformed(f"{name}: {error}") from error


def to_document(value: Any) -> Any:
    """A dataclass as `read_record` reads it back: dictionaries, lists and plain values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_document(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_document(item) for key, item in value.items()}
    return [to_document(item) for item in value] if isinstance(value, list | tuple) else value


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _fit(value: Any, hint: Any, name: str) -> Any:
    """A JSON value as the type that a dataclass declares."""
    if hint is Any or (type(value) is hint and hint in _PLAIN):
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and types.NoneType in arguments:
            return None
        *others, last = (one for one in arguments if one is not types.NoneType)
        for one in others:
            with suppress(Malformed):
                return _fit(value, one, name)
        return _fit(value, last, name)
    if origin is Literal:
        if not isinstance(value, str) or value not in arguments:
            raise Malformed(f"{name} is {_shown(value)}, none of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise Malformed(f"{name} is {_shown(value)}, not a list")
        return tuple(_fit(item, arguments[0], f"{name}[{index}]") for index, item in enumerate(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise Malformed(f"{name} is {_shown(value)}, not an object")
        return {key: _fit(item, arguments[1], f"{name}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return read_record(hint, value, name)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return value  # JSON has one kind of number
    raise Malformed(f"{name} is {_shown(value)}, not of type {getattr(hint, '__name__', hint)}")


def _require_plain(value: Any, name: str, levels: int) -> None:
    """Refuse what no record of ours holds: half a surrogate pair, whole numbers beyond 64 bits, levels without end."""
    if not levels:
        raise Malformed(f"{name} is deeper than {DEEPEST} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            _require_plain(key, name, levels)
            _require_plain(item, key, levels - 1)
    elif isinstance(value, list):
        for item in value:
            _require_plain(item, name, levels - 1)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Malformed(f"{_shown(name)} holds half a surrogate pair") from error
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise Malformed(f"{name} is a whole number beyond 64 bits")


def _shown(value: Any) -> str:
    """A value for a message: short, and without what a terminal would not print."""
    text = ascii(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
