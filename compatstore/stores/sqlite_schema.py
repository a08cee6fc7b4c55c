"""A table of SQLite that holds vectors: a virtual table of sqlite-vec (vec0), or a table with a BLOB column of float32.

Names are quoted by `quoted`, and only such names become part of a statement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from compatstore.arrays import ArrowType
from compatstore.errors import InvalidInput, NotFound
from compatstore.stores.store import Parts
from compatstore.versions import Metric

VEC0_TYPES = {"text": pa.string(), "integer": pa.int64(), "float": pa.float64(), "boolean": pa.bool_()}
_MODULE = re.compile(r"\bUSING\s+vec0\s*\((?P<columns>.*)\)\s*;?\s*$", re.IGNORECASE | re.DOTALL)
_VECTOR = re.compile(r"(?P<name>\w+)\s+(?:float|f32)\[(?P<dim>\d+)\](?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_METRIC = re.compile(r"\bdistance_metric\s*=\s*(?P<metric>\w+)", re.IGNORECASE)
_PLAIN = re.compile(r"(?P<aux>\+?)\s*(?P<name>\w+)\s+(?P<type>\w+)(?P<rest>[^\[]*)", re.DOTALL)


def quoted(name: str) -> str:
    """A name as SQLite reads it in a statement."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class VectorTable:
    """A table with a column of vectors.

    Attributes:
        name: Of the table.
        is_vec0: True for a virtual table of sqlite-vec.
        id: Column of the ids.
        id_type: "string" or "int64".
        vector: Column of the vectors.
        dim: Length of a vector; 0 if there is none, and the column does not say.
        metric: Distance.
        metadata: Name to Arrow type of the columns that can be copied.
        columns: Name to type in the words of SQLite, of all columns.
        definition: Of a vec0 table, its columns and options.
        notes: What is not as a user would expect it.
    """

    name: str
    is_vec0: bool
    id: str
    id_type: Literal["string", "int64"]
    vector: str
    dim: int
    metric: Metric
    metadata: dict[str, ArrowType]
    columns: dict[str, str]
    definition: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def id_kind(self) -> ArrowType:
        """Arrow type of the ids."""
        return pa.int64() if self.id_type == "int64" else pa.string()


def read_table(connection: Any, name: str, wanted: Parts) -> VectorTable:
    """Read the columns of a table.

    Args:
        connection: Of apsw.
        name: Of the table.
        wanted: Columns of ids and vectors that are named.

    Raises:
        NotFound: There is no such table or column.
        InvalidInput: It cannot be mirrored.
    """
    operation = f"read table {name}"
    rows = list(connection.execute("SELECT type, sql FROM sqlite_schema WHERE name = ? COLLATE NOCASE", (name,)))
    if not rows or rows[0][0] not in ("table", "view"):
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite!_%' ESCAPE '!' LIMIT 20"
        there = ", ".join(one for (one,) in connection.execute(tables)) or "none"
        raise NotFound(operation, expected="a table", found=f"none of that name, among {there}")
    if rows[0][0] == "view":
        raise InvalidInput(operation, expected="a table", found="a view", fix="Name the table that it reads.")
    module = _MODULE.search(rows[0][1])
    columns = {
        column: (kind, bool(key))
        for _, column, kind, _, _, key, hidden in connection.execute("SELECT * FROM pragma_table_xinfo(?)", (name,))
        if hidden != 1
    }
    for column in (wanted.id, wanted.vector):
        if column and column not in columns and not (module and column == "rowid"):
            found = f"{column}, among {', '.join(columns)}"
            raise NotFound(operation, expected="a column of the table", found=found)
    if module is None:
        return _read_plain(connection, name, columns, wanted)
    return _read_vec0(name, [part.strip() for part in module["columns"].split(",")], wanted)


def _read_vec0(name: str, definition: list[str], wanted: Parts) -> VectorTable:
    operation, vectors, plain, types = f"read vec0 table {name}", dict[str, Any](), dict[str, ArrowType](), {}
    key, id_type = "rowid", "integer"
    for part in definition:
        vector, column = _VECTOR.fullmatch(part), _PLAIN.fullmatch(part)
        if vector is not None:
            vectors[vector["name"]], types[vector["name"]] = vector, part.partition(" ")[2]
        elif column is not None and "primary" in column["rest"].lower():
            key, id_type = column["name"], column["type"].lower()
        elif column is not None:
            types[column["name"]] = column["type"]
            if column["type"].lower() in VEC0_TYPES:
                plain[column["name"]] = VEC0_TYPES[column["type"].lower()]
        elif "=" not in part:  # else an option, as chunk_size
            types[part.partition(" ")[0]] = part.partition(" ")[2]
    if wanted.id not in ("", key):
        raise InvalidInput(operation, expected=f"ids in {key}, its primary key", found=wanted.id)
    if len(vectors) != 1 and not wanted.vector:
        found = ", ".join(vectors) or "none"
        raise InvalidInput(operation, expected="one column of float vectors, or the name of one", found=found)
    if wanted.vector and wanted.vector not in vectors:
        expected = f"a column of float vectors: {', '.join(vectors) or 'it has none'}"
        raise InvalidInput(operation, expected=expected, found=f"{wanted.vector} {types.get(wanted.vector, '')}")
    chosen = vectors[wanted.vector or next(iter(vectors))]
    named = _METRIC.search(chosen["rest"])
    metric = named["metric"].lower() if named else "l2"
    if metric not in ("l2", "cosine"):
        raise InvalidInput(operation, expected="distance_metric of l2 or cosine", found=metric)
    return VectorTable(
        name=name,
        is_vec0=True,
        id=key,
        id_type="int64" if id_type.startswith("int") else "string",
        vector=chosen["name"],
        dim=int(chosen["dim"]),
        metric="l2" if metric == "l2" else "cosine",
        metadata=plain,
        columns={key: id_type, **types},
        definition=tuple(definition),
        notes=tuple(
            f"Column {one} of {types[one]} is left out." for one in types if one not in {*plain, chosen["name"]}
        ),
    )


