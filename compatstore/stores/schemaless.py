"""Metadata of stores without a schema: types as a sample of rows shows them, and columns of these types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from compatstore.arrays import ArrowArray
from compatstore.boundary import shown
from compatstore.errors import NotFound
from compatstore.stores.store import ID, IN_TARGET, SOURCE, VECTOR, Parts

SAMPLE = 1_000  # rows whose metadata is read
TYPES: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "double"}
RESERVED = (ID, VECTOR, SOURCE, IN_TARGET)  # columns of a scan, of which metadata can have no second


def types_of(rows: Iterable[Mapping[str, Any]], fixed: Sequence[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Types of metadata.

    Args:
        rows: Metadata of a sample of rows.
        fixed: Columns of the store itself, of which metadata can have no second.

    Returns:
        Name to type, and a note on names that are left out: values of several types, lists, or objects.
    """
    seen: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                seen.setdefault(name, set()).add(TYPES.get(type(value), type(value).__name__))
    types, left_out = dict[str, str](), list[str]()
    for name, found in seen.items():
        one = "double" if found == {"int64", "double"} else next(iter(found))
        if name in fixed or (len(found) > 1 and found != {"int64", "double"}) or one not in TYPES.values():
            left_out.append(f"{name!r} ({'the name of another column' if name in fixed else ', '.join(sorted(found))})")
        else:
            types[name] = one
    return types, [f"Metadata that cannot be copied: {', '.join(left_out)}."] if left_out else []


def copied(types: Mapping[str, str]) -> tuple[tuple[str, ...], list[str]]:
    """Metadata that a scan can give under their names, and a note on those whose names it needs itself."""
    taken = [repr(name) for name in types if name in RESERVED]
    note = f"Metadata that can be the source and no column of their own: {', '.join(taken)}."
    return tuple(name for name in types if name not in RESERVED), [note] if taken else []


def named(wanted: Parts) -> dict[str, str]:
    """Columns that the user named, as of a collection without rows, which can hold any."""
    return dict.fromkeys([*([wanted.source] if wanted.source else []), *wanted.metadata], "string")


def require_source(parts: Parts, types: Mapping[str, str], rows: Sequence[Mapping[str, Any]], operation: str) -> None:
    """Refuse a source that neither the sample nor any of some rows has.

    Raises:
        NotFound: There is none of that name.
    """
    if parts.source and parts.source not in types and rows and not any(parts.source in row for row in rows):
        expected = f"metadata of {', '.join(types) or 'no name'}"
        raise NotFound(operation, expected=expected, found=shown(parts.source))


def column(values: Sequence[Any], kind: str) -> ArrowArray:
    """A column of metadata. Strings take any value as text; of other types a value that does not fit is null."""
    return pa.array([_fitting(value, kind) for value in values], pa.type_for_alias(kind))


def _fitting(value: Any, kind: str) -> Any:
    if value is None or TYPES.get(type(value)) == kind:
        return value if kind != "int64" or value is None or -(2**63) <= value < 2**63 else None
    if kind == "string":
        return json.dumps(value, ensure_ascii=False, default=str)
    if kind == "double" and isinstance(value, int):
        return float(value)
    return int(value) if kind == "int64" and isinstance(value, float) and value.is_integer() else None
