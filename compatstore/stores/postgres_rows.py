"""Rows of PostgreSQL's binary format and Arrow: https://www.postgresql.org/docs/current/sql-copy.html.

Each value has 4 bytes of length (-1 for null) before it; numbers have their highest byte first.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowTable, ArrowType, BoolArray, FloatArray, Id
from compatstore.errors import StorageError
from compatstore.stores.store import matrix, vector_column

SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
_COPIED = 1_000  # rows of a part of a COPY
NO_SOURCE = bytes(32)  # in place of the digest of a source vector, where a row has none
VECTORS = {"vector": ">f4", "halfvec": ">f2"}  # type -> a value of it
TEXTS = ("text", "varchar", "uuid")
INTEGERS = ("int2", "int4", "int8")
NUMBERS = {"bool": "?", "int2": ">i2", "int4": ">i4", "int8": ">i8", "float4": ">f4", "float8": ">f8"}
_DAYS = 10_957  # from 1970 to 2000, where the server's times begin
_MICROSECONDS = _DAYS * 86_400_000_000
TIMES = {
    "date": (">i4", _DAYS, pa.date32()),
    "timestamp": (">i8", _MICROSECONDS, pa.timestamp("us")),
    "timestamptz": (">i8", _MICROSECONDS, pa.timestamp("us", "UTC")),
}
OTHERS = ("bpchar", "citext", "name", "json", "jsonb", "numeric", "enum")
METADATA = (*TEXTS, *NUMBERS, *TIMES, *OTHERS)  # types of columns that are copied

BinaryValues: TypeAlias = Sequence[bytes | None]
Decoder: TypeAlias = Callable[[BinaryValues], ArrowArray]  # of a column


def decoder(type_name: str, dim: int = 0) -> tuple[str, Decoder]:
    """The way to read a column: the type to cast it to in the statement ("" for none), and a function to Arrow.

    Args:
        type_name: Of the column: a vector, a number, a time, or any other, which is read as text.
        dim: Of a vector.
    """
    if type_name in VECTORS:
        return "", lambda values: vectors(values, type_name, dim)
    if type_name in NUMBERS:
        return "", lambda values: _numbers(values, NUMBERS[type_name])
    if type_name in TIMES:
        return "", lambda values: _times(values, *TIMES[type_name])
    if type_name == "numeric":
        return "float8", lambda values: _numbers(values, ">f8")
    return "text", lambda values: pa.array(values, pa.binary()).cast(pa.string())


def vectors(values: BinaryValues, type_name: str, dim: int) -> ArrowArray:
    """Vectors -> a column of fixed-size lists of float32: 4 bytes of header, then the numbers, each."""
    if not dim:
        return pa.nulls(len(values), pa.list_(pa.float32(), 0))
    size = 4 + dim * np.dtype(VECTORS[type_name]).itemsize
    if wrong := next((value for value in values if value is not None and len(value) != size), None):
        found = f"one of {int.from_bytes(wrong[:2])} values"
        raise StorageError(
            "read vectors", expected=f"{dim} values each", found=found, fix="Set others to NULL, or correct them."
        )
    flat = np.frombuffer(b"".join(bytes(size) if value is None else value for value in values), np.uint8)
    numbers = flat.reshape(len(values), size)[:, 4:].copy().view(VECTORS[type_name])
    return vector_column(numbers, dim, np.fromiter((value is not None for value in values), bool, len(values)))


def fetched(result: Any, columns: dict[str, Decoder]) -> ArrowTable:
    """A table of a result of libpq in the binary format, with a decoder per column."""
    value, rows = result.get_value, range(result.ntuples)
    values = ([value(row, at) for row in rows] for at in range(len(columns)))
    return pa.table({name: decode(column) for (name, decode), column in zip(columns.items(), values, strict=True)})


def key(one: Id, type_name: str) -> bytes | None:
    """An id as its column's type, or None if no row can have it; integers are all sent as int8."""
    if type_name in INTEGERS:
        is_number = isinstance(one, int) and -(2**63) <= one < 2**63
        return int(one).to_bytes(8, signed=True) if is_number else None
    if not isinstance(one, str) or "\0" in one:
        return None
    if type_name != "uuid":
        return one.encode()
    try:
        value = uuid.UUID(one)
    except ValueError:
        return None
    return value.bytes if str(value) == one else None