def _read_plain(connection: Any, name: str, columns: dict[str, tuple[str, bool]], wanted: Parts) -> VectorTable:
    operation, table = f"read table {name}", quoted(name)
    key = wanted.id or _only([one for one, (_, is_key) in columns.items() if is_key], f"{operation}: its ids", "key")
    if not columns[key][1] and not _is_unique(connection, name, key):
        raise InvalidInput(operation, expected="ids that are unique: a primary key, or a unique index", found=key)
    kinds = {one: _affinity(kind) for one, (kind, _) in columns.items()}
    found = [one for (one,) in connection.execute(f"SELECT DISTINCT typeof({quoted(key)}) FROM {table} LIMIT 3")]
    if found not in ([], ["integer"], ["text"]):
        raise InvalidInput(f"{operation}: its ids", expected="texts alone, or integers alone", found=", ".join(found))
    is_integer = found == ["integer"] or (not found and kinds[key] == pa.int64())
    blobs = [
        one for one, kind in kinds.items() if kind is None and one != key and _holds_vectors(connection, table, one)
    ]
    vector = wanted.vector or _only(blobs, f"{operation}: its vectors", "BLOB column of float32")
    lengths = [
        size for (size,) in connection.execute(
            f"SELECT DISTINCT CASE typeof({quoted(vector)}) WHEN 'blob' THEN length({quoted(vector)}) END "
            f"FROM {table} WHERE {quoted(vector)} IS NOT NULL LIMIT 3"
        )
    ]  # fmt: skip
    if len(lengths) > 1 or any(not size or size % 4 for size in lengths):
        shown = ", ".join("no BLOB" if size is None else f"{size} bytes" for size in lengths)
        expected = f"BLOBs of float32 of one length in {vector}"
        raise InvalidInput(operation, expected=expected, found=shown)
    plain = {one: kind for one, kind in kinds.items() if kind is not None and one != key}
    notes = [
        "The table does not say its distance: cosine is taken.",
        "The target's column is added to the table: an app that inserts rows without naming their columns fails then.",
    ]
    if list(connection.execute("SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ?", (name,))):
        notes.append("The table has triggers: those of updates run when a target vector is written.")
    left_out = [one for one in columns if one not in plain and one not in (key, vector)]
    return VectorTable(
        name=name,
        is_vec0=False,
        id=key,
        id_type="int64" if is_integer else "string",
        vector=vector,
        dim=lengths[0] // 4 if lengths else 0,
        metric="cosine",
        metadata={one: kind for one, kind in plain.items() if one != vector},
        columns={one: kind or "any" for one, (kind, _) in columns.items()},
        notes=(*notes, *(f"Column {one} of BLOB is left out." for one in left_out)),
    )


def _only(names: list[str], operation: str, what: str) -> str:
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise InvalidInput(operation, expected=f"one {what}, or the name of the column", found=found)
    return names[0]


def _holds_vectors(connection: Any, table: str, column: str) -> bool:
    name = quoted(column)
    query = f"SELECT typeof({name}), length({name}) FROM {table} WHERE {name} NOT NULL LIMIT 1"
    return all(kind == "blob" and size and size % 4 == 0 for kind, size in connection.execute(query))


def _is_unique(connection: Any, table: str, column: str) -> bool:
    indexes = 'SELECT name FROM pragma_index_list(?) WHERE "unique" AND NOT partial'
    for (index,) in list(connection.execute(indexes, (table,))):
        if [one for (one,) in connection.execute("SELECT name FROM pragma_index_info(?)", (index,))] == [column]:
            return True
    return False


def _affinity(declared: str) -> ArrowType | None:
    """Arrow type of a column by its declared type, as SQLite reads it; None for BLOBs."""
    kind = declared.upper()
    if "INT" in kind:
        return pa.int64()
    if any(part in kind for part in ("CHAR", "CLOB", "TEXT")):
        return pa.string()
    if not kind or "BLOB" in kind or "[" in kind:
        return None
    if any(part in kind for part in ("REAL", "FLOA", "DOUB")):
        return pa.float64()
    return pa.bool_() if "BOOL" in kind else pa.string()
