"""What only SQLite has: columns of vec0 tables, types of values, names, and other connections during a switch."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from compatstore.errors import InvalidInput, NotFound, StorageError, UpgradeError
from compatstore.stores.address import Address
from compatstore.stores.store import ID, KNOWN, MADE_FROM, VECTOR, Parts, matrix, vector_column

pytest.importorskip("apsw")
pytest.importorskip("sqlite_vec")

from stores.engines.sqlite_vec import blob, connect

DIM, LONG = 4, 6
UNNAMED = Parts()
X, Y = (np.random.default_rng(seed).normal(size=(5, dim)).astype(np.float32) for seed, dim in ((0, DIM), (1, LONG)))


@pytest.fixture
def app(tmp_path):
    """A connection of the app."""
    with closing(connect(tmp_path / "app.db")) as connection:
        yield connection


def opened(app, table="docs"):
    return closing(Address.of(f"sqlite:{app.filename}#{table}").open())


def fill(app, columns="text", *values):
    """A vec0 table of five rows."""
    names = [column.lstrip("+").split()[0] for column in columns.split(", ")]
    app.execute(f"CREATE VIRTUAL TABLE docs USING vec0(embedding float[{DIM}], {columns})")
    marks = ", ".join("?" for _ in names)
    for vector in X:
        app.execute(f"INSERT INTO docs (embedding, {', '.join(names)}) VALUES (?, {marks})", (blob(vector), *values))


def push(store, parts=UNNAMED):
    store.describe(parts)
    store.prepare("v2", LONG, "cosine")
    there = pa.concat_tables(store.scan(parts))
    count = len(there)
    rows = {
        ID: there[ID],
        VECTOR: vector_column(Y[:count], LONG),
        MADE_FROM: there[VECTOR],
        KNOWN: pa.nulls(count, pa.binary()),
    }
    assert len(store.write("v2", pa.table(rows))) == count


def test_rows_of_vec0_without_a_key_have_their_numbers_for_ids(app):
    fill(app, "kind text partition key, size integer, good boolean, +note text", "a", 3, True, None)
    with opened(app) as store:
        about = store.describe()
        assert (about.parts.id, about.id_type, about.metric, about.dim) == ("rowid", "int64", "l2", DIM)
        assert set(about.parts.metadata) == {"kind", "size", "good", "note"}
        push(store, Parts(metadata=about.parts.metadata))
        store.switch("v2")
        (rows,) = store.scan(Parts(metadata=about.parts.metadata))
        assert rows.select([ID, "kind", "size", "good", "note"]).to_pylist()[4] == {
            "id": 5, "kind": "a", "size": 3, "good": True, "note": None,
        }  # fmt: skip
        np.testing.assert_array_equal(matrix(rows[VECTOR]), Y)


def test_a_switch_follows_the_values_and_deletes_of_the_app(app):
    fill(app, "lang text, +note text", "en", "a note")
    with opened(app) as store:
        push(store)
        app.execute("UPDATE docs SET lang = 'de', note = 'another' WHERE rowid = 2")
        app.execute("DELETE FROM docs WHERE rowid = 3")
        assert list(app.execute("SELECT count(*) FROM docs")) == [(4,)]
        store.switch("v2")
        query = "SELECT rowid, lang, note, length(embedding) FROM docs ORDER BY rowid LIMIT 2"
        assert list(app.execute(query)) == [(1, "en", "a note", LONG * 4), (2, "de", "another", LONG * 4)]
        assert [one for (one,) in app.execute("SELECT rowid FROM docs")] == [1, 2, 4, 5]
        nearest = "SELECT rowid FROM docs WHERE embedding MATCH ? AND k = 1"
        assert list(app.execute(nearest, (blob(Y[4]),))) == [(5,)]
        app.execute("INSERT INTO docs (embedding, lang) VALUES (?, 'en')", (blob(Y[0]),))
        with pytest.raises(UpgradeError, match="Switch back"):
            store.drop("v2")
        store.switch_back("v2")
        assert list(app.execute(nearest, (blob(X[4]),))) == [(5,)]


def test_tables_of_similar_names_are_left_alone(app):
    fill(app, "text text", "a")
    app.execute("CREATE TABLE docs_v2_chunks_of_mine (x)")
    app.execute("CREATE TABLE docs_texts (x)")
    with opened(app) as store:
        push(store)
        store.switch("v2")
        store.switch_back("v2")
        store.drop("v2")
    names = {one for (one,) in app.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert {"docs_v2_chunks_of_mine", "docs_texts"} <= names
    assert not [name for name in names if name.startswith("docs_v2") and name != "docs_v2_chunks_of_mine"]


@pytest.mark.parametrize(
    ("schema", "wanted", "error", "words"),
    [
        ("CREATE VIEW docs AS SELECT 1", Parts(), InvalidInput, "a view"),
        ("CREATE TABLE docs (a, b, e BLOB, PRIMARY KEY (a, b))", Parts(), InvalidInput, "one key"),
        ("CREATE TABLE docs (id INTEGER, e BLOB)", Parts("id", "e"), InvalidInput, "unique"),
        ("CREATE TABLE docs (id TEXT PRIMARY KEY, body TEXT)", Parts(), InvalidInput, "BLOB column"),
        ("CREATE TABLE docs (id TEXT PRIMARY KEY, e BLOB)", Parts("id", "f"), NotFound, "among id, e"),
        ("CREATE VIRTUAL TABLE docs USING vec0(a float[4], b float[4])", Parts(), InvalidInput, "a, b"),
        ("CREATE VIRTUAL TABLE docs USING vec0(a int8[4])", Parts(), InvalidInput, "float vectors"),
        ("CREATE VIRTUAL TABLE docs USING vec0(a float[4] distance_metric=l1)", Parts(), InvalidInput, "l1"),
        ("CREATE TABLE others (x)", Parts(), NotFound, "among others"),
    ],
)
def test_tables_that_cannot_be_mirrored_are_refused_with_the_reason(app, schema, wanted, error, words):
    app.execute(schema)
    with opened(app) as store, pytest.raises(error, match=words):
        store.describe(wanted)


@pytest.mark.parametrize("values", [[("a", b"123")], [("a", b"1234"), ("b", b"12345678")], [("a", "text")]])
def test_blobs_that_are_no_vectors_are_refused(app, values):
    app.execute("CREATE TABLE docs (id TEXT PRIMARY KEY, e BLOB)")
    app.executemany("INSERT INTO docs VALUES (?, ?)", values)
    with opened(app) as store, pytest.raises(InvalidInput, match="of one length"):
        store.describe(Parts("id", "e"))


def test_ids_of_several_types_are_refused(app):
    app.execute("CREATE TABLE docs (id ANY PRIMARY KEY, e BLOB)")
    app.executemany("INSERT INTO docs VALUES (?, ?)", [(1, blob(X[0])), ("x", blob(X[0]))])
    with opened(app) as store, pytest.raises(InvalidInput, match="texts alone, or integers alone"):
        store.describe()


def test_names_of_columns_are_quoted_and_triggers_are_noted(app):
    app.execute(
        'CREATE TABLE docs ("the ""id""" TEXT UNIQUE NOT NULL, "select; --" BLOB, "ü text" TEXT, raw BLOB, n REAL)'
    )
    app.execute("CREATE TRIGGER noted AFTER UPDATE ON docs BEGIN SELECT 1; END")
    row = ("a'b", blob(X[0]), "words", b"123", 1.5)
    app.execute("INSERT INTO docs VALUES (?, ?, ?, ?, ?)", row)
    parts = Parts('the "id"', "select; --", "ü text", ("n",))
    with opened(app) as store:
        about = store.describe(Parts(parts.id))
        assert (about.parts.vector, about.dim) == (parts.vector, DIM)
        assert any("triggers" in note for note in about.notes)
        assert any("raw" in note for note in about.notes)
        push(store, parts)
        store.switch("v2")
        (rows,) = store.scan(parts)
        assert rows.drop_columns(VECTOR).to_pylist() == [{"id": "a'b", "source": "words", "n": 1.5}]
        store.switch_back("v2")
        store.drop("v2")
    assert list(app.execute("SELECT * FROM docs")) == [row]


