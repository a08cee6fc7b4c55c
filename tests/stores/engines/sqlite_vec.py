"""SQLite with sqlite-vec: a vec0 table with a metadata and an auxiliary column, and a write-ahead log."""

from __future__ import annotations

import itertools

import apsw
import numpy as np
import pyarrow as pa
import sqlite_vec

from compatstore.stores.store import Parts


def connect(path):
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)
    connection.execute("PRAGMA journal_mode = wal")
    return connection


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def blob(vector):
    return None if vector is None else np.asarray(vector, np.float32).tobytes()


def values(data):
    return None if data is None else np.frombuffer(data, np.float32).tolist()


class Engine:
    name = "sqlite-vec"
    parts = Parts(id="id", vector="embedding", source="text", metadata=("lang",))
    metrics = ("cosine", "l2")
    keeps_nulls = False
    odd_names = ('we"ird; name', "it's", "注釈")

    def __init__(self, folder):
        self.path = folder / "app.db"
        self.connection = connect(self.path)

    def create(self, collection, dim, metric="cosine", id_type="string", rows=None, float16=False):
        key = "integer" if id_type == "int64" else "text"
        self.connection.execute(
            f"CREATE VIRTUAL TABLE {quoted(collection)} USING vec0(id {key} PRIMARY KEY, "
            f"embedding float[{dim}] distance_metric={metric}, lang text, +text text)"
        )
        self.put(collection, rows or [])

    def load(self, collection, ids, vectors, texts):
        """Insert many rows in one transaction."""
        statement = f"INSERT INTO {quoted(collection)} (id, embedding, lang, text) VALUES (?, ?, 'en', ?)"
        with self.connection:
            self.connection.executemany(statement, zip(ids, map(bytes, vectors), texts, strict=True))

    def scan(self, collection):
        """Stream all ids, vectors and texts by one query."""
        found = self.connection.execute(f"SELECT id, embedding, text FROM {quoted(collection)}")
        for rows in iter(lambda: list(itertools.islice(found, 5_000)), []):
            ids, vectors, texts = zip(*rows, strict=True)
            numbers = np.frombuffer(b"".join(vectors), np.float32).reshape(len(rows), -1)
            yield pa.array(ids), numbers, pa.array(texts)

    def place(self, collection, dim):
        """Make a place for second vectors."""
        self.create(f"{collection}_own", dim)

    def write(self, collection, ids, vectors, texts):
        """Write second vectors at once."""
        self.load(f"{collection}_own", ids, vectors, texts)

    def displace(self, collection):
        """Remove the place of second vectors."""
        self.connection.execute(f"DROP TABLE IF EXISTS {quoted(f'{collection}_own')}")

    def address(self, collection):
        return f"sqlite:{self.path}#{collection}"

    def put(self, collection, rows):
        table = quoted(collection)
        with self.connection:
            for row in rows:
                self.connection.execute(f"DELETE FROM {table} WHERE id = ?", (row["id"],))
                if row["vector"] is not None:
                    self.connection.execute(
                        f"INSERT INTO {table} (id, embedding, lang, text) VALUES (?, ?, ?, ?)",
                        (row["id"], blob(row["vector"]), row["lang"], row["text"]),
                    )

    def delete(self, collection, ids):
        with self.connection:
            statement = f"DELETE FROM {quoted(collection)} WHERE id = ?"
            self.connection.executemany(statement, ((one,) for one in ids))

    def rows(self, collection, target=None):
        query = f"SELECT id, embedding, text, lang FROM {quoted(collection)}"
        rows = {
            one: {"id": one, "vector": values(vector), "text": text, "lang": lang}
            for one, vector, text, lang in self.connection.execute(query)
        }
        if target is not None:
            there = self.connection.execute(f"SELECT id, embedding FROM {quoted(f'{collection}_{target}')}")
            beside = {one: values(vector) for one, vector in there}
            rows = {one: {**row, "target": beside.get(one)} for one, row in rows.items()}
        return rows

    def objects(self):
        schema = "SELECT type || ' ' || name FROM sqlite_schema"
        return {one for (one,) in self.connection.execute(schema)}

    def close(self):
        self.connection.close()
