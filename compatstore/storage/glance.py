"""What the newest manifest of a local table says, read without Lance: for whoever may not wait for it to load.

A shell asks for completions at each press of a key, and Lance takes a second to load. The manifest is a message of
protobuf, between the position that the last 16 bytes of the file name and these bytes. By `table.proto` of Lance, its
field 1 is a field of the schema, with name (2), parent (4) and type (5); its field 16 is an entry of the configuration,
a key (1) and a value (2).
`tests/storage/test_glance.py` holds what is read here against what Lance reads.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compatstore.errors import StorageError
from compatstore.storage.location import Location

KEY = "compatstore.registry"
_FIELD, _CONFIG = 1, 16
_NAME, _PARENT, _TYPE = 2, 4, 5
_FOOTER, _MAGIC = 16, b"LANC"
_COUNTED_DOWN = 20  # digits of a name that counts from 2^64 - 1 down, so that the newest manifest comes first
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types
_ROOT = 2**64 - 1  # the parent of a field that has none: -1


@dataclass(frozen=True, kw_only=True)
class Glance:
    """Names in a table.

    Attributes:
        columns: Column -> its type as Lance calls it: "string", "int64", "fixed_size_list:float:64".
        versions: Embedding versions in order of registration; none in a table that is no gallery.
        active: Version that searches use; "" in a table that is no gallery.
        artifacts: Ids of the artifacts linked.
        upgrades: Targets of upgrades.
    """

    columns: dict[str, str]
    versions: tuple[str, ...]
    active: str
    artifacts: tuple[str, ...]
    upgrades: tuple[str, ...]


def glance(location: Location) -> Glance:
    """Read names; nothing is checked and nothing is written.

    Raises:
        StorageError: There is no table, it is not on this machine, or its manifest is of another form.
    """
    try:
        return _read(_newest(Path(location.uri, "_versions")))
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error) as error:
        expected = "a table of Lance on this machine"
        raise StorageError(f"look at {location.name}", expected=expected, found=str(error) or "another form") from error


def _newest(folder: Path) -> Path:
    """The manifest of the newest version; names are numbers, in tables of early releases counted up."""
    names = [name for name, dot, kind in (each.partition(".") for each in os.listdir(folder)) if kind == "manifest"]
    numbers = [name for name in names if name.isdigit()]
    down = [name for name in numbers if len(name) == _COUNTED_DOWN]
    return folder / f"{min(down) if down else max(numbers, key=int)}.manifest"


def _read(manifest: Path) -> Glance:
    content = manifest.read_bytes()
    if content[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("a file that is no manifest")
    (start,) = struct.unpack_from("<Q", content, len(content) - _FOOTER)
    (length,) = struct.unpack_from("<I", content, start)
    columns: dict[str, str] = {}
    registry: dict[str, object] = {}
    for number, value in _fields(content[start + 4 : start + 4 + length]):
        if number == _FIELD:
            field = dict(_fields(_bytes(value)))
            if field.get(_PARENT, 0) == _ROOT:
                columns[_text(field[_NAME])] = _text(field.get(_TYPE, b""))
        elif number == _CONFIG:
            entry = dict(_fields(_bytes(value)))
            if _text(entry.get(1, b"")) == KEY:
                registry = json.loads(_text(entry[2]))
    versions, artifacts, runs = (tuple(map(str, registry.get(part, ()))) for part in ("versions", "artifacts", "runs"))  # type: ignore[call-overload]
    return Glance(
        columns=columns,
        versions=versions,
        active=str(registry.get("active", "")),
        artifacts=artifacts,
        upgrades=runs,
    )


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of each field of a protobuf message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == _BYTES:
            length, at = _varint(message, at)
        elif wire in (_EIGHT, _FOUR):
            length = 8 if wire == _EIGHT else 4
        else:
            raise ValueError(f"a field of wire type {wire}")
        if at + length > len(message):
            raise ValueError("a message that is cut off")
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if not byte & 0x80:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    raise ValueError("a number where bytes were expected")


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()
