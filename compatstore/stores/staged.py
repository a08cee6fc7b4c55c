"""Target vectors of a store without a place for them: a file of SQLite beside the app's, durable after each batch."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, ArrowType, FloatArray, Id
from compatstore.errors import StorageError
from compatstore.stores.store import BATCH, ID, VECTOR, vector_column
from compatstore.versions import Metric

_TABLES = """
CREATE TABLE IF NOT EXISTS vectors (id PRIMARY KEY, vector BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_SOME = 500  # ids of a query


class Staged:
    """Vectors by id, and some facts about them; each method is one transaction.

    Args:
        path: Of the file, which is made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._of_file():
            self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False)  # one at a time uses it
            with self._connection:
                self._connection.executescript(_TABLES)

    def __len__(self) -> int:
        with self._of_file():
            return int(self._connection.execute("SELECT count(*) FROM vectors").fetchone()[0])

    def fact(self, name: str) -> str:
        """Value of a fact; "" if it is not set."""
        with self._of_file():
            row = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row else ""

    @property
    def metric(self) -> Metric:
        """Distance of the vectors, of the fact of that name."""
        return cast(Metric, self.fact("metric"))

    def note(self, **facts: str) -> None:
        """Set facts."""
        with self._of_file(), self._connection:
            self._note(facts)

    def put(self, ids: Sequence[Id], vectors: FloatArray, **facts: str) -> None:
        """Insert or replace vectors, (n, dim) float32, and set facts."""
        rows = ((one, vector.astype("<f4").tobytes()) for one, vector in zip(ids, vectors, strict=True))
        with self._of_file(), self._connection:
            self._connection.executemany(
                "INSERT INTO vectors VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET vector = excluded.vector", rows
            )
            self._note(facts)

    def remove(self, ids: Sequence[Id], **facts: str) -> None:
        """Remove vectors, and set facts."""
        with self._of_file(), self._connection:
            self._connection.executemany("DELETE FROM vectors WHERE id = ?", ((one,) for one in ids))
            self._note(facts)

    def clear(self) -> None:
        """Remove all vectors."""
        with self._of_file():
            with self._connection:
                self._connection.execute("DELETE FROM vectors")
            self._connection.execute("VACUUM")

    def tables(self, kind: ArrowType, dim: int, ids: Sequence[Id] | None = None) -> Iterator[ArrowTable]:
        """Stream `id`, of an Arrow type, and `vector`: of all, or of some ids."""
        for rows in self._all() if ids is None else self._some(ids):
            vectors = np.frombuffer(b"".join(vector for _, vector in rows), "<f4").reshape(len(rows), dim)
            columns = {ID: pa.array([one for one, _ in rows], kind), VECTOR: vector_column(vectors, dim)}
            yield pa.table(columns)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def _note(self, facts: dict[str, str]) -> None:
        self._connection.executemany("REPLACE INTO facts VALUES (?, ?)", facts.items())

    def _all(self) -> Iterator[list[tuple[Id, bytes]]]:
        last = 0
        while True:
            query = "SELECT id, vector, rowid FROM vectors WHERE rowid > ? ORDER BY rowid LIMIT ?"
            with self._of_file():
                rows = self._connection.execute(query, (last, BATCH)).fetchall()
            if not rows:
                return
            last = rows[-1][2]
            yield [row[:2] for row in rows]

    def _some(self, ids: Sequence[Id]) -> Iterator[list[tuple[Id, bytes]]]:
        for start in range(0, len(ids), _SOME):
            some = ids[start : start + _SOME]
            query = f"SELECT id, vector FROM vectors WHERE id IN ({', '.join('?' * len(some))})"
            with self._of_file():
                rows = self._connection.execute(query, list(some)).fetchall()
            if rows:
                yield rows

    @contextmanager
    def _of_file(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            operation = f"keep target vectors in {self.path}"
            raise StorageError(operation, expected="a file of SQLite that can be written", found=f"{error}") from error