def source_digests(made_from: ArrowArray, half: bool) -> list[bytes]:
    """SHA-256 of source vectors as the server sends them: a column of fixed-size lists of float32 -> 32 bytes each.

    Args:
        made_from: The column; a null has the digest `NO_SOURCE`.
        half: True if they are of the type halfvec.
    """
    sources, number = matrix(made_from), np.dtype(">f2" if half else ">f4")
    rows = np.zeros(len(sources), [("dim", ">i2"), ("unused", ">i2"), ("values", number, sources.shape[1:])])
    rows["dim"], rows["values"] = sources.shape[1], sources
    data, size = rows.view(np.uint8).data, rows.itemsize
    hashed = (hashlib.sha256(data[at * size : (at + 1) * size]).digest() for at in range(len(rows)))
    there = np.asarray(made_from.is_valid()).tolist()
    return [digest if present else NO_SOURCE for digest, present in zip(hashed, there, strict=True)]


def copy_buffers(
    keys: Sequence[bytes], is_new: BoolArray, targets: FloatArray, made_from: Sequence[bytes]
) -> Iterator[bytes]:
    """Rows to copy to the server: the key, if it has no target vector yet, that vector, a digest of the source vector.

    Args:
        keys: (n,) of `key`.
        is_new: (n,) bool.
        targets: (n, dim) float32.
        made_from: (n,) of `source_digests`.

    Yields:
        Parts of the stream.
    """
    yield SIGNATURE
    for start in range(0, len(keys), _COPIED):
        some = slice(start, start + _COPIED)
        yield _copied(keys[some], is_new[some], targets[some], made_from[some])
    yield TRAILER


def _copied(keys: Sequence[bytes], is_new: BoolArray, targets: FloatArray, made_from: Sequence[bytes]) -> bytes:
    rows = np.zeros(
        len(keys),
        [
            ("is_new", [("size", ">i4"), ("values", "?")]),
            ("target", [("size", ">i4"), ("dim", ">i2"), ("unused", ">i2"), ("values", ">f4", targets.shape[1:])]),
            ("source", [("size", ">i4"), ("values", f"V{len(NO_SOURCE)}")]),
        ],
    )
    rows["target"]["dim"], rows["target"]["values"] = targets.shape[1], targets
    rows["is_new"]["values"], rows["source"]["values"] = is_new, np.frombuffer(b"".join(made_from), "V32")
    for name in ("is_new", "target", "source"):
        rows[name]["size"] = rows.dtype[name].itemsize - 4
    data, size = rows.view(np.uint8).data, rows.itemsize
    pieces = list[bytes | memoryview]()
    for at, one in enumerate(keys):
        pieces += (b"\0\4", len(one).to_bytes(4), one, data[at * size : (at + 1) * size])
    return b"".join(pieces)


def _numbers(values: BinaryValues, form: str) -> ArrowArray:
    empty = bytes(np.dtype(form).itemsize)
    numbers = np.frombuffer(b"".join(empty if value is None else value for value in values), form)
    return pa.array(numbers.astype(numbers.dtype.newbyteorder("=")), mask=_absent(values))


def _times(values: BinaryValues, form: str, epoch: int, kind: ArrowType) -> ArrowArray:
    kept = np.dtype(form).newbyteorder("=")
    numbers = np.frombuffer(b"".join(bytes(kept.itemsize) if value is None else value for value in values), form)
    # The least and the greatest number stand for infinity, which Arrow has not.
    mask = _absent(values) | np.isin(numbers, (np.iinfo(kept).min, np.iinfo(kept).max))
    since_1970 = np.where(mask, 0, numbers).astype(kept) + kept.type(epoch)
    return pa.array(since_1970, mask=mask).cast(kind)


def _absent(values: BinaryValues) -> BoolArray:
    return np.fromiter((value is None for value in values), bool, len(values))
