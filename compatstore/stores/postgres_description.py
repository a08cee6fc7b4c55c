"""Description of a table in PostgreSQL, with notes on what a user would not expect."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.stores.postgres_catalog import Column, Cursor, TableShape
from compatstore.stores.postgres_rows import INTEGERS, METADATA, VECTORS
from compatstore.stores.postgres_select import dim_of
from compatstore.stores.postgres_statements import compose
from compatstore.stores.postgres_tracking import PREFIX
from compatstore.stores.store import ID, IN_TARGET, SOURCE, VECTOR, Description, Parts
from compatstore.versions import Metric

_SCANNED = (ID, VECTOR, SOURCE, IN_TARGET)  # columns of a scan, whose names metadata cannot have
_LARGEST = 100  # megabytes of rewritten rows that a note is made of

_TRIGGERS = """
SELECT tgname FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal AND tgenabled <> 'D'
AND tgtype::int & 16 <> 0 AND tgattr::text = '' AND NOT starts_with(tgname::text, %s) ORDER BY 1"""
_VIEWS = """
SELECT DISTINCT r.ev_class::regclass::text FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
WHERE d.classid = 'pg_rewrite'::regclass AND d.refobjid = %s AND d.refobjsubid = %s ORDER BY 1"""
_BYTES = """
SELECT coalesce((SELECT sum(pg_relation_size(relid)) FROM pg_partition_tree(%(table)s)), pg_relation_size(%(table)s))"""


def describe(cursor: Cursor, table: TableShape) -> Description:
    """Describe a table.

    Raises:
        InvalidInput: It has no ids of one column, or several vectors and none is named.
    """
    named = table.address.parts
    id_, vector = table.id(named.id), table.vector(named.vector)
    rows = cursor.execute(compose("SELECT count(*) FROM {table}", table)).fetchone()[0]
    metadata, left_out = _metadata(table, id_)
    metric, note = _metric(table, vector)
    notes = [
        *([note] if note else []),
        *(f"Column {name!r} is not copied: {why}." for name, why in left_out.items()),
        *_notes_of_writes(cursor, table, vector),
        *_notes_of_switch(cursor, table, vector),
    ]
    return Description(
        address=str(table.address),
        parts=Parts(id_.name, vector.name, metadata=metadata),
        id_type="int64" if id_.type_name in INTEGERS else "string",
        dim=dim_of(cursor, table, vector),
        metric=metric,
        rows=rows,
        columns={one.name: one.declared for one in table.columns.values()},
        beside="column",
        switch="rename",
        is_atomic=True,
        is_conditional=True,
        notes=tuple(notes),
        tracking=f"two triggers of {table.schema}.{table.name}, a function and a table {PREFIX}..., in that schema",
    )


def _metadata(table: TableShape, id_: Column) -> tuple[tuple[str, ...], dict[str, str]]:
    """Columns to copy, and why others are not."""
    copied, left_out = [], {}
    ours = {name for target in table.targets for name in (target.column, target.source)}
    for column in table.columns.values():
        if column.type_name in VECTORS or column.name == id_.name or column.name in ours:
            continue
        if column.type_name not in METADATA:
            left_out[column.name] = f"its type is {column.declared}"
        elif column.name in _SCANNED:
            left_out[column.name] = "a mirror has another column of that name"
        else:
            copied.append(column.name)
    return tuple(copied), left_out


def _metric(table: TableShape, vector: Column) -> tuple[Metric, str]:
    """Metric of the indexes over the vectors, and a note if that is no clear one."""
    indexes = table.indexes_of(vector.name)
    found = list(dict.fromkeys(one.metric for one in indexes if one.metric is not None))
    if len(found) > 1:
        return found[0], f"Indexes of {' and '.join(found)} are there: {found[0]} is taken, of {indexes[0].name!r}."
    if found:
        return found[0], ""
    return "cosine", f"No index over {vector.name!r} says which distance the app uses: cosine is taken."


def _notes_of_writes(cursor: Cursor, table: TableShape, vector: Column) -> Iterator[str]:
    megabytes = int(cursor.execute(_BYTES, {"table": table.number}).fetchone()[0]) >> 20
    if megabytes >= _LARGEST:
        yield (
            f"PostgreSQL changes a row by writing another: filling the target writes about {megabytes} MB of rows, "
            "besides the new vectors, and leaves as much to autovacuum."
        )
    if names := [one.name for one in table.indexes_of(vector.name)]:
        yield (
            f"A row that is written is entered again into {', '.join(map(repr, names))} unless its page has room: a "
            "push takes turns among the rows of a page, and takes several times as long as without that index."
        )
    if names := [name for (name,) in cursor.execute(_TRIGGERS, (table.number, PREFIX))]:
        yield f"Triggers of the table run for each row that is written: {', '.join(map(repr, names))}."


def _notes_of_switch(cursor: Cursor, table: TableShape, vector: Column) -> Iterator[str]:
    if names := [name for (name,) in cursor.execute(_VIEWS, (table.number, vector.number))]:
        yield f"Views go on with the app's own vectors after a switch: {', '.join(names)}. Make them again then."
    if vector.is_required:
        yield f"{vector.name!r} is NOT NULL: a switch takes that off, for rows that the app adds after it."
