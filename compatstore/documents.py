"""JSON from untrusted files and tables, read as the records that it must hold, in bounded memory.

A manifest, a registry, a lease or the description of an encoder comes from a file or a table that may be damaged or
made to do harm. So a document is limited in size and depth, and every field is held against the type that its
dataclass declares, before anything is made of it.
"""

from __future__ import annotations

import json
from typing import Any

from compatstore.boundary import Malformed as Malformed
from compatstore.boundary import Record as Record
from compatstore.boundary import read_record as read_record
from compatstore.boundary import shown

LARGEST = 8 << 20  # bytes; parsed, a document takes some thirty times as much
DEEPEST = 32
WIDEST = 1 << 20  # values of a vector or of a layer


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
        values = json.loads(content if isinstance(content, str) else content.decode())
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from error
    _require_plain(values, "it", DEEPEST)
    return values


def _require_plain(value: Any, name: str, levels: int) -> None:
    """Refuse half a surrogate pair, whole numbers beyond 64 bits, and more levels than `levels`."""
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
            raise Malformed(f"{shown(name)} holds half a surrogate pair") from error
    elif isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise Malformed(f"{name} is a whole number beyond 64 bits")
