"""PostgreSQL with pgvector: target vectors are a column of the same rows, a switch renames two columns.

| file | content |
|---|---|
| `postgres_session.py` | connections, transactions, errors |
| `postgres_catalog.py` | the table as the catalog describes it, and which of its columns are targets |
| `postgres_description.py` | the description of a table, and its notes |
| `postgres_rows.py` | binary rows and Arrow |
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.errors import AlreadyExists, CompatStoreWarning, InvalidInput, NotFound, UpgradeError, load_extra
from compatstore.stores import postgres_description, postgres_rows
from compatstore.stores.address import Address
from compatstore.stores.postgres_catalog import LONGEST_NAME, METRICS, Column, TableShape, Target
from compatstore.stores.postgres_rows import INTEGERS
from compatstore.stores.postgres_session import DDL_WAIT, TRIES, Session
from compatstore.stores.store import (
    ID,
    IN_TARGET,
    KNOWN,
    MADE_FROM,
    SOURCE,
    VECTOR,
    Description,
    Parts,
    digests,
    matrix,
)
from compatstore.versions import Metric

LONGEST, LONGEST_INDEXED = 16_000, 2_000  # dimensions of a vector, and of one that an index takes
OPERATORS: dict[Metric, str] = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
EF_SEARCH = (40, 1_000)  # candidates of an HNSW search: the default, and the most

_FILL = """
UPDATE {table} AS t SET {target} = w.vector FROM pg_temp.compatstore_rows AS w
WHERE t.{id} = w.id AND t.{source} IS NOT DISTINCT FROM w.made_from AND (t.{target} IS NULL) = w.is_new
RETURNING {key}"""

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
        self._address = address
        self._session = Session(address)
        self._sql = load_extra("psycopg.sql", "postgres")

    def describe(self, wanted: Parts = Parts()) -> Description:
        """Describe the table; see `Store`."""
        if wanted != Parts():
            self._address = replace(self._address, parts=wanted)
        with self._session.transaction(f"describe {self._address}") as cursor:
            return postgres_description.describe(cursor, TableShape.read(cursor, self._address))

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream all rows, of one moment."""
        with self._session.transaction(f"read {self._address}", alone=True) as cursor:
            table = TableShape.read(cursor, self._address)
            yield from self._rows(cursor, table, self._columns(cursor, table, parts, target))

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some rows."""
        with self._session.transaction(f"read {self._address}") as cursor:
            table = TableShape.read(cursor, self._address)
            columns = self._columns(cursor, table, parts, None)
            tables = list(self._rows(cursor, table, columns, self._among(table.id(parts.id), ids)))
        return pa.concat_tables(tables)

    def has(self, target: str) -> bool:
        """True if a column of the target's name is there, or, after a switch, the target."""
        with self._session.transaction(f"read {self._address}") as cursor:
            table = TableShape.read(cursor, self._address)
            if table.target(target) is not None:
                return True
            return f"{table.vector(self._address.parts.vector).name}_{target}" in table.columns

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Add the column of a target, without rewriting the table; a no-op if it is there."""
        operation = f"add {target!r} to {self._address}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                if (goal := table.target(target)) is not None:
                    found = table.column(goal.column).dim
                    if found != dim:
                        raise InvalidInput(operation, expected=f"{dim} values a vector", found=f"a column of {found}")
                    return
            vector = table.vector(self._address.parts.vector).name
            goal = Target(target, vector, f"{vector}_{target}", metric)
            self._check_names(operation, table, goal)
            names = self._names(table, target=goal.beside)
            kind = self._sql.SQL(f"vector({dim:d})")
            self._execute(cursor, "ALTER TABLE {table} ADD COLUMN {target} {kind}", names, kind=kind)
            self._comment(cursor, table, goal)
            index = self._index_statement(table, goal, dim)
        if dim > LONGEST_INDEXED:
            message = f"pgvector indexes up to {LONGEST_INDEXED} values of a vector, and 4,000 as halfvec: {index}"
            warnings.warn(message, CompatStoreWarning, stacklevel=2)

    def write(self, target: str, rows: ArrowTable) -> Sequence[Id]:
        """Write target vectors in one transaction, each where the row still has the source and target given."""
        operation = f"write {target!r} to {self._address}"
        for last in (False,) * (TRIES - 1) + (True,):
            try:
                with self._session.transaction(operation, writes=True) as cursor:
                    return self._write(cursor, operation, target, rows)
            except OSError as error:
                if last or not self._session.is_deadlock(error):
                    raise
        raise AssertionError("the last try returns or raises")

    def read_target(self, target: str, ids: Sequence[Id] | None = None) -> Iterator[ArrowTable]:
        """Stream target vectors, of one moment."""
        operation = f"read {target!r} of {self._address}"
        with self._session.transaction(operation, alone=ids is None) as cursor:
            table = TableShape.read(cursor, self._address)
            goal, id_ = self._target(operation, table, target), table.id(self._address.parts.id)
            columns = {ID: self._id(id_), VECTOR: self._vector(cursor, table, table.column(goal.column))}
            present = self._format("t.{target} IS NOT NULL", self._names(table, target=goal.column))
            chosen = present if ids is None else self._sql.SQL(" AND ").join([present, self._among(id_, ids)])
            tables = self._rows(cursor, table, columns, chosen)
            # Between two batches of the shared connection other calls may come.
            yield from tables if ids is None else list(tables)

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Set target vectors to NULL."""
        operation = f"remove {target!r} from {self._address}"
        with self._session.transaction(operation, writes=True) as cursor:
            table = TableShape.read(cursor, self._address)
            goal = self._target(operation, table, target)
            names = self._names(table, target=goal.column)
            statement = "UPDATE {table} AS t SET {target} = NULL WHERE t.{target} IS NOT NULL AND {chosen}"
            self._execute(cursor, statement, names, chosen=self._among(table.id(self._address.parts.id), ids))

    def switch(self, target: str) -> None:
        """Rename the app's column to that of `Target.before` and the target's to the app's, in one transaction."""
        operation = f"switch {self._address} to {target!r}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                goal = self._target(operation, table, target)
                if goal.is_switched:
                    return
            source = table.column(goal.vector)
            self._rename(cursor, table, goal.vector, goal.before)
            self._rename(cursor, table, goal.column, goal.vector)
            if source.is_required:
                # Rows that the app adds from now on have no vector of the source.
                names = self._names(table, source=goal.before)
                self._execute(cursor, "ALTER TABLE {table} ALTER COLUMN {source} DROP NOT NULL", names)
            self._comment(cursor, table, replace(goal, column=goal.vector, was_required=source.is_required))
        if table.indexes_of(goal.vector) and not table.indexes_of(goal.column):
            index = self._index_statement(table, goal, table.column(goal.column).dim)
            message = "the app's vectors had an index and the target has none: searches read the whole table until"
            warnings.warn(f"{message} {index}", CompatStoreWarning, stacklevel=2)

    def switch_back(self, target: str) -> None:
        """Undo `switch`."""
        operation = f"switch {self._address} back from {target!r}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                goal = self._target(operation, table, target)
                if not goal.is_switched:
                    return
            self._source(operation, table, goal)
            self._rename(cursor, table, goal.vector, goal.beside)
            self._rename(cursor, table, goal.before, goal.vector)
            self._comment(cursor, table, replace(goal, column=goal.beside, was_required=False))
            names = self._names(table, source=goal.vector)
            query = "SELECT EXISTS (SELECT FROM {table} WHERE {source} IS NULL)"
            if goal.was_required and not self._execute(cursor, query, names).fetchone()[0]:
                self._execute(cursor, "ALTER TABLE {table} ALTER COLUMN {source} SET NOT NULL", names)

    def is_switched(self, target: str) -> bool:
        """True if the target has the app's name."""
        with self._session.transaction(f"read {self._address}") as cursor:
            goal = TableShape.read(cursor, self._address).target(target)
            return goal is not None and goal.is_switched

    def app_change(self, target: str) -> str:
        """The line that an app changes which is not switched."""
        with self._session.transaction(f"read {self._address}") as cursor:
            table = TableShape.read(cursor, self._address)
            goal = self._target(f"read {self._address}", table, target)
        return f"Read the column {goal.beside!r} in place of {goal.vector!r}."

    def place(self, target: str) -> tuple[str, Parts]:
        """The same table and columns: a switch renames; see `VectorStore.place`."""
        found = self.describe().parts
        return str(self._address), replace(self._address.parts, id=found.id, vector=found.vector)

    def drop(self, target: str) -> None:
        """Drop the column of a target."""
        operation = f"drop {target!r} from {self._address}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                if table.target(target) is None:
                    return
            goal = self._target(operation, table, target)
            if goal.is_switched:
                fix = "Switch back first."
                raise UpgradeError(operation, expected="the app to read its own vectors", found="a switch", fix=fix)
            self._execute(cursor, "ALTER TABLE {table} DROP COLUMN {target}", self._names(table, target=goal.column))

    def drop_source(self, target: str) -> None:
        """Drop the app's own column."""
        operation = f"drop the vectors before {target!r} from {self._address}"
        with self._session.transaction(operation, writes=True, wait=DDL_WAIT) as cursor:
            for table in self._unlocked_and_locked(cursor):
                goal = self._target(operation, table, target)
                if goal.is_switched and goal.before not in table.columns:
                    return
            if not goal.is_switched:
                raise UpgradeError(operation, expected="a switch before it", found="none", fix="Switch first.")
            self._execute(cursor, "ALTER TABLE {table} DROP COLUMN {source}", self._names(table, source=goal.before))

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
            table = TableShape.read(cursor, self._address)
            goal = None if target is None else self._target(operation, table, target)
            column = table.column(goal.column) if goal else table.vector(self._address.parts.vector)
            index = next((one for one in table.indexes_of(column.name) if one.metric is not None), None)
            metric = index.metric if index and index.metric else goal.metric if goal else "cosine"
            kind = index.operators.partition("_")[0] if index else column.type_name
            expression = self._sql.SQL(_doubled(index.expression)) if index else self._name(column.name)
            candidates, most = EF_SEARCH
            cursor.execute("SELECT '[0]'::vector")  # loads pgvector, and so its settings
            cursor.execute(_SEARCH_SETTINGS, [str(min(max(k, candidates), most))])
            statement = (
                "SELECT {key}, {expression} {operator} %(query)s::{kind} FROM {table} WHERE {column} IS NOT NULL AND "
                "({where}\n) ORDER BY {expression} {operator} %(query)s::{kind} LIMIT %(k)s"
            )
            names = self._names(table, column=column.name)
            names |= {"key": self._key(table.id(self._address.parts.id), ""), "expression": expression}
            names |= {name: self._sql.SQL(text) for name, text in (("operator", OPERATORS[metric]), ("kind", kind))}
            names |= {"where": self._sql.SQL(_doubled(where or "true"))}
            values = {"query": f"[{','.join(map(str, query.tolist()))}]", "k": k}
            found = cursor.execute(self._format(statement, names), values).fetchall()
        found.sort(key=lambda row: row[1])
        return [one for one, _ in found], np.array([distance for _, distance in found], np.float32)

    def index_statement(self, target: str) -> str:
        """The statement that makes an index over a target like the app's, to be run after the vectors are written."""
        with self._session.transaction(f"read {self._address}") as cursor:
            table = TableShape.read(cursor, self._address)
            goal = self._target(f"read {self._address}", table, target)
            return self._index_statement(table, goal, table.column(goal.column).dim)

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _unlocked_and_locked(self, cursor: Any) -> Iterator[TableShape]:
        """The table before its lock is taken, for work that is done already, and with the lock."""
        table = TableShape.read(cursor, self._address)
        yield table
        self._execute(cursor, "LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", self._names(table))
        yield TableShape.read(cursor, self._address)

    def _check_names(self, operation: str, table: TableShape, goal: Target) -> None:
        if max(len(goal.beside.encode()), len(goal.before.encode())) > LONGEST_NAME:
            fix = "Give the version a shorter name."
            raise InvalidInput(
                operation, expected=f"column names of {LONGEST_NAME} bytes at most", found=repr(goal.before), fix=fix
            )
        for name in (goal.beside, goal.before):
            if name in table.columns:
                fix = "Rename it, or give the version another name."
                raise AlreadyExists(operation, expected=f"no column {name!r}", found="one of the app's", fix=fix)

    def _write(self, cursor: Any, operation: str, target: str, rows: ArrowTable) -> Sequence[Id]:
        table = TableShape.read(cursor, self._address)
        goal, id_ = self._target(operation, table, target), table.id(self._address.parts.id)
        source = table.column(self._source(operation, table, goal))
        keys = [postgres_rows.key(one, id_.type_name) for one in rows[ID].to_pylist()]
        known = rows[KNOWN].to_pylist()
        present = self._digests(cursor, table, goal, id_, rows.filter(pa.array([one is not None for one in known])))
        chosen = [
            at
            for at, (key, one, id_value) in enumerate(zip(keys, known, rows[ID].to_pylist(), strict=True))
            if key is not None and (one is None or present.get(id_value) == one)
        ]
        if not chosen:
            return []
        rows = rows.take(chosen)
        is_new = np.array([known[at] is None for at in chosen])
        made_from = rows[MADE_FROM].combine_chunks()
        data = postgres_rows.copy_buffer(
            [key for at in chosen if (key := keys[at]) is not None],
            is_new,
            matrix(rows[VECTOR]),
            made_from,
            source.type_name == "halfvec",
        )
        kinds = {name: self._sql.SQL(kind) for name, kind in (("id", self._sent(id_)), ("kind", source.type_name))}
        create = (
            "CREATE TEMPORARY TABLE compatstore_rows (id {id}, is_new bool, vector vector, made_from {kind}) "
            "ON COMMIT DROP"
        )
        cursor.execute(self._format(create, kinds))
        with cursor.copy("COPY pg_temp.compatstore_rows FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(data)
        names = self._names(table, target=goal.column, source=source.name, id=id_.name)
        return [one for (one,) in self._execute(cursor, _FILL, names, key=self._key(id_))]

    def _digests(
        self, cursor: Any, table: TableShape, goal: Target, id_: Column, rows: ArrowTable
    ) -> dict[Id, bytes | None]:
        """Digests of the target vectors of some rows, which are locked until the transaction ends."""
        if not len(rows):
            return {}
        columns = {ID: self._id(id_), VECTOR: self._vector(cursor, table, table.column(goal.column))}
        chosen = self._sql.SQL("{} FOR NO KEY UPDATE").format(self._among(id_, rows[ID].to_pylist()))
        found: dict[Id, bytes | None] = {}
        for batch in self._rows(cursor, table, columns, chosen):
            found |= zip(batch[ID].to_pylist(), digests(batch[VECTOR]), strict=True)
        return found

    def _columns(
        self, cursor: Any, table: TableShape, parts: Parts, target: str | None
    ) -> dict[str, tuple[Any, Callable[[postgres_rows.Values], Any]]]:
        """Columns of a scan: name -> expression in SQL, function to Arrow."""
        id_, vector = (
            table.id(parts.id or self._address.parts.id),
            table.vector(parts.vector or self._address.parts.vector),
        )
        columns = {ID: self._id(id_), VECTOR: self._vector(cursor, table, vector)}
        if parts.source is not None:
            source = self._format("t.{name}::text", {"name": self._name(table.column(parts.source).name)})
            columns[SOURCE] = (source, postgres_rows.decoder("text")[1])
        for name in parts.metadata:
            if name in columns or name == IN_TARGET:
                raise InvalidInput(
                    f"read {self._address}", expected=f"metadata of other names than {name!r}", found="a column of that"
                )
            cast, decode = postgres_rows.decoder(table.column(name).type_name)
            expression = "t.{name}::{cast}" if cast else "t.{name}"
            columns[name] = (
                self._format(expression, {"name": self._name(name), "cast": self._sql.SQL(cast)}),
                decode,
            )
        if target is not None:
            goal = self._target(f"read {self._address}", table, target)
            there = self._format("(t.{name} IS NOT NULL)", {"name": self._name(goal.column)})
            columns[IN_TARGET] = (there, postgres_rows.decoder("bool")[1])
        return columns

    def _id(self, id_: Column) -> tuple[Any, Callable[[postgres_rows.Values], Any]]:
        return self._key(id_), postgres_rows.decoder("int8" if id_.type_name in INTEGERS else "text")[1]

    def _vector(
        self, cursor: Any, table: TableShape, column: Column
    ) -> tuple[Any, Callable[[postgres_rows.Values], Any]]:
        dim = postgres_description.dim(cursor, table, column)
        return self._format("t.{name}", {"name": self._name(column.name)}), postgres_rows.decoder(
            column.type_name, dim
        )[1]

    def _rows(
        self, cursor: Any, table: TableShape, columns: dict[str, Any], chosen: Any = None
    ) -> Iterator[ArrowTable]:
        """Tables of rows; one without rows if there are none."""
        names = self._names(table)
        names["columns"] = self._sql.SQL(", ").join([expression for expression, _ in columns.values()])
        names["chosen"] = chosen or self._sql.SQL("true")
        query = "COPY (SELECT {columns} FROM {table} AS t WHERE {chosen}) TO STDOUT (FORMAT BINARY)"
        decoders = {name: decode for name, (_, decode) in columns.items()}
        with cursor.copy(self._format(query, names)) as copy:
            yield from postgres_rows.batches(copy.rows(), decoders)

    def _target(self, operation: str, table: TableShape, version: str) -> Target:
        goal = table.target(version)
        if goal is None:
            raise NotFound(operation, expected=f"a column of {version!r} that compatstore added", found="none")
        return goal

    def _source(self, operation: str, table: TableShape, goal: Target) -> str:
        """Name of the app's own column."""
        if goal.source not in table.columns:
            found = f"no column {goal.source!r}"
            fix = "They were dropped: what the app reads now is the target alone."
            raise UpgradeError(operation, expected="the vectors before the switch", found=found, fix=fix)
        return goal.source

    def _rename(self, cursor: Any, table: TableShape, before: str, after: str) -> None:
        names = self._names(table, before=before, after=after)
        self._execute(cursor, "ALTER TABLE {table} RENAME COLUMN {before} TO {after}", names)

    def _comment(self, cursor: Any, table: TableShape, goal: Target) -> None:
        names = self._names(table, target=goal.column)
        self._execute(
            cursor, "COMMENT ON COLUMN {table}.{target} IS {text}", names, text=self._sql.Literal(goal.comment)
        )

    def _index_statement(self, table: TableShape, goal: Target, dim: int) -> str:
        method = next((one.method for one in table.indexes_of(goal.source)), "hnsw")
        classes: dict[str, str] = {metric: name for name, metric in METRICS.items()}
        name, place = f'"{goal.column}"', f'"{table.schema}"."{table.name}"'
        kind = "vector" if dim <= LONGEST_INDEXED else "halfvec"
        expression = name if kind == "vector" else f"({name}::halfvec({dim}))"
        return f"CREATE INDEX CONCURRENTLY ON {place} USING {method} ({expression} {kind}_{classes[goal.metric]}_ops)"

    def _key(self, id_: Column, alias: str = "t.") -> Any:
        """Ids as they come to Arrow: int8 or text."""
        kind = "int8" if id_.type_name in INTEGERS else "text"
        return self._sql.SQL(f"{alias}{{}}::{kind}").format(self._name(id_.name))

    def _sent(self, id_: Column) -> str:
        """Type of ids that are sent."""
        return "int8" if id_.type_name in INTEGERS else "uuid" if id_.type_name == "uuid" else "text"

    def _among(self, id_: Column, ids: Sequence[Id]) -> Any:
        """The condition of rows of some ids."""
        usable = [one for one in ids if postgres_rows.key(one, id_.type_name) is not None]
        names = {"id": self._name(id_.name), "ids": self._sql.Literal(usable), "kind": self._sql.SQL(self._sent(id_))}
        return self._format("t.{id} = ANY ({ids}::{kind}[])", names)

    def _name(self, name: str) -> Any:
        return self._sql.Identifier(name)

    def _names(self, table: TableShape, **columns: str) -> dict[str, Any]:
        """Names of a statement, quoted: the table and some columns."""
        names = {"table": self._sql.Identifier(table.schema, table.name)}
        return names | {place: self._name(name) for place, name in columns.items()}

    def _format(self, statement: str, names: dict[str, Any]) -> Any:
        return self._sql.SQL(statement).format(**names)

    def _execute(self, cursor: Any, statement: str, names: dict[str, Any], **more: Any) -> Any:
        return cursor.execute(self._format(statement, names | more))


def _doubled(text: str) -> str:
    """SQL in a statement with parameters, whose mark is the percent sign."""
    return text.replace("%", "%%")
