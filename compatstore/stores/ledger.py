"""What a store is known to hold: digests of its rows and vectors, in a small database beside the gallery.

A sync compares the store with this ledger, so that only what changed is pulled, and only what the store does not hold
is pushed. A write, to the store or to the gallery, is announced before it is made: in one row of `announced`, which the
transaction that confirms it removes. Of a killed sync it is still there, and its members become `UNKNOWN`, so that the
next sync looks again at exactly the rows that the killed one may have written.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from compatstore import next_step
from compatstore.arrays import Id
from compatstore.errors import StorageError
from compatstore.stores.store import Parts

FILE = "mirror.sqlite"
CACHED = 32 << 10  # KiB of its pages that are kept in memory: look-ups by id reach all of them
UNKNOWN = b""  # digest of what was announced, and not confirmed before a kill
PLACED, SWITCHED = "placed", "switched"  # states of a target's place
_TABLES = """
CREATE TABLE IF NOT EXISTS link (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS items (
    item INTEGER PRIMARY KEY, id NOT NULL UNIQUE, source BLOB, metadata BLOB, gone INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS vectors (
    version TEXT NOT NULL, item INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (version, item)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS targets (version TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS announced (
    number INTEGER PRIMARY KEY, what TEXT NOT NULL, version TEXT NOT NULL, members TEXT NOT NULL);
"""
_PUT = (
    "INSERT INTO items (item, id, source, metadata) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
    "source = excluded.source, metadata = excluded.metadata, gone = 0"
)
# Members of announcements of rows, by the column whose digest is unknown; and of vectors.
_UNKNOWN_ROWS = (
    "INSERT INTO items (id, {0}) SELECT j.value, X'' FROM announced AS a, json_each(a.members) AS j "
    "WHERE a.what = '{0}' ON CONFLICT (id) DO UPDATE SET {0} = excluded.{0}, gone = 0"
)
_UNKNOWN_VECTORS = (
    "INSERT OR REPLACE INTO vectors SELECT a.version, j.value, X'' FROM announced AS a, json_each(a.members) AS j "
    "JOIN items AS i ON i.item = j.value WHERE a.what = 'vectors'"
)


@dataclass(frozen=True)
class Link:
    """The collection that a gallery mirrors.

    Attributes:
        store: Its address, without secrets.
        parts: Columns that are read.
        source: Version of the app's vectors.
    """

    store: str
    parts: Parts
    source: str


class Known(NamedTuple):
    """A row as the ledger knows it.

    Attributes:
        item: Its number here.
        source: Digest of the text or path; None for none.
        metadata: Digest of the metadata.
        vector: Digest of the vector of the version that was asked for; None if there is none.
        beside: The same of the second version.
    """

    item: int
    source: bytes | None
    metadata: bytes | None
    vector: bytes | None
    beside: bytes | None


class MirrorLedger:
    """The ledger of a mirror.

    Args:
        folder: Of the files beside the gallery's table.

    Raises:
        StorageError: It cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        with self._failures():
            folder.mkdir(parents=True, exist_ok=True)
            self._data = sqlite3.connect(self._path, timeout=30, isolation_level=None)
            self._data.execute("PRAGMA journal_mode = WAL")
            self._data.execute("PRAGMA synchronous = NORMAL")  # a kill loses nothing; a power cut is found by digests
            self._data.execute(f"PRAGMA cache_size = {-CACHED}")
            self._data.executescript(_TABLES)

    @staticmethod
    def is_in(folder: Path) -> bool:
        """True if there is a ledger in a folder."""
        return (folder / FILE).is_file()

    def close(self) -> None:
        """Close the database."""
        self._data.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            fix = "Free space or change the permissions. If the file is broken, mirror the store again at a new place."
            raise StorageError(f"use {self._path}", found=str(error), fix=fix) from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every other sync of this gallery out; the lock ends with the process.

        Raises:
            StorageError: Another process is at work.
        """
        lock = sqlite3.connect(self._path.with_name("mirror.lock"), timeout=0, isolation_level=None)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            lock.close()
            raise StorageError(
                "sync with the store",
                expected="no other process at work on it",
                found=f"one that holds {self._path.with_name('mirror.lock')}",
                fix=f"It ends by itself; then {next_step.same()} again.",
            ) from error
        try:
            self.expand()
            yield
        finally:
            lock.close()

    @contextmanager
    def changes(self) -> Iterator[None]:
        """Make changes in one transaction."""
        with self._failures():
            self._data.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._data.execute("ROLLBACK")
                raise
            self._data.execute("COMMIT")

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._failures():
            return self._data.execute(query, values).fetchall()

    def link(self) -> Link | None:
        """The collection that is mirrored; None before the first sync."""
        noted = self.noted("link")
        return _link_of(json.loads(noted)) if noted else None

    def keep(self, link: Link) -> None:
        """Record the collection that is mirrored."""
        self.note("link", json.dumps(asdict(link)))

    def note(self, name: str, value: str) -> None:
        """Record a value under a name."""
        self._rows("INSERT OR REPLACE INTO link VALUES (?, ?)", name, value)

    def noted(self, name: str) -> str:
        """A value that was recorded, or ""."""
        rows = self._rows("SELECT value FROM link WHERE name = ?", name)
        return str(rows[0][0]) if rows else ""

    def targets(self) -> dict[str, str]:
        """Targets that have a place in the store, with its state."""
        return dict(self._rows("SELECT version, state FROM targets ORDER BY version"))

    def place(self, target: str, state: str = PLACED) -> None:
        """Record the place of a target's vectors, before it is made."""
        self._rows("INSERT OR REPLACE INTO targets VALUES (?, ?)", target, state)

    def displace(self, target: str) -> None:
        """Forget a target whose place is gone."""
        with self.changes():
            self._rows("DELETE FROM targets WHERE version = ?", target)
            self._rows("DELETE FROM vectors WHERE version = ?", target)

    def known(self, ids: Sequence[Id], version: str, beside: str | None = None) -> dict[Id, Known]:
        """Rows that the ledger knows and that are not gone, of some ids, with their vectors of one version or two."""
        if not self.last_item():
            return {}
        joined, values = "", [json.dumps(ids), version]
        if beside is not None:
            joined, values = "LEFT JOIN vectors AS b ON b.item = i.item AND b.version = ?", [*values, beside]
        found = self._rows(
            f"SELECT i.id, i.item, i.source, i.metadata, v.digest, {'b.digest' if joined else 'NULL'} "
            "FROM json_each(?) AS j JOIN items AS i ON i.id = j.value "
            f"LEFT JOIN vectors AS v ON v.item = i.item AND v.version = ? {joined} WHERE NOT i.gone",
            *values,
        )
        return {row[0]: Known(*row[1:]) for row in found}

    def items(self) -> int:
        """Number of items that are known and not gone."""
        return int(self._rows("SELECT count(*) FROM items WHERE NOT gone")[0][0])

    def last_item(self) -> int:
        """Highest number of an item; 0 without one."""
        return int(self._rows("SELECT coalesce(max(item), 0) FROM items")[0][0])

    def rows(self, key: str, others: Sequence[str] = ()) -> Iterator[list[tuple[int, Id]]]:
        """Item numbers and ids of rows that are not gone, in batches.

        Args:
            key: Of the digests of what the place holds that is read.
            others: Keys of other places: rows that are known to lie in one of these, and not in this one, are left out.
        """
        last = -1
        while True:
            rows = self._rows(
                "SELECT item, id FROM items AS i WHERE item > ? AND NOT gone AND ("
                "EXISTS (SELECT 1 FROM vectors AS v WHERE v.version = ? AND v.item = i.item) OR NOT EXISTS "
                "(SELECT 1 FROM json_each(?) AS j JOIN vectors AS v ON v.version = j.value AND v.item = i.item)) "
                "ORDER BY item LIMIT 10000",
                last,
                key,
                json.dumps(others),
            )
            if not rows:
                return
            last = rows[-1][0]
            yield rows

    def announce(self, ids: Sequence[Id], metadata_alone: Sequence[Id]) -> list[int]:
        """Record rows that are about to be written to the gallery, so that none is there that the ledger lacks.

        Args:
            ids: Rows that are added, or whose vector or source changes.
            metadata_alone: Rows whose metadata changes alone.

        Returns:
            Numbers of the announcements, for `confirm`.
        """
        return [self._announce("source", "", ids), self._announce("metadata", "", metadata_alone)]

    def announce_vectors(self, version: str, items: Sequence[int]) -> list[int]:
        """Record items whose vectors are about to be written to the store; the same as of `announce`."""
        return [self._announce("vectors", version, items)]

    def _announce(self, what: str, version: str, members: Sequence[Id]) -> int:
        with self._failures():
            statement = "INSERT INTO announced (what, version, members) VALUES (?, ?, ?)"
            return int(self._data.execute(statement, (what, version, json.dumps(members))).lastrowid or 0)

    def confirm(self, announced: Sequence[int]) -> None:
        """Remove announcements, in the transaction that records what was written."""
        with self._failures():
            self._data.executemany("DELETE FROM announced WHERE number = ?", ((number,) for number in announced))

    def expand(self) -> None:
        """Record as unknown what was announced and not confirmed."""
        if self._rows("SELECT 1 FROM announced LIMIT 1"):
            with self.changes():
                for column in ("source", "metadata"):
                    self._rows(_UNKNOWN_ROWS.format(column))
                self._rows(_UNKNOWN_VECTORS)
                self._rows("DELETE FROM announced")

    def put(self, rows: Sequence[tuple[int | None, Id, bytes | None, bytes | None]]) -> list[int]:
        """Record rows: (number of the item or None for a new one, id, digest of the source, digest of the metadata).

        Returns:
            (n,) numbers of the items.
        """
        first = last = self.last_item() + 1
        numbers = list[int]()
        for item, *_ in rows:
            numbers.append(last if item is None else item)
            last += item is None
        with self._failures():
            self._data.executemany(_PUT, ((item, *row[1:]) for item, row in zip(numbers, rows, strict=True)))
        if self._rows("SELECT count(*) FROM items WHERE item >= ?", first)[0][0] == last - first:
            return numbers
        # A row that came twice, or that was gone and is back, has kept its number.
        ids = [row[1] for row in rows]
        found = self._rows(
            "SELECT i.id, i.item FROM json_each(?) AS j JOIN items AS i ON i.id = j.value", json.dumps(ids)
        )
        kept = dict(found)
        return [kept[one] for one in ids]

    def set_vectors(self, version: str, vectors: Mapping[Id, bytes | None]) -> None:
        """Record digests of vectors by id; None: the store has none."""
        with self._failures():
            self._data.executemany(
                "INSERT OR REPLACE INTO vectors SELECT ?, item, ? FROM items WHERE id = ?",
                [(version, digest, key) for key, digest in vectors.items() if digest is not None],
            )
            self._data.executemany(
                "DELETE FROM vectors WHERE version = ? AND item = (SELECT item FROM items WHERE id = ?)",
                [(version, key) for key, digest in vectors.items() if digest is None],
            )

    def set_items(self, version: str, vectors: Iterable[tuple[int, bytes | None]]) -> None:
        """Record digests of vectors by the numbers of their items, as of `known`, which spares the search for them."""
        known = list(vectors)
        with self._failures():
            rows = ((version, item, digest) for item, digest in known if digest is not None)
            self._data.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            none = ((version, item) for item, digest in known if digest is None)
            self._data.executemany("DELETE FROM vectors WHERE version = ? AND item = ?", none)

    def mark_unconfirmed(self, version: str, ids: Sequence[Id] | None = None) -> None:
        """Record that vectors are unconfirmed, of those that are known: of some rows, or of all."""
        among = (
            "" if ids is None else "AND item IN (SELECT item FROM items WHERE id IN (SELECT value FROM json_each(?)))"
        )
        values = () if ids is None else (json.dumps(ids),)
        self._rows(f"UPDATE vectors SET digest = ? WHERE version = ? {among}", UNKNOWN, version, *values)

    def holding(self, version: str, *, unknown: bool = False) -> Iterator[list[tuple[int, Id, bytes]]]:
        """Item numbers, ids and digests of the vectors of a version, in batches; of the unconfirmed ones alone."""
        last = -1
        condition = "AND length(v.digest) = 0" if unknown else ""
        while True:
            rows = self._rows(
                "SELECT v.item, i.id, v.digest FROM vectors AS v JOIN items AS i ON i.item = v.item "
                f"WHERE v.version = ? AND v.item > ? {condition} ORDER BY v.item LIMIT 10000",
                version,
                last,
            )
            if not rows:
                return
            last = rows[-1][0]
            yield rows

    def forget_vectors(self, version: str) -> None:
        """Forget the digests of a version."""
        self._rows("DELETE FROM vectors WHERE version = ?", version)

    def count(self, version: str) -> int:
        """Number of vectors of a version that the store holds, confirmed ones."""
        return int(self._rows("SELECT count(*) FROM vectors WHERE version = ? AND length(digest)", version)[0][0])

    def mark_gone(self, ids: Sequence[Id]) -> None:
        """Record that rows are gone from the store, before they are deleted here."""
        self._rows("UPDATE items SET gone = 1 WHERE id IN (SELECT value FROM json_each(?))", json.dumps(ids))

    def gone(self) -> list[Id]:
        """Ids of rows that are gone and not yet deleted everywhere."""
        return [row[0] for row in self._rows("SELECT id FROM items WHERE gone ORDER BY item")]

    def forget(self, ids: Sequence[Id]) -> None:
        """Forget rows."""
        named = json.dumps(ids)
        among = "(SELECT item FROM items WHERE id IN (SELECT value FROM json_each(?)))"
        with self.changes():
            self._rows(f"DELETE FROM vectors WHERE item IN {among}", named)
            self._rows("DELETE FROM items WHERE id IN (SELECT value FROM json_each(?))", named)

    def settle(self, link: Link, held: str, *, drop_source: bool) -> None:
        """Make a switched target the version of the app's vectors.

        Args:
            link: The collection as the app reads it now.
            held: Key of the digests of what the app's place holds.
            drop_source: The vectors before the switch are to be removed from the store: `retired` until they are.
        """
        with self.changes():
            if drop_source:
                self.note("retired", self.noted("link"))
            self._rows("DELETE FROM vectors WHERE version != ?", held)
            self._rows("UPDATE vectors SET version = ?", link.source)
            self._rows("DELETE FROM targets WHERE version = ?", link.source)
            self.keep(link)

    def retired(self) -> tuple[Link, str] | None:
        """The collection of before a settlement, and its target, while the vectors before it are to be removed."""
        noted, link = self.noted("retired"), self.link()
        return (_link_of(json.loads(noted)), link.source) if noted and link is not None else None

    def forget_retired(self) -> None:
        """Record that they are removed."""
        self.note("retired", "")


def _link_of(known: dict[str, Any]) -> Link:
    """A link that was recorded."""
    parts = known["parts"]
    return Link(known["store"], Parts(**{**parts, "metadata": tuple(parts["metadata"])}), known["source"])
