"""PostgreSQL with pgvector: target vectors are a column of the same rows, a switch renames two columns.

| file | content |
|---|---|
| `postgres_session.py` | connections, transactions, errors |
| `postgres_catalog.py` | the table as the catalog describes it, and which of its columns are targets |
| `postgres_description.py` | the description of a table, and its notes |
| `postgres_select.py`, `postgres_write.py` | rows as Arrow; target vectors that go into rows |
| `postgres_rows.py` | the binary format of rows |
| `postgres_statements.py` | statements with quoted names |
| `postgres_tracking.py` | the change capture |
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.errors import AlreadyExists, CompatStoreWarning, InvalidInput, UpgradeError
from compatstore.stores import postgres_description, postgres_write
from compatstore.stores import postgres_select as select
from compatstore.stores.address import Address
from compatstore.stores.postgres_catalog import LONGEST_INDEXED, LONGEST_NAME, Cursor, TableShape, Target
from compatstore.stores.postgres_rows import INTEGERS
from compatstore.stores.postgres_session import DDL_WAIT, Session
from compatstore.stores.postgres_statements import among, compose, joined, literal, verbatim
from compatstore.stores.postgres_tracking import PostgresCapture
from compatstore.stores.store import Description, Parts
from compatstore.versions import Metric

LONGEST = 16_000  # values of a vector
OPERATORS: dict[Metric, str] = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
NOTHING_NAMED = Parts()
EF_SEARCH = (40, 1_000)  # candidates of an HNSW search: the default, and the most

_SEARCH = """
SELECT {id}::{id_type}, {expression} {operator} %(query)s::{kind} FROM {table} WHERE {column} IS NOT NULL AND ({where}
) ORDER BY {expression} {operator} %(query)s::{kind} LIMIT %(k)s"""
# Filtered searches go on until there are k rows, from pgvector 0.8.
_SEARCH_SETTINGS = """
SELECT set_config('hnsw.ef_search', %s, true), set_config(name, 'relaxed_order', true)
FROM (VALUES ('hnsw.iterative_scan'), ('ivfflat.iterative_scan')) AS v(name) WHERE current_setting(name, true) <> ''"""


class Postgres:
    """A table of PostgreSQL.

    Args:
        address: Of the table; its `parts` name the columns where the table has several that could be meant.
    """

    scheme: ClassVar[str] = "postgresql"

    def __init__(self, address: Address) -> None:
        self._session = Session(address)

    def describe(self, wanted: Parts = NOTHING_NAMED) -> Description:
        """Describe the table; see `Store`."""
        if wanted != NOTHING_NAMED:
            self._session.address = replace(self._address, parts=wanted)
        with self._session.transaction(f"describe {self._address}") as cursor:
            return postgres_description.describe(cursor, self._session.table(cursor))

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream all rows, of one moment."""
        with self._session.transaction(f"read {self._address}", alone=True) as cursor:
            table = self._session.table(cursor)
            yield from select.rows(cursor, table, select.scanned(cursor, table, parts, target))

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some rows."""
        with self._session.transaction(f"read {self._address}") as cursor:
            table = self._session.table(cursor)
            chosen = among(table.id(parts.id or self._address.parts.id), ids)
            tables = list(select.rows(cursor, table, select.scanned(cursor, table, parts), chosen))
        return pa.concat_tables(tables)

    def has(self, target: str) -> bool:
        """True if a column of the target's name is there, or, after a switch, the target."""
        with self._session.transaction(f"read {self._address}") as cursor:
            table = self._session.table(cursor)
            if table.target(target) is not None:
                return True
            return f"{table.vector(self._address.parts.vector).name}_{target}" in table.columns

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Add the column of a target, without rewriting the table; a no-op if it is there."""
        operation = f"add {target!r} to {self._address}"
        if not 0 < dim <= LONGEST:
            raise InvalidInput(operation, expected=f"at most {LONGEST:,} values a vector", found=str(dim))
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                if (goal := table.target(target)) is not None:
                    found = table.column(goal.column).dim
                    if found != dim:
                        raise InvalidInput(operation, expected=f"{dim} values a vector", found=f"a column of {found}")
                    return
            vector = table.vector(self._address.parts.vector).name
            goal = Target(target, vector, f"{vector}_{target}", metric)
            _check_names(operation, table, goal)
            statement = f"ALTER TABLE {{table}} ADD COLUMN {{target}} vector({dim:d})"
            cursor.execute(compose(statement, table, target=goal.beside))
            self._comment(cursor, table, goal)
            index = table.index_statement(goal, dim)
        if dim > LONGEST_INDEXED:
            message = f"pgvector indexes up to {LONGEST_INDEXED} values of a vector, and 4,000 as halfvec: {index}"
            warnings.warn(message, CompatStoreWarning, stacklevel=2)

    def write(self, target: str, rows: ArrowTable) -> Sequence[Id]:
        """Write target vectors, each where the row still has the source and the target given."""
        operation = f"write {target!r} to {self._address}"
        return postgres_write.write(self._session, operation, target, rows)

    def read_target(self, target: str, ids: Sequence[Id] | None = None) -> Iterator[ArrowTable]:
        """Stream target vectors, of one moment."""
        operation = f"read {target!r} of {self._address}"
        with self._session.transaction(operation, alone=ids is None) as cursor:
            table = self._session.table(cursor)
            goal, id_ = table.expected_target(operation, target), table.id(self._address.parts.id)
            columns = select.keyed(cursor, table, id_, table.column(goal.column))
            chosen = compose("t.{target} IS NOT NULL", target=goal.column)
            if ids is None:
                yield from select.rows(cursor, table, columns, chosen)
            else:
                # Other calls on this connection come between two tables.
                tables = list(select.rows(cursor, table, columns, joined(" AND ", [chosen, among(id_, ids)])))
        if ids is not None:
            yield from tables

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Set target vectors to NULL."""
        operation = f"remove {target!r} from {self._address}"
        with self._session.transaction(operation, writes=True) as cursor:
            table = self._session.table(cursor)
            goal = table.expected_target(operation, target)
            parts = {"chosen": among(table.id(self._address.parts.id), ids)}
            statement = "UPDATE {table} AS t SET {target} = NULL WHERE t.{target} IS NOT NULL AND {chosen}"
            cursor.execute(compose(statement, table, parts, target=goal.column))

    def switch(self, target: str) -> None:
        """Rename the app's column to that of `Target.before` and the target's to the app's, in one transaction."""
        operation = f"switch {self._address} to {target!r}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                goal = table.expected_target(operation, target)
                if goal.is_switched:
                    return
            source = table.column(goal.vector)
            self._rename(cursor, table, goal.vector, goal.before)
            self._rename(cursor, table, goal.column, goal.vector)
            required = source.is_required or goal.was_required
            if source.is_required:
                # Rows that the app adds from now on have no vector of the source.
                statement = "ALTER TABLE {table} ALTER COLUMN {source} DROP NOT NULL"
                cursor.execute(compose(statement, table, source=goal.before))
            self._comment(cursor, table, replace(goal, column=goal.vector, was_required=required))
        if table.indexes_of(goal.vector) and not table.indexes_of(goal.column):
            index = table.index_statement(goal, table.column(goal.column).dim)
            message = "the app's vectors had an index and the target has none: searches read the whole table until"
            warnings.warn(f"{message} {index}", CompatStoreWarning, stacklevel=2)

    def switch_back(self, target: str) -> None:
        """Undo `switch`."""
        operation = f"switch {self._address} back from {target!r}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                goal = table.expected_target(operation, target)
                if not goal.is_switched:
                    return
            table.expected_source(operation, goal)
            self._rename(cursor, table, goal.vector, goal.beside)
            self._rename(cursor, table, goal.before, goal.vector)
            restored = False
            query = "SELECT EXISTS (SELECT FROM {table} WHERE {source} IS NULL)"
            if goal.was_required and not cursor.execute(compose(query, table, source=goal.vector)).fetchone()[0]:
                statement = "ALTER TABLE {table} ALTER COLUMN {source} SET NOT NULL"
                cursor.execute(compose(statement, table, source=goal.vector))
                restored = True
            required = goal.was_required and not restored
            self._comment(cursor, table, replace(goal, column=goal.beside, was_required=required))

    def is_switched(self, target: str) -> bool:
        """True if the target has the app's name."""
        with self._session.transaction(f"read {self._address}") as cursor:
            goal = self._session.table(cursor).target(target)
            return goal is not None and goal.is_switched

    def app_change(self, target: str) -> str:
        """The line that an app changes which is not switched."""
        with self._session.transaction(f"read {self._address}") as cursor:
            table = self._session.table(cursor)
            goal = table.expected_target(f"read {self._address}", target)
        return f"Read the column {goal.beside!r} in place of {goal.vector!r}."

    def place(self, target: str) -> tuple[str, Parts]:
        """The same table and columns: a switch renames; see `VectorStore.place`."""
        found = self.describe().parts
        return str(self._address), replace(self._address.parts, id=found.id, vector=found.vector)

    def before(self, target: str) -> str | None:
        """The app's own column after a switch; see `VectorStore.before`."""
        operation = f"read {self._address}"
        with self._session.transaction(operation) as cursor:
            return TableShape.read(cursor, self._address).expected_target(operation, target).before

    def drop(self, target: str) -> None:
        """Drop the column of a target."""
        operation = f"drop {target!r} from {self._address}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                if table.target(target) is None:
                    return
            goal = table.expected_target(operation, target)
            if goal.is_switched:
                fix = "Switch back first."
                raise UpgradeError(operation, expected="the app to read its own vectors", found="a switch", fix=fix)
            cursor.execute(compose("ALTER TABLE {table} DROP COLUMN {target}", table, target=goal.column))

    def drop_source(self, target: str) -> None:
        """Drop the app's own column: the target's is the app's then, and has no comment that says otherwise."""
        operation = f"drop the vectors before {target!r} from {self._address}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                if table.target(target) is None:
                    return
            goal = table.expected_target(operation, target)
            if not goal.is_switched:
                raise UpgradeError(operation, expected="a switch before it", found="none", fix="Switch first.")
            cursor.execute(compose("ALTER TABLE {table} DROP COLUMN IF EXISTS {source}", table, source=goal.before))
            cursor.execute(compose("COMMENT ON COLUMN {table}.{target} IS NULL", table, target=goal.column))

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest rows by the table's index.

        The condition is SQL of the user's own. It runs in a READ ONLY transaction, in a prepared statement, which is
        one statement whatever the text holds, with the rights of this connection: it can read what the user can, and
        write nothing. It is not for text of another person.
        """
        operation = f"search {self._address}"
        with self._session.transaction(operation) as cursor:
            table = self._session.table(cursor)
            goal = None if target is None else table.expected_target(operation, target)
            column = table.column(goal.column) if goal else table.vector(self._address.parts.vector)
            id_ = table.id(self._address.parts.id)
            index = next((one for one in table.indexes_of(column.name) if one.metric is not None), None)
            metric = index.metric if index and index.metric else goal.metric if goal else "cosine"
            kind = index.operators.partition("_")[0] if index else column.type_name
            quoted = compose("{column}", takes_values=True, column=column.name)
            parts = {
                "expression": verbatim(index.expression, takes_values=True) if index else quoted,
                "operator": verbatim(OPERATORS[metric]),
                "kind": verbatim(kind),
                "id_type": verbatim("int8" if id_.type_name in INTEGERS else "text"),
                "where": verbatim(where or "true", takes_values=True),
            }
            names = {"id": id_.name, "column": column.name}
            statement = compose(_SEARCH, table, parts, takes_values=True, **names)
            candidates, most = EF_SEARCH
            cursor.execute("SELECT '[0]'::vector")  # loads pgvector, and so its settings
            cursor.execute(_SEARCH_SETTINGS, [str(min(max(k, candidates), most))])
            values = {"query": f"[{','.join(map(str, query.tolist()))}]", "k": k}
            found = cursor.execute(statement, values).fetchall()
        found.sort(key=lambda row: row[1])
        return [one for one, _ in found], np.array([distance for _, distance in found], np.float32)

    def index_statement(self, target: str) -> str:
        """The statement that makes an index over a target like the app's, to be run after the vectors are written."""
        with self._session.transaction(f"read {self._address}") as cursor:
            table = self._session.table(cursor)
            goal = table.expected_target(f"read {self._address}", target)
            return table.index_statement(goal, table.column(goal.column).dim)

    def capture(self, name: str) -> PostgresCapture:
        """The change capture of a name; see `CapturingStore`."""
        return PostgresCapture(self._session, name)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    @property
    def _address(self) -> Address:
        return self._session.address

    def _unlocked_and_locked(self, cursor: Cursor) -> Iterator[TableShape]:
        """The table before its lock is taken, for work that is done already, and with the lock."""
        table = self._session.table(cursor)
        yield table
        cursor.execute(compose("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", table))
        yield self._session.table(cursor)

    def _rename(self, cursor: Cursor, table: TableShape, before: str, after: str) -> None:
        statement = "ALTER TABLE {table} RENAME COLUMN {before} TO {after}"
        cursor.execute(compose(statement, table, before=before, after=after))

    def _comment(self, cursor: Cursor, table: TableShape, goal: Target) -> None:
        parts = {"text": literal(goal.comment)}
        cursor.execute(compose("COMMENT ON COLUMN {table}.{target} IS {text}", table, parts, target=goal.column))


def _check_names(operation: str, table: TableShape, goal: Target) -> None:
    if max(len(goal.beside.encode()), len(goal.before.encode())) > LONGEST_NAME:
        fix = "Give the version a shorter name."
        raise InvalidInput(
            operation, expected=f"column names of {LONGEST_NAME} bytes at most", found=repr(goal.before), fix=fix
        )
    for name in (goal.beside, goal.before):
        if name in table.columns:
            fix = "Rename it, or give the version another name."
            raise AlreadyExists(operation, expected=f"no column {name!r}", found="one of the app's", fix=fix)
