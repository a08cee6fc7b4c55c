"""SQLite with sqlite-vec as a store: `sqlite:app.db#docs`, a vec0 table or a table with a BLOB column of float32.

The database is opened by apsw, which has an SQLite of its own; a process that has the same file open by another SQLite,
as that of `sqlite3`, would lose its locks. Each write is one transaction; reads are short ones, so that an app without
a write-ahead log can write meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, ArrowType, FloatArray, Id
from compatstore.errors import InvalidInput, NotFound, StorageError, UpgradeError, load_extra
from compatstore.paths import is_file
from compatstore.stores.address import Address
from compatstore.stores.sqlite_places import ColumnPlaces, Columns, TablePlaces
from compatstore.stores.sqlite_schema import VectorTable, quoted, read_table
from compatstore.stores.store import (
    BATCH,
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
    vector_column,
)
from compatstore.versions import Metric

_NOTHING_NAMED = Parts()
_BUSY = 60_000  # milliseconds to wait for another writer


class SqliteVec:
    """A table with vectors in a database of SQLite; see `VectorStore`.

    Args:
        address: With the path of the database and the name of the table.

    Raises:
        NotFound: There is no such file.
        StorageError: It cannot be opened.
    """

    scheme: ClassVar[str] = "sqlite"

    def __init__(self, address: Address) -> None:
        apsw, extension = load_extra("apsw", "sqlite-vec"), load_extra("sqlite_vec", "sqlite-vec")
        self._address, self._apsw, self._path = address, apsw, Path(address.place)
        self._parts, self._metrics = address.parts, dict[str, Metric]()
        self._known: tuple[object, VectorTable] | None = None
        if not is_file(self._path):
            raise NotFound(f"open {address}", expected="a database of SQLite", found="no such file")
        with self._reasons("open"):
            self._connection = apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)
            self._connection.set_busy_timeout(_BUSY)
            self._connection.enable_load_extension(True)
            self._connection.load_extension(extension.loadable_path())
            self._connection.enable_load_extension(False)

    def describe(self, wanted: Parts = _NOTHING_NAMED) -> Description:
        """Describe the table; see `VectorStore.describe`."""
        self._parts, self._known = wanted, None
        table = self._table()
        with self._reasons("count the rows of"):
            ((rows,),) = self._connection.execute(f"SELECT count(*) FROM {quoted(table.name)}")
        return Description(
            address=f"{self._address}",
            parts=Parts(table.id, table.vector, None, tuple(table.metadata)),
            id_type=table.id_type,
            dim=table.dim,
            metric=table.metric,
            rows=rows,
            columns=table.columns,
            beside="table" if table.is_vec0 else "column",
            switch="rename",
            is_atomic=True,
            is_conditional=True,
            notes=table.notes,
        )

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream the rows that are there when it begins, each as it is when it is read; see `VectorStore.scan`."""
        table = self._table(parts)
        for ids in self._pages(_own(table), "1"):
            yield self._read(table, ids, parts, target)

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some rows; see `VectorStore.read`."""
        return self._read(self._table(parts), ids, parts, None)

    def has(self, target: str) -> bool:
        """True if a table or column of the target's name is there."""
        with self._reasons("look at"):
            return self._places().has(target)

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Make the target's table or column; see `VectorStore.prepare`."""
        self._metrics[target] = metric
        with self._transaction(f"make a place for {target} in"):
            if not self._places().has(target):
                self._places().prepare(target, dim, metric)

    def write(self, target: str, rows: ArrowTable) -> Sequence[Id]:
        """Write target vectors of the rows that are as they were, in one transaction; see `VectorStore.write`."""
        ids, vectors, written = rows[ID].to_pylist(), matrix(rows[VECTOR]), list[Id]()
        facts = zip(digests(rows[VECTOR]), digests(rows[MADE_FROM]), rows[KNOWN].to_pylist(), strict=True)
        changed = dict[Id, bytes]()
        with self._transaction(f"write vectors of {target} to"):
            self._require(target)
            places = self._places()
            to = places.columns(target)
            held, sources = self._digests(to, ids), self._digests(_own(self._table()), ids)
            is_switched = places.is_switched(target)  # the app's vectors are the target's then
            for one, vector, (digest, made_from, known) in zip(ids, vectors, facts, strict=True):
                same = one in sources and (is_switched or sources[one] == made_from)
                if same and held.get(one) in (known, digest):
                    if held.get(one) != digest:
                        changed[one] = vector.astype("<f4").tobytes()
                    written.append(one)
            places.put(to, changed, held)
        return written

    def read_target(self, target: str, ids: Sequence[Id] | None = None) -> Iterator[ArrowTable]:
        """Stream target vectors; see `VectorStore.read_target`."""
        self._require(target)
        table, place = self._table(), self._places().columns(target)
        pages = self._pages(place, f"{place.vector} IS NOT NULL") if ids is None else _batches(ids)
        for some in pages:
            query = f"SELECT {place.id}, {place.vector} FROM {place.table} WHERE {place.id} = ?"
            rows = [row for row in self._rows_of(query, some) if row[1] is not None]
            if rows:
                vectors = np.frombuffer(b"".join(vector for _, vector in rows), "<f4").reshape(len(rows), -1)
                column = vector_column(vectors, vectors.shape[1])
                yield pa.table({ID: pa.array([one for one, _ in rows], table.id_kind), VECTOR: column})

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Remove target vectors; see `VectorStore.remove`.

        Raises:
            UpgradeError: The app reads the target: its rows are the app's to delete.
        """
        self._require(target)
        if self.is_switched(target):
            raise self._refused(f"remove vectors of {target} from", "a switch to them", "Switch back first.")
        with self._transaction(f"remove vectors of {target} from"):
            self._places().remove(target, ids)

    def switch(self, target: str) -> None:
        """Exchange the names of the app's and the target's table or column, in one transaction."""
        self._exchange(target, forward=True)

    def switch_back(self, target: str) -> None:
        """Exchange the names again, in one transaction."""
        self._exchange(target, forward=False)

    def is_switched(self, target: str) -> bool:
        """True if the app's name leads to the target, and its own vectors are kept under another."""
        with self._reasons("look at"):
            return self._places().is_switched(target)

    def app_change(self, target: str) -> str:
        """Nothing: the app reads the target under the name that it knows."""
        return f"Nothing: {self._address} holds {target} after the switch."

    def place(self, target: str) -> tuple[str, Parts]:
        """Address and parts of the target after a switch: those of the app."""
        return f"{self._address}", self._parts

    def before(self, target: str) -> str | None:
        """The column of the app's own vectors after a switch; None for a vec0 table; see `VectorStore.before`."""
        table = self._table()
        return None if table.is_vec0 else f"{table.vector}_before_{target}"

    def drop(self, target: str) -> None:
        """Drop the target's table or column; see `VectorStore.drop`.

        Raises:
            UpgradeError: The app reads the target.
        """
        if self.is_switched(target):
            raise self._refused(f"drop {target} of", "a switch to it", "Switch back first.")
        with self._transaction(f"drop {target} of"):
            self._places().drop(target)

    def drop_source(self, target: str) -> None:
        """Drop the table or column that was the app's before the switch; see `VectorStore.drop_source`."""
        with self._transaction(f"drop what was before {target} of"):
            self._places().drop_source(target)

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest rows; by sqlite-vec's own scan of a vec0 table, else of the column."""
        table = self._table()
        place = _own(table)
        if target is not None:
            self._require(target)
            place = self._places().columns(target)
        condition, vector = f" AND ({where})" if where else "", np.asarray(query, "<f4").tobytes()
        if table.is_vec0:
            statement = (
                f"SELECT {place.id}, distance FROM {place.table} WHERE {place.vector} MATCH ? AND k = ?{condition}"
            )
        else:
            metric = self._metrics.get(target or "", "cosine")
            distance = "vec_distance_l2" if metric == "l2" else "vec_distance_cosine"
            statement = (
                f"SELECT {place.id}, {distance}({place.vector}, ?) AS distance FROM {place.table} "
                f"WHERE {place.vector} IS NOT NULL{condition} ORDER BY distance LIMIT ?"
            )
        with self._reasons("search"), self._reading():
            found = list(self._connection.execute(statement, (vector, k)))
        return [one for one, _ in found], np.array([distance for _, distance in found], np.float32)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _table(self, parts: Parts | None = None) -> VectorTable:
        """The table as it is; read again where the schema is another one."""
        parts = parts or self._parts
        wanted = Parts(parts.id or self._parts.id, parts.vector or self._parts.vector)
        with self._reasons("read"):
            ((version,),) = self._connection.execute("PRAGMA schema_version")
            if self._known is None or self._known[0] != (version, wanted):
                table = read_table(self._connection, self._address.collection, wanted)
                self._parts = replace(self._parts, id=table.id, vector=table.vector)  # others may come
                self._known = (version, Parts(table.id, table.vector)), table
        return self._known[1]

    def _places(self) -> TablePlaces | ColumnPlaces:
        table = self._table()
        return TablePlaces(self._connection, table) if table.is_vec0 else ColumnPlaces(self._connection, table)

    def _require(self, target: str) -> None:
        if not self.has(target):
            raise self._refused(f"open {target} of", "no place for it", "Push the target's vectors first.")

    def _refused(self, operation: str, found: str, fix: str) -> UpgradeError:
        return UpgradeError(f"{operation} {self._address}", expected="the target's own place", found=found, fix=fix)

    def _exchange(self, target: str, *, forward: bool) -> None:
        operation = f"switch to {target} in" if forward else f"switch back from {target} in"
        with self._transaction(operation):
            places = self._places()
            self._require(target)
            if places.is_switched(target) != forward:
                (places.switch if forward else places.switch_back)(target)
                table = self._table()
                one = f"SELECT {quoted(table.vector)} FROM {quoted(table.name)} LIMIT 1"
                list(self._connection.execute(one))  # a table that does not work under its new name is not kept

    def _pages(self, place: Columns, condition: str) -> Iterator[list[Id]]:
        """Stream the ids that are there now, in batches."""
        name, last = f"temp.{quoted(f'ids {id(place)}')}", 0
        with self._reasons("scan"):
            self._connection.execute(f"CREATE TEMP TABLE {name.partition('.')[2]} (number INTEGER PRIMARY KEY, id)")
        try:
            with self._reasons("scan"):
                ids = f"SELECT {place.id} FROM {place.table} WHERE {condition} AND {place.id} IS NOT NULL"
                self._connection.execute(f"INSERT INTO {name} (id) {ids}")
            while True:
                query = f"SELECT number, id FROM {name} WHERE number > ? ORDER BY number LIMIT {BATCH}"
                with self._reasons("scan"):
                    rows = list(self._connection.execute(query, (last,)))
                if not rows:
                    return
                last = rows[-1][0]
                yield [one for _, one in rows]
        finally:
            with self._reasons("scan"):
                self._connection.execute(f"DROP TABLE {name}")

    def _read(self, table: VectorTable, ids: Sequence[Id], parts: Parts, target: str | None) -> ArrowTable:
        """Rows of some ids, as of `VectorStore.scan`."""
        columns = {ID: table.id, VECTOR: table.vector}
        if parts.source is not None:
            columns[SOURCE] = parts.source
        columns |= {name: name for name in parts.metadata}
        for name in columns.values():
            if name not in table.metadata and name not in (table.id, table.vector):
                found = f"{name}, among {', '.join(table.metadata)}"
                raise InvalidInput(f"read {self._address}", expected="a column that can be copied", found=found)
        selected = [quoted(name) for name in columns.values()]
        if target is not None and not table.is_vec0 and self.has(target):
            selected.append(f"{self._places().columns(target).vector} IS NOT NULL")
        query = f"SELECT {', '.join(selected)} FROM {quoted(table.name)} WHERE {quoted(table.id)} = ?"
        rows = list(zip(*self._rows_of(query, ids), strict=True)) or [()] * len(selected)
        made = {ID: pa.array(rows[0], table.id_kind), VECTOR: self._vectors(table, rows[1])}
        for at, (name, column) in enumerate(list(columns.items())[2:], 2):
            made[name] = _values(rows[at], pa.string() if name == SOURCE else table.metadata[column])
        if len(selected) > len(columns):
            made[IN_TARGET] = pa.array([bool(present) for present in rows[-1]], pa.bool_())
        return pa.table(made)

    def _vectors(self, table: VectorTable, values: Sequence[bytes | None]) -> Any:
        """A column of vectors; a value of another length is none."""
        dim = table.dim or max((len(value) // 4 for value in values if value), default=1)
        present = np.array([value is not None and len(value) == dim * 4 for value in values], bool)
        zeros = bytes(dim * 4)
        flat = b"".join(value if there and value else zeros for value, there in zip(values, present, strict=True))
        return vector_column(np.frombuffer(flat, "<f4").reshape(len(values), dim), dim, present)

    def _digests(self, place: Columns, ids: Sequence[Id]) -> dict[Id, bytes | None]:
        """Digests of the vectors of those rows that are there, None for a row without one."""
        query = f"SELECT {place.id}, {place.vector} FROM {place.table} WHERE {place.id} = ?"
        rows = list(self._rows_of(query, ids))
        held: dict[Id, bytes | None] = dict.fromkeys((one for one, _ in rows), None)
        lengths = {len(vector) for _, vector in rows if vector}
        for length in lengths:
            some = [(one, vector) for one, vector in rows if vector and len(vector) == length]
            values = np.frombuffer(b"".join(vector for _, vector in some), "<f4").reshape(len(some), -1)
            hashed = digests(vector_column(values, values.shape[1]))
            held |= {one: digest for (one, _), digest in zip(some, hashed, strict=True)}
        return held

    def _rows_of(self, query: str, ids: Iterable[Id]) -> list[tuple[Any, ...]]:
        """Results of a query of one id, for each of some."""
        with self._reasons("read"):
            return list(self._connection.executemany(query, ((one,) for one in ids)))

    @contextmanager
    def _transaction(self, operation: str) -> Iterator[None]:
        """One transaction of this and no other writer."""
        with self._reasons(operation):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if not self._connection.get_autocommit():
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Refuse all that is no read: a condition is a text of the caller's, which may end one statement."""
        apsw = self._apsw
        reads = (apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE)
        self._connection.authorizer = lambda action, *_: apsw.SQLITE_OK if action in reads else apsw.SQLITE_DENY
        try:
            yield
        finally:
            self._connection.authorizer = None

    @contextmanager
    def _reasons(self, operation: str) -> Iterator[None]:
        """Re-raise errors of SQLite with the operation."""
        try:
            yield
        except self._apsw.Error as error:
            reason, fix = str(error) or type(error).__name__, ""
            if isinstance(error, self._apsw.BusyError | self._apsw.LockedError):
                fix = "Another process writes for long; try again when it is done."
            raise StorageError(f"{operation} {self._address}", found=reason, fix=fix) from error


def _own(table: VectorTable) -> Columns:
    """Where the app's vectors are."""
    return Columns(quoted(table.name), quoted(table.id), quoted(table.vector))


def _batches(ids: Sequence[Id]) -> Iterator[Sequence[Id]]:
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def _values(values: Sequence[Any], kind: ArrowType) -> Any:
    """A column of values of SQLite, whose columns hold values of any type.

    Raises:
        InvalidInput: A value is of another type than its column.
    """
    if pa.types.is_string(kind):
        return pa.array([value if value is None or isinstance(value, str) else str(value) for value in values], kind)
    if pa.types.is_boolean(kind):
        return pa.array([None if value is None else bool(value) for value in values], kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidInput("read a column of SQLite", expected=f"values of {kind}", found=f"{error}") from error
