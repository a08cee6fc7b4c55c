"""Application queries, as files and columns have them: texts, paths, items of the gallery, or vectors of both models.

A file of text has one query a line: JSON objects (`.jsonl`), or a header and columns between tabs (`.tsv`) or commas
(`.csv`). Files of arrays (`.npz`, `.safetensors`) and of columns (`.parquet`, `.arrow`, `.feather`) hold vectors too.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from compatstore.arrays import FloatArray
from compatstore.boundary import array_of, foreign, refuse_masked, shown
from compatstore.data_files import read_columns, readable, require_file
from compatstore.errors import InvalidInput, first_offenders

IDS = ("id", "_id", "query-id", "query_id", "qid")
TEXT, PATH, ITEM = ("text",), ("path",), ("item", "item-id", "item_id")
TEXT_FILES = (".jsonl", ".tsv", ".csv")
SUFFIXES = (*TEXT_FILES, ".npz", ".safetensors", ".parquet", ".arrow", ".feather")
EXPECTED = (
    "a column id, and one of text, path and item, or two of vectors called source and target or as the versions are"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuerySet:
    """n queries of an app, of one kind.

    Args:
        ids: Ids of the queries, each once.
        sources: n texts, or paths and URIs, for encoders to read; None if there are none.
        items: n ids of items of the gallery, used as queries; None without them.
        vectors: Column -> (n, dim) float32, finite: source and target, or names of versions. Empty where there are
            none.
    """

    ids: tuple[str, ...]
    sources: tuple[str, ...] | None = None
    items: tuple[str, ...] | None = None
    vectors: Mapping[str, FloatArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def digest(self) -> str:
        """Digest of all that the queries are, whatever file they came from; 32 hex digits."""
        text = json.dumps([self.ids, self.sources, self.items, sorted(self.vectors)])
        digest = hashlib.sha256(text.encode())
        for name in sorted(self.vectors):
            digest.update(repr(self.vectors[name].shape).encode() + self.vectors[name].tobytes())
        return digest.hexdigest()[:32]


def read_queries(path: str | Path) -> QuerySet:
    """Read queries from a file.

    Raises:
        NotFound: There is no such file.
        InvalidInput: The file is of another type, damaged or empty, a column is missing, or a value is. A query's id
            occurs twice. Vectors have different lengths. Vectors hold NaN or infinite values.
    """
    file, operation = Path(path), f"read queries from {path}"
    require_file(file, operation, SUFFIXES)
    with readable(file, operation):
        return queries_of(_columns(file, operation), operation, file.parent)


def queries_of(columns: Mapping[str, Any], operation: str = "read queries", folder: Path | None = None) -> QuerySet:
    """Make queries of columns: `id` beside `text`, `path`, `item`, or vectors of two models.

    Args:
        columns: Name -> n values, or (n, dim) numbers.
        operation: The operation, for messages.
        folder: Base of relative paths; None for the working directory.

    Raises:
        InvalidInput: A column or a value is missing, or there is no query. A query's id occurs twice. Columns or
            vectors have different lengths. Vectors hold NaN or infinite values.
    """
    key = _named(columns, IDS)
    kinds = {kind: name for kind in (TEXT, PATH, ITEM) if (name := _named(columns, kind)) is not None}
    vectors = {name: values for name, values in columns.items() if name not in (key, *kinds.values())}
    vectors = {name: values for name, values in vectors.items() if _is_matrix(values)}
    if key is None or len(kinds) + bool(vectors) != 1 or len(vectors) == 1:
        raise InvalidInput(operation, expected=EXPECTED, found=", ".join(map(str, columns)) or "nothing")
    ids = _texts(columns[key], key, operation)
    if not ids:
        raise InvalidInput(operation, expected="at least one query", found="none")
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = [name for name in ids if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        raise InvalidInput(operation, expected="each query's id once", found=first_offenders(sorted(set(twice))))
    for kind, name in kinds.items():
        values = _texts(columns[name], name, operation)
        _require_length(values, ids, name, operation)
        if kind is ITEM:
            return QuerySet(ids=ids, items=values)
        return QuerySet(ids=ids, sources=values if kind is TEXT else tuple(_located(one, folder) for one in values))
    return QuerySet(ids=ids, vectors={name: _matrix(values, ids, name, operation) for name, values in vectors.items()})


def text_rows(file: Path, operation: str) -> list[dict[str, Any]]:
    """Rows of a `.jsonl`, or of a file with a header between tabs or commas; a byte order mark is no part of them.

    Raises:
        InvalidInput: A line is no JSON object, or has more or fewer values than the header.
    """
    with file.open(encoding="utf-8-sig", newline="") as lines:
        if file.suffix.lower() == ".jsonl":
            return [_object(line, number, operation) for number, line in enumerate(lines, 1) if line.strip()]
        commas = file.suffix.lower() == ".csv"
        reader = csv.reader(lines) if commas else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        header, rows = None, []
        for row in reader:
            if not any(value.strip() for value in row):
                continue
            if header is None:
                header = [name.strip() for name in row]
                continue
            if len(row) != len(header):
                found = f"{len(row)} in line {reader.line_num}"
                raise InvalidInput(operation, expected=f"{len(header)} values a line", found=found)
            rows.append(dict(zip(header, row, strict=True)))
        if header is not None and not rows:
            raise InvalidInput(operation, expected="lines below the header", found="none")
        return rows


def _object(line: str, number: int, operation: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(operation, expected="a JSON object in each line", found=f"line {number}: {error}") from error
    if not isinstance(row, dict):
        raise InvalidInput(operation, expected="a JSON object in each line", found=f"{shown(row)} in line {number}")
    return row


def _columns(file: Path, operation: str) -> Mapping[str, Any]:
    kind = file.suffix.lower()
    if kind in TEXT_FILES:
        rows = text_rows(file, operation)
        if not rows:
            raise InvalidInput(operation, expected="at least one query", found="an empty file")
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names if _is_known(name)} or {
            name: [] for name in names
        }
    columns, _ = read_columns(file, operation)
    if kind == ".safetensors" and columns and _named(columns, IDS) is None:
        # Tensors hold no texts: without whole numbers as ids, queries are counted from 0.
        columns["id"] = np.arange(max(len(array) for array in columns.values()))
    return columns


def _named(columns: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The column that has one of some names."""
    return next((name for name in names if name in columns), None)


