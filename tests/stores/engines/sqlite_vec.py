"""SQLite with sqlite-vec: a vec0 table with a metadata and an auxiliary column, and a write-ahead log."""

from __future__ import annotations

import apsw
import numpy as np
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
