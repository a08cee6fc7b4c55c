"""Writing of target vectors: copied to a temporary table, and from there to the rows that are still as they were.

PostgreSQL changes a row by writing another. If that one has room in the same page and no index is over what changed,
no index takes it in again (a "HOT" update); else each index does, which for a graph over vectors takes a hundred
times longer than the rest. Pages are full as a rule, so that rows of one page are changed in several transactions:
each finds the room that the one before has left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, Id
from compatstore.errors import StorageError
from compatstore.stores.postgres_catalog import Column, Cursor, TableShape, Target
from compatstore.stores.postgres_rows import NO_SOURCE, copy_buffers, key, source_digests
from compatstore.stores.postgres_select import keyed, rows
from compatstore.stores.postgres_session import Session
from compatstore.stores.postgres_statements import among, compose, key_expression, key_type, literal, verbatim
from compatstore.stores.store import ID, KNOWN, MADE_FROM, VECTOR, digests, matrix

TRIES = 3  # of a transaction that the server chose as the victim of a deadlock
PASSES = 8  # transactions of a batch at most, where an index over vectors is to be spared

_CREATE = """
CREATE TEMPORARY TABLE compatstore_rows (id {id_type}, is_new bool, vector vector, made_from bytea) ON COMMIT DROP"""
# Rows are found by the index of ids: the server would read the whole table of the app for each batch.
_BY_INDEX = "SELECT set_config(name, 'off', true) FROM (VALUES ('enable_hashjoin'), ('enable_mergejoin')) AS v(name)"
# Digests of source vectors take half of the bytes, and a row of one vector is not stored in pieces by the server.
_FILL = """
UPDATE {table} AS t SET {target} = w.vector FROM pg_temp.compatstore_rows AS w
WHERE t.{id} = w.id AND coalesce(sha256({send}(t.{source})), {none}::bytea) = w.made_from
AND (t.{target} IS NULL) = w.is_new RETURNING {key}"""


def write(session: Session, operation: str, version: str, batch: ArrowTable) -> list[Id]:
    """Write target vectors, as of `Store.write`; each transaction again if it met a deadlock."""
    written: list[Id] = []
    for part in _passes(session, operation, version, batch):
        for attempt in range(1, TRIES + 1):
            try:
                with session.transaction(operation, writes=True) as cursor:
                    written += _write(cursor, session.table(cursor), operation, version, part)
                break
            except StorageError as error:
                if attempt == TRIES or not session.is_deadlock(error):
                    raise
    return written


def _passes(session: Session, operation: str, version: str, batch: ArrowTable) -> Iterator[ArrowTable]:
    """Parts of a batch: one, or with an index over the app's vectors several, each with a share of every page."""
    with session.transaction(operation) as cursor:
        table = session.table(cursor)
        goal, id_ = table.expected_target(operation, version), table.id(table.address.parts.id)
        if not table.indexes_of(goal.source):
            places = []
        else:
            query = "SELECT {key}, t.tableoid::int8, t.ctid::text FROM {table} AS t WHERE {chosen}"
            parts = {"key": key_expression(id_), "chosen": among(id_, batch[ID].to_pylist())}
            places = cursor.execute(compose(query, table, parts)).fetchall()
    pages: dict[tuple[int, str], list[Id]] = defaultdict(list)
    for one, relation, place in places:
        pages[relation, place.partition(",")[0]].append(one)
    count = min(max(map(len, pages.values()), default=1), PASSES)
    if count == 1:
        yield batch
        return
    turns = {one: turn % count for ids in pages.values() for turn, one in enumerate(ids)}
    turn_of = np.array([turns.get(one, 0) for one in batch[ID].to_pylist()])
    yield from (batch.filter(pa.array(turn_of == turn)) for turn in range(count) if (turn_of == turn).any())


def _write(cursor: Cursor, table: TableShape, operation: str, version: str, batch: ArrowTable) -> list[Id]:
    goal, id_ = table.expected_target(operation, version), table.id(table.address.parts.id)
    source = table.column(table.expected_source(operation, goal))
    ids, known = batch[ID].to_pylist(), batch[KNOWN].to_pylist()
    is_new = np.array([one is None for one in known], bool)
    present = _digests(cursor, table, goal, id_, batch.filter(pa.array(~is_new)))
    keys = [key(one, id_.type_name) for one in ids]
    chosen = [
        at for at, one in enumerate(keys) if one is not None and (is_new[at] or present.get(ids[at]) == known[at])
    ]
    if not chosen:
        return []
    batch = batch if len(chosen) == len(ids) else batch.take(chosen)
    data = copy_buffers(
        [one for at in chosen if (one := keys[at]) is not None],
        is_new[chosen],
        matrix(batch[VECTOR]),
        source_digests(batch[MADE_FROM].combine_chunks(), source.type_name == "halfvec"),
    )
    cursor.execute(_BY_INDEX)
    cursor.execute(compose(_CREATE, parts={"id_type": key_type(id_)}))
    with cursor.copy("COPY pg_temp.compatstore_rows FROM STDIN (FORMAT BINARY)") as copy:
        for part in data:
            copy.write(part)
    parts = {
        "key": key_expression(id_),
        "send": verbatim(f"{source.type_name}_send"),
        "none": literal(f"\\x{NO_SOURCE.hex()}"),
    }
    statement = compose(_FILL, table, parts, target=goal.column, source=source.name, id=id_.name)
    return [one for (one,) in cursor.execute(statement)]


def _digests(cursor: Cursor, table: TableShape, goal: Target, id_: Column, batch: ArrowTable) -> dict[Id, bytes | None]:
    """Digests of the target vectors of some rows, which are locked until the transaction ends."""
    if not len(batch):
        return {}
    chosen = compose("{among} FOR NO KEY UPDATE", parts={"among": among(id_, batch[ID].to_pylist())})
    found: dict[Id, bytes | None] = {}
    for some in rows(cursor, table, keyed(cursor, table, id_, table.column(goal.column)), chosen):
        found |= zip(some[ID].to_pylist(), digests(some[VECTOR]), strict=True)
    return found
