"""SQLite with vectors in a column of BLOBs of an ordinary table."""

from __future__ import annotations

from stores.engines import sqlite_vec
from stores.engines.sqlite_vec import blob, quoted, values


class Engine(sqlite_vec.Engine):
    name = "sqlite"
    metrics = ("cosine",)
    keeps_nulls = True

    def create(self, collection, dim, metric="cosine", id_type="string", rows=None, float16=False):
        key = "INTEGER" if id_type == "int64" else "TEXT"
        self.connection.execute(
            f"CREATE TABLE {quoted(collection)} (id {key} PRIMARY KEY, embedding BLOB, text TEXT, lang TEXT)"
        )
        self.put(collection, rows or [])

    def put(self, collection, rows):
        statement = (
            f"INSERT INTO {quoted(collection)} (id, embedding, text, lang) VALUES (?, ?, ?, ?) ON CONFLICT (id) "
            "DO UPDATE SET embedding = excluded.embedding, text = excluded.text, lang = excluded.lang"
        )
        with self.connection:
            named = ((row["id"], blob(row["vector"]), row["text"], row["lang"]) for row in rows)
            self.connection.executemany(statement, named)

    def rows(self, collection, target=None):
        beside = quoted(f"embedding_{target}") if target else "NULL"
        query = f"SELECT id, embedding, text, lang, {beside} FROM {quoted(collection)}"
        return {
            one: {"id": one, "vector": values(vector), "text": text, "lang": lang}
            | ({"target": values(there)} if target else {})
            for one, vector, text, lang, there in self.connection.execute(query)
        }

    def objects(self):
        schema = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        tables = [one for (one,) in self.connection.execute(schema)]
        columns = {
            f"{table}.{column}"
            for table in tables
            for (column,) in self.connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))
        }
        return super().objects() | columns