def test_a_condition_of_a_search_reads_and_does_nothing_else(app):
    fill(app, "lang text", "en")
    with opened(app) as store:
        assert len(store.search(None, X[0], 3, "lang = 'en'")[0]) == 3
        assert len(store.search(None, X[0], 3, "lang = 'de'")[0]) == 0
        for condition in ("1); DELETE FROM docs; --", "1); PRAGMA user_version = 3; --"):
            with pytest.raises(StorageError):
                store.search(None, X[0], 3, condition)
    assert list(app.execute("SELECT count(*) FROM docs")) == [(5,)]


def test_what_is_no_database_and_a_metric_that_vec0_lacks_are_refused(app, tmp_path):
    with pytest.raises(NotFound, match="no such file"):
        Address.of(f"sqlite:{tmp_path}/absent.db#docs").open()
    assert not (tmp_path / "absent.db").exists()
    (tmp_path / "other.db").write_text("no database at all " * 100)
    with (
        pytest.raises(StorageError, match="not a database"),
        closing(Address.of(f"sqlite:{tmp_path}/other.db#docs").open()) as store,
    ):
        store.describe()
    fill(app, "lang text", "en")
    with opened(app) as store, pytest.raises(InvalidInput, match="cosine"):
        store.prepare("v2", LONG, "dot")