def _is_known(name: str) -> bool:
    return name in (*IDS, *TEXT, *PATH, *ITEM)


def _is_matrix(values: Any) -> bool:
    """True if a column holds vectors."""
    with foreign("read queries", "columns of texts or vectors"):
        array = np.asarray(values)
    return array.ndim == 2 and array.dtype.kind in "fiu"


def _texts(values: Any, name: str, operation: str) -> tuple[str, ...]:
    """A column of texts, or of whole numbers as texts."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(listed, str | bytes) or not isinstance(listed, Sequence):
        raise InvalidInput(operation, expected=f"a list of {name}", found=shown(values))
    for place, value in enumerate(listed):
        known = isinstance(value, str | int | np.integer) and not isinstance(value, bool)
        if not known or not str(value).strip():
            found = f"{shown(value)} for query {place + 1}"
            raise InvalidInput(operation, expected=f"text or a whole number as {name}", found=found)
    return tuple(str(value) for value in listed)


def _require_length(values: Sized, ids: Sequence[str], name: str, operation: str) -> None:
    if len(values) != len(ids):
        raise InvalidInput(operation, expected=f"{len(ids)} of {name}", found=f"{len(values)}")


def _matrix(values: Any, ids: Sequence[str], name: str, operation: str) -> FloatArray:
    refuse_masked(values, operation)
    matrix = array_of(values, operation, name, dtype=np.float32)
    _require_length(matrix, ids, f"vectors of {name}", operation)
    broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(broken):
        found = f"NaN or infinity in {name} of {first_offenders([ids[row] for row in broken.tolist()])}"
        raise InvalidInput(operation, expected="finite vectors", found=found)
    return np.ascontiguousarray(matrix)


def _located(path: str, folder: Path | None) -> str:
    """A path as of the working directory; URIs stay as they are."""
    return path if folder is None or "://" in path else str(folder / path)
