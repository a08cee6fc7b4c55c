"""Rows of a table as Arrow, streamed by a cursor in the binary format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from compatstore.arrays import ArrowTable
from compatstore.errors import InvalidInput, NotFound
from compatstore.stores.postgres_catalog import Column, Cursor, TableShape
from compatstore.stores.postgres_rows import INTEGERS, Decoder, decoder, fetched
from compatstore.stores.postgres_statements import SqlPart, compose, joined, key_expression, verbatim
from compatstore.stores.store import BATCH, ID, IN_TARGET, SOURCE, VECTOR, Parts

Selected: TypeAlias = dict[str, tuple[SqlPart, Decoder]]  # name -> expression in SQL, function to Arrow


def rows(cursor: Cursor, table: TableShape, columns: Selected, chosen: SqlPart | None = None) -> Iterator[ArrowTable]:
    """Tables of about `BATCH` rows.

    Args:
        cursor: Of a transaction.
        table: To read.
        columns: Of the tables.
        chosen: The condition of the rows, of the table as `t`; None for all.
    """
    parts = {
        "columns": joined(", ", [expression for expression, _ in columns.values()]),
        "chosen": verbatim("true") if chosen is None else chosen,
    }
    query = "DECLARE compatstore_rows NO SCROLL CURSOR FOR SELECT {columns} FROM {table} AS t WHERE {chosen}"
    cursor.execute(compose(query, table, parts))
    decoders, count = {name: decode for name, (_, decode) in columns.items()}, BATCH
    while count == BATCH:
        # The client reads a result as a whole, and a COPY row by row, which takes it several times as long.
        found = cursor.execute(f"FETCH {BATCH} FROM compatstore_rows", binary=True).pgresult
        count = found.ntuples
        yield fetched(found, decoders)
    cursor.execute("CLOSE compatstore_rows")


def scanned(cursor: Cursor, table: TableShape, parts: Parts, target: str | None = None) -> Selected:
    """Columns of a scan.

    Raises:
        InvalidInput: A column of the metadata has the name of another of the scan.
        NotFound: A column or the target is not there.
    """
    operation, named = f"read {table.address}", table.address.parts
    vector = table.vector(parts.vector or named.vector)
    columns = keyed(cursor, table, table.id(parts.id or named.id), vector)
    if parts.source is not None:
        columns[SOURCE] = (compose("t.{name}::text", name=table.column(parts.source).name), decoder("text")[1])
    for name in parts.metadata:
        if name in columns or name in (SOURCE, IN_TARGET):
            found = "one of the scan's own"
            raise InvalidInput(operation, expected=f"metadata of another name than {name!r}", found=found)
        cast, decode = decoder(table.column(name).type_name)
        columns[name] = (compose(f"t.{{name}}::{cast}" if cast else "t.{name}", name=name), decode)
    if target is not None:
        goal = table.target(target)
        if goal is None:
            raise NotFound(operation, expected=f"a column of {target!r} that compatstore added", found="none")
        columns[IN_TARGET] = (compose("(t.{name} IS NOT NULL)", name=goal.column), decoder("bool")[1])
    return columns


def keyed(cursor: Cursor, table: TableShape, id_: Column, vector: Column) -> Selected:
    """Columns of ids and vectors."""
    decode_id = decoder("int8" if id_.type_name in INTEGERS else "text")[1]
    decode = decoder(vector.type_name, dim_of(cursor, table, vector))[1]
    return {ID: (key_expression(id_), decode_id), VECTOR: (compose("t.{name}", name=vector.name), decode)}


def dim_of(cursor: Cursor, table: TableShape, vector: Column) -> int:
    """Values of a vector: of the column's type, or of the first row; 0 if neither says."""
    if vector.dim:
        return vector.dim
    query = "SELECT vector_dims({vector}) FROM {table} WHERE {vector} IS NOT NULL LIMIT 1"
    found: int = (cursor.execute(compose(query, table, vector=vector.name)).fetchone() or (0,))[0]
    return found
