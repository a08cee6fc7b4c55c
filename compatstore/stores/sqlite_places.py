"""Places of target vectors in SQLite: another vec0 table with the app's columns, or a BLOB column of the app's table.

Each method is part of a transaction of its caller. After a switch the app's own vectors are in a table or column
`{name}_before_{target}`, and the target's are where the app's were.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from compatstore.arrays import Id
from compatstore.errors import InvalidInput
from compatstore.stores.sqlite_schema import VectorTable, quoted
from compatstore.versions import Metric

# Tables in which a vec0 table keeps its content, as sqlite-vec names them behind the name of the table.
_SHADOW = r"_(info|chunks|rowids|auxiliary|vector_chunks\d\d|metadatachunks\d\d|metadatatext\d\d)"


@dataclass(frozen=True)
class Columns:
    """Where vectors are: a column of a table, by ids of another.

    Attributes:
        table: Its name, quoted.
        id: Column of the ids, quoted.
        vector: Column of the vectors, quoted.
    """

    table: str
    id: str
    vector: str


class TablePlaces:
    """Target vectors in a vec0 table of their own.

    Args:
        connection: Of apsw.
        table: The app's, as it is now.
    """

    def __init__(self, connection: Any, table: VectorTable) -> None:
        self._connection, self._table = connection, table

    def has(self, target: str) -> bool:
        """True if a table of the target's name is there."""
        return self._is_table(self._name(target)) or self.is_switched(target)

    def is_switched(self, target: str) -> bool:
        """True if the target's vectors are in the app's table."""
        return self._is_table(self._name(f"before_{target}"))

    def columns(self, target: str) -> Columns:
        """Where the target's vectors are."""
        name = self._table.name if self.is_switched(target) else self._name(target)
        return Columns(quoted(name), quoted(self._table.id), quoted(self._table.vector))

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Make the table."""
        if metric == "dot":
            fix = "Take cosine for vectors of unit length: it ranks as the product does."
            raise InvalidInput(f"make a vec0 table for {target}", expected="l2 or cosine", found=metric, fix=fix)
        vector = f"{self._table.vector} float[{dim}] distance_metric={metric}"
        columns = [
            vector if re.match(rf"{re.escape(self._table.vector)}\s", part) else part
            for part in self._table.definition
            if "[" not in part or re.match(rf"{re.escape(self._table.vector)}\s", part)
        ]
        self._connection.execute(f"CREATE VIRTUAL TABLE {quoted(self._name(target))} USING vec0({', '.join(columns)})")

    def put(self, to: Columns, vectors: dict[Id, bytes], held: Container[Id]) -> None:
        """Write vectors, of rows that have one already and of others, beside the values that the app's rows have."""
        update = f"UPDATE {to.table} SET {to.vector} = ? WHERE {to.id} = ?"
        self._connection.executemany(update, ((vector, one) for one, vector in vectors.items() if one in held))
        names = [to.id, *map(quoted, self._table.metadata)]
        query = f"SELECT {', '.join(names)} FROM {quoted(self._table.name)} WHERE {to.id} = ?"
        # All are read before the first is written: in turns it takes ten times as long.
        rows = list(self._connection.executemany(query, ((one,) for one in vectors if one not in held)))
        marks = ", ".join("?" for _ in range(len(names) + 1))
        insert = f"INSERT INTO {to.table} ({', '.join(names)}, {to.vector}) VALUES ({marks})"
        self._connection.executemany(insert, ((*row, vectors[row[0]]) for row in rows))

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Remove vectors."""
        to = self.columns(target)
        self._connection.executemany(f"DELETE FROM {to.table} WHERE {to.id} = ?", ((one,) for one in ids))

    def switch(self, target: str) -> None:
        """Exchange the names, with the app's rows and values of now in the target's table."""
        self._follow_the_app(target)
        self._rename(self._table.name, self._name(f"before_{target}"))
        self._rename(self._name(target), self._table.name)

    def switch_back(self, target: str) -> None:
        """Exchange the names again."""
        self._rename(self._table.name, self._name(target))
        self._rename(self._name(f"before_{target}"), self._table.name)

    def drop(self, target: str) -> None:
        """Drop the target's table."""
        self._connection.execute(f"DROP TABLE IF EXISTS {quoted(self._name(target))}")

    def drop_source(self, target: str) -> None:
        """Drop the table that was the app's."""
        self._connection.execute(f"DROP TABLE IF EXISTS {quoted(self._name(f'before_{target}'))}")

    def _name(self, target: str) -> str:
        return f"{self._table.name}_{target}"

    def _is_table(self, name: str) -> bool:
        return bool(
            list(self._connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ? COLLATE NOCASE", (name,)))
        )

    def _follow_the_app(self, target: str) -> None:
        """Give the target's rows the values that the app's have by now, and remove rows that it deleted."""
        to, app = self.columns(target), quoted(self._table.name)
        query = f"SELECT t.{to.id} FROM {to.table} t LEFT JOIN {app} a ON a.{to.id} = t.{to.id} WHERE a.{to.id} IS NULL"
        self.remove(target, [one for (one,) in list(self._connection.execute(query))])
        names = [quoted(name) for name in self._table.metadata]
        if names:
            theirs, ours = (", ".join(f"{table}.{name}" for name in names) for table in ("a", "t"))
            both = f"{to.table} t JOIN {app} a ON a.{to.id} = t.{to.id}"
            query = f"SELECT t.{to.id}, t.{to.vector} FROM {both} WHERE ({ours}) IS NOT ({theirs})"
            others = dict(self._connection.execute(query))
            self.remove(target, list(others))
            self.put(to, others, ())

    def _rename(self, name: str, other: str) -> None:
        """Rename a vec0 table with the tables that hold its content, which sqlite-vec 0.1.9 does not do by itself."""
        self._connection.execute(f"ALTER TABLE {quoted(name)} RENAME TO {quoted(other)}")
        for (shadow,) in list(self._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")):
            if re.fullmatch(re.escape(name) + _SHADOW, shadow):
                new = f"{other}{shadow[len(name) :]}"
                self._connection.execute(f"ALTER TABLE {quoted(shadow)} RENAME TO {quoted(new)}")


class ColumnPlaces:
    """Target vectors in a column of the app's table.

    Args:
        connection: Of apsw.
        table: The app's, as it is now.
    """

    def __init__(self, connection: Any, table: VectorTable) -> None:
        self._connection, self._table = connection, table

    def has(self, target: str) -> bool:
        """True if a column of the target's name is there."""
        return self._is_column(self._name(target)) or self.is_switched(target)

    def is_switched(self, target: str) -> bool:
        """True if the target's vectors are in the app's column."""
        return self._is_column(self._name(f"before_{target}"))

    def columns(self, target: str) -> Columns:
        """Where the target's vectors are."""
        name = self._table.vector if self.is_switched(target) else self._name(target)
        return Columns(quoted(self._table.name), quoted(self._table.id), quoted(name))

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Add the column."""
        self._alter(f"ADD COLUMN {quoted(self._name(target))} BLOB")

    def put(self, to: Columns, vectors: dict[Id, bytes], held: Container[Id]) -> None:
        """Write vectors."""
        update = f"UPDATE {to.table} SET {to.vector} = ? WHERE {to.id} = ?"
        self._connection.executemany(update, ((vector, one) for one, vector in vectors.items()))

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Remove vectors."""
        to = self.columns(target)
        statement = f"UPDATE {to.table} SET {to.vector} = NULL WHERE {to.id} = ?"
        self._connection.executemany(statement, ((one,) for one in ids))

    def switch(self, target: str) -> None:
        """Exchange the names."""
        self._rename(self._table.vector, self._name(f"before_{target}"))
        self._rename(self._name(target), self._table.vector)

    def switch_back(self, target: str) -> None:
        """Exchange the names again."""
        self._rename(self._table.vector, self._name(target))
        self._rename(self._name(f"before_{target}"), self._table.vector)

    def drop(self, target: str) -> None:
        """Drop the target's column."""
        if self._is_column(self._name(target)):
            self._alter(f"DROP COLUMN {quoted(self._name(target))}")

    def drop_source(self, target: str) -> None:
        """Drop the column that was the app's."""
        if self.is_switched(target):
            self._alter(f"DROP COLUMN {quoted(self._name(f'before_{target}'))}")

    def _name(self, target: str) -> str:
        return f"{self._table.vector}_{target}"

    def _is_column(self, name: str) -> bool:
        query = "SELECT 1 FROM pragma_table_xinfo(?) WHERE name = ? COLLATE NOCASE"
        return bool(list(self._connection.execute(query, (self._table.name, name))))

    def _rename(self, name: str, other: str) -> None:
        self._alter(f"RENAME COLUMN {quoted(name)} TO {quoted(other)}")

    def _alter(self, change: str) -> None:
        self._connection.execute(f"ALTER TABLE {quoted(self._table.name)} {change}")
