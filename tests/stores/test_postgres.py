"""What only PostgreSQL has: schemas, kinds of tables, keys and types, operator classes, locks, roles, its errors."""

from __future__ import annotations

import datetime
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from stores.engines.postgres import Engine, psycopg

from compatstore.errors import AlreadyExists, CompatStoreWarning, InvalidInput, NotFound, StorageError, UpgradeError
from compatstore.stores.address import Address
from compatstore.stores.store import Parts, digests, matrix, vector_column

RNG = np.random.default_rng(7)
X, Y = (RNG.standard_normal((5, dim), np.float32) for dim in (3, 4))
ROWS = [{"id": f"k{i}", "vector": x, "text": f"text {i}", "lang": "en" if i % 2 else "de"} for i, x in enumerate(X)]
PARTS = Parts("id", "embedding")


@pytest.fixture(scope="module")
def engine():
    engine = Engine()
    yield engine
    engine.close()


@pytest.fixture
def app(engine):
    """An engine with an empty database, but for pgvector."""
    yield engine
    engine.clear()


@pytest.fixture
def opened(app):
    """Open a table: opened(collection, **parts)."""
    stores = []

    def open_(collection, **parts):
        stores.append(replace(Address.of(app.address(collection)), parts=Parts(**parts)).open())
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


@pytest.fixture
def docs(app, opened):
    app.create("docs", 3, rows=ROWS)
    return opened("docs")


def to_write(ids, vectors, made_from, known=None):
    rows = {"id": pa.array(ids), "vector": vector_column(vectors, vectors.shape[1])}
    made = made_from if isinstance(made_from, pa.Array) else vector_column(made_from, made_from.shape[1])
    return pa.table(rows | {"made_from": made, "known": pa.array(known or [None] * len(ids), pa.binary())})


def everything(store, parts=PARTS, target=None):
    return pa.concat_tables(store.scan(parts, target))


def test_names_of_any_content_are_quoted(app, opened):
    schema, name, vector = 'my "schema".x', 'do"cs; %s {table} ü', 'em"b %(a)s {target}'
    app.execute("CREATE SCHEMA {schema}", schema=schema)
    statement = 'CREATE TABLE {table} ("i\'d {{}} %%" text PRIMARY KEY, {vector} vector(3), "m %% {{x}}" int)'
    app.execute(statement, (), table=f"{schema}\n{name}", vector=vector)
    app.execute("INSERT INTO {table} VALUES ('a', '[1,2,3]', 7)", table=f"{schema}\n{name}")
    store = opened(f"{schema}.{name}")
    parts = store.describe().parts
    assert parts == Parts("i'd {} %", vector, metadata=("m % {x}",))
    assert everything(store, parts).to_pylist() == [{"id": "a", "vector": [1, 2, 3], "m % {x}": 7}]
    store.prepare("v2", 4, "cosine")
    assert store.write("v2", to_write(["a"], Y[:1], np.array([[1, 2, 3]], np.float32))) == ["a"]
    store.switch("v2")
    np.testing.assert_array_equal(matrix(everything(store, parts)["vector"]), Y[:1])
    ids, distances = store.search("v2", Y[0], 1, "\"m % {x}\" % 2 = 1 AND 'a%' LIKE '%'")
    assert ids == ["a"]
    assert distances[0] == pytest.approx(0, abs=1e-6)
    store.switch_back("v2")
    store.drop("v2")
    assert set(store.describe().columns) == {"i'd {} %", vector, "m % {x}"}


def test_a_table_is_found_by_the_search_path_or_its_schema(app, opened):
    app.execute("CREATE SCHEMA other")
    app.create("docs", 3, rows=ROWS)
    app.execute("CREATE TABLE other.docs (id bigint PRIMARY KEY, embedding vector(5))")
    assert opened("docs").describe().dim == 3
    assert opened("other.docs").describe().dim == 5
    app.execute('CREATE TABLE "other.docs" (id bigint PRIMARY KEY, embedding vector(6))')
    with pytest.raises(InvalidInput, match=r"other\.docs and public\.other\.docs|public\.other\.docs and other\.docs"):
        opened("other.docs").describe()
    assert opened("public.other.docs").describe().dim == 6
    with pytest.raises(NotFound, match="no_such"):
        opened("no_such").describe()


def test_what_is_no_table_is_refused(app, opened):
    app.create("docs", 3)
    app.execute("CREATE VIEW shown AS SELECT * FROM docs")
    app.execute("CREATE MATERIALIZED VIEW copied AS SELECT * FROM docs")
    app.execute("CREATE FOREIGN DATA WRAPPER none")
    app.execute("CREATE SERVER far FOREIGN DATA WRAPPER none")
    app.execute("CREATE FOREIGN TABLE far_docs (id text, embedding vector(3)) SERVER far")
    for name, kind in (("shown", "a view"), ("copied", "a materialised view"), ("far_docs", "a foreign table")):
        with pytest.raises(InvalidInput, match=kind):
            opened(name).describe()
    app.execute("DROP FOREIGN DATA WRAPPER none CASCADE")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("a int, b int, PRIMARY KEY (a, b)", r"composite key \(a, b\)"),
        ("id int UNIQUE", r'ADD UNIQUE \("id"\), ALTER COLUMN "id" SET NOT NULL'),
        ("id numeric PRIMARY KEY", "'id' of type numeric"),
        ("word text NOT NULL", "no such column"),
    ],
)
def test_ids_are_one_column_that_is_unique_and_never_null(app, opened, columns, reason):
    app.execute(f"CREATE TABLE docs (embedding vector(3), {columns})")
    with pytest.raises(InvalidInput, match=reason):
        opened("docs").describe()


def test_a_unique_column_is_the_id_where_the_key_is_not_or_the_user_says_so(app, opened):
    columns = "a int, b int, slug text NOT NULL UNIQUE, embedding vector(3)"
    app.execute(f"CREATE TABLE docs ({columns}, PRIMARY KEY (a, b))")
    app.execute(f"CREATE TABLE keyed ({columns}, PRIMARY KEY (a))")
    app.execute("INSERT INTO keyed VALUES (1, 2, 'one', '[1,2,3]')")
    assert opened("docs").describe().parts.id == "slug"
    assert opened("keyed").describe().parts.id == "a"
    store = opened("keyed", id="slug")
    assert store.describe().parts == Parts("slug", "embedding", metadata=("a", "b"))
    store.prepare("v2", 4, "cosine")
    assert store.write("v2", to_write(["one"], Y[:1], np.array([[1, 2, 3]], np.float32))) == ["one"]
    with pytest.raises(InvalidInput, match="'b', which is not unique"):
        opened("keyed", id="b").describe()


@pytest.mark.parametrize(
    ("kind", "ids", "foreign"),
    [
        ("bigint", [1, -(2**63), 2**63 - 1], ["1", 2**63, 7]),
        ("int", [1, -(2**31), 2**31 - 1], [2**40]),
        ("smallint", [1, 2, 3], [2**40]),
        ("uuid", [f"6ba7b81{i}-9dad-11d1-80b4-00c04fd430c8" for i in range(3)], ["", "x", "6BA7B810-9DAD"]),
        ("varchar(9)", ["", "NULL", '{"a"}'], ["a\0b", "\\"]),
    ],
)
def test_keys_of_all_types_go_there_and_back(app, opened, kind, ids, foreign):
    app.create("docs", 3, id_type=kind, rows=[{"id": one, "vector": x} for one, x in zip(ids, X, strict=False)])
    store = opened("docs")
    is_number = isinstance(ids[0], int)
    assert store.describe().id_type == ("int64" if is_number else "string")
    rows = everything(store)
    assert rows.schema.field("id").type == (pa.int64() if is_number else pa.string())
    assert set(rows["id"].to_pylist()) == set(ids)
    strange = foreign if is_number else [*foreign, 5]
    assert set(store.read([*ids[:2], *strange], PARTS)["id"].to_pylist()) == set(ids[:2])
    assert not len(store.read(strange, PARTS))
    store.prepare("v2", 4, "cosine")
    assert set(store.write("v2", to_write(ids, Y[:3], X[:3]))) == set(ids)
    assert store.search("v2", Y[1], 1)[0] == ids[1:2]
    store.remove("v2", [ids[0], *strange])
    assert set(pa.concat_tables(store.read_target("v2"))["id"].to_pylist()) == set(ids[1:])


def test_one_of_several_vectors_is_named(app, opened):
    app.execute("CREATE TABLE docs (id int PRIMARY KEY, title vector(3), body halfvec(3), n int)")
    app.execute("INSERT INTO docs VALUES (1, '[1,2,3]', '[4,5,6]', 0)")
    with pytest.raises(InvalidInput, match="'title', 'body'"):
        opened("docs").describe()
    with pytest.raises(InvalidInput, match="'n' of type integer"):
        opened("docs", vector="n").describe()
    with pytest.raises(NotFound, match="Did you mean 'body'"):
        opened("docs", vector="bdy").describe()
    for vector in ("title", "body"):
        store = opened("docs", vector=vector)
        assert store.describe().parts == Parts("id", vector, metadata=("n",))
        store.prepare("v2" if vector == "title" else "v3", 4, "cosine")
    assert {"title_v2", "body_v3"} < set(store.describe().columns)
    made_from = np.array([[4, 5, 6]], np.float32)
    assert opened("docs").write("v3", to_write([1], Y[:1], made_from)) == [1]
    with pytest.raises(InvalidInput, match="one column of type vector or halfvec"):
        opened("docs").describe()


def test_a_table_without_vectors_is_refused(app, opened):
    app.execute("CREATE TABLE docs (id int PRIMARY KEY)")
    with pytest.raises(InvalidInput, match="found none"):
        opened("docs").describe()


def test_partitions_are_one_table(app, opened):
    app.execute(
        "CREATE TABLE docs (id text PRIMARY KEY, embedding vector(3), text text, lang text) PARTITION BY HASH (id)"
    )
    for at in range(2):
        app.execute(f"CREATE TABLE docs{at} PARTITION OF docs FOR VALUES WITH (MODULUS 2, REMAINDER {at})")
    app.put("docs", ROWS)
    before, store = app.objects(), opened("docs")
    assert store.describe().rows == 5
    store.prepare("v2", 4, "cosine")
    assert len(store.write("v2", to_write([row["id"] for row in ROWS], Y, X))) == 5
    assert all(everything(store, target="v2")["in_target"].to_pylist())
    store.switch("v2")
    np.testing.assert_array_equal(app.rows("docs")["k3"]["vector"], Y[3])
    store.switch_back("v2")
    store.drop("v2")
    assert app.objects() == before


@pytest.mark.parametrize("kind", ["vector", "halfvec"])
@pytest.mark.parametrize(("metric", "operators"), [("cosine", "cosine"), ("l2", "l2"), ("dot", "ip")])
def test_the_operator_class_of_an_index_says_the_metric(app, opened, kind, metric, operators):
    app.create("docs", 3, float16=kind == "halfvec", rows=ROWS)
    app.execute(f"CREATE INDEX ON docs USING hnsw (embedding {kind}_{operators}_ops)")
    store = opened("docs")
    assert store.describe().metric == metric
    stored = matrix(everything(store)["vector"])
    query = X[0]
    exact = {
        "cosine": 1 - stored @ query / np.linalg.norm(stored, axis=1) / np.linalg.norm(query),
        "l2": np.linalg.norm(stored - query, axis=1),
        "dot": -stored @ query,
    }[metric]
    ids, distances = store.search(None, query, 3)
    assert ids == [f"k{i}" for i in np.argsort(exact)[:3]]
    np.testing.assert_allclose(distances, np.sort(exact)[:3], atol=2e-3)


def test_the_metric_is_that_of_an_index_over_a_cast_and_a_guess_is_noted(app, opened, docs):
    assert docs.describe().metric == "cosine"
    assert any("cosine is taken" in note for note in docs.describe().notes)
    app.execute("CREATE INDEX ON docs USING hnsw ((embedding::halfvec(3)) halfvec_l2_ops)")
    assert docs.describe().metric == "l2"
    assert not any("is taken" in note for note in docs.describe().notes)
    assert docs.search(None, X[1], 1)[0] == ["k1"]
    app.execute("CREATE INDEX ON docs USING hnsw (embedding vector_ip_ops)")
    assert any("Indexes of l2 and dot are there" in note for note in docs.describe().notes)


def test_a_search_by_an_index_gives_k_rows_also_behind_a_condition(app, opened):
    app.execute("CREATE TABLE docs (id int PRIMARY KEY, embedding vector(3), lang text)")
    app.execute(
        "INSERT INTO docs SELECT i, ARRAY[sin(i), cos(i), sin(i * i)]::real[]::vector, "
        "CASE WHEN i %% 50 = 0 THEN 'de' END FROM generate_series(1, 3000) i",
        (),
    )
    app.execute("CREATE INDEX ON docs USING hnsw (embedding vector_l2_ops)")
    app.execute("ANALYZE docs")
    store = opened("docs")
    assert len(store.search(None, X[0], 100)[0]) == 100
    assert len(store.search(None, X[0], 30, "lang = 'de' -- half a line")[0]) == 30


def test_a_condition_runs_alone_and_writes_nothing(app, docs):
    before = app.rows("docs")
    app.execute("CREATE FUNCTION erase() RETURNS bool LANGUAGE sql AS 'DELETE FROM docs; SELECT true'")
    for condition in ("true); DROP TABLE docs; --", "true) ; COMMIT; DELETE FROM docs; --", "nothing = 1", "'"):
        with pytest.raises(InvalidInput):
            docs.search(None, X[0], 2, condition)
    with pytest.raises(StorageError, match="read-only transaction"):
        docs.search(None, X[0], 2, "erase()")
    assert app.rows("docs").keys() == before.keys()
    assert docs.search(None, X[0], 5, "lang = 'en'")[0]


def test_metadata_keeps_its_types_and_what_has_none_in_arrow_is_noted(app, opened):
    columns = {
        "a_bool": ("bool", "true", pa.bool_(), True),
        "a_int2": ("int2", "-7", pa.int16(), -7),
        "a_int4": ("int4", "-70000", pa.int32(), -70000),
        "a_int8": ("int8", str(2**40), pa.int64(), 2**40),
        "a_float4": ("float4", "1.5", pa.float32(), 1.5),
        "a_float8": ("float8", "0.1", pa.float64(), 0.1),
        "a_numeric": ("numeric(9,2)", "12.25", pa.float64(), 12.25),
        "a_text": ("text", "ü 'x'", pa.string(), "ü 'x'"),
        "a_json": ("jsonb", '{"a": 1}', pa.string(), '{"a": 1}'),
        "a_uuid": ("uuid", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", pa.string(), "6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        "a_mood": ("mood", "fine", pa.string(), "fine"),
        "a_day": ("date", "1999-12-31", pa.date32(), datetime.date(1999, 12, 31)),
        "a_time": ("timestamp", "1969-07-20 20:17:40", pa.timestamp("us"), datetime.datetime(1969, 7, 20, 20, 17, 40)),
        "a_moment": (
            "timestamptz",
            "2026-01-02 03:04:05+01",
            pa.timestamp("us", "UTC"),
            datetime.datetime(2026, 1, 2, 2, 4, 5, tzinfo=datetime.UTC),
        ),
    }
    app.execute("CREATE TYPE mood AS ENUM ('fine', 'bad')")
    declared = ", ".join(f"{name} {kind}" for name, (kind, *_) in columns.items())
    app.execute(f"CREATE TABLE docs (id int PRIMARY KEY, embedding vector(3), tags text[], source text, {declared})")
    marks = ", ".join(["%s"] * len(columns))
    values = [value for _, value, *_ in columns.values()]
    app.execute(f"INSERT INTO docs VALUES (1, '[1,2,3]', '{{}}', 's', {marks})", values)
    app.execute(
        "INSERT INTO docs (id, a_day, a_time, a_moment) VALUES (2, 'infinity', '-infinity', 'infinity'), "
        "(3, NULL, NULL, NULL)"
    )
    store = opened("docs")
    description = store.describe()
    assert description.parts.metadata == tuple(columns)
    assert "Column 'tags' is not copied: its type is text[]." in description.notes
    assert "Column 'source' is not copied: a mirror has another column of that name." in description.notes
    rows = everything(store, replace(description.parts, source="source"))
    assert {name: rows.schema.field(name).type for name in columns} == {
        name: kind for name, (*_, kind, _) in columns.items()
    }
    first, *others = sorted(rows.to_pylist(), key=lambda row: row["id"])
    assert {name: first[name] for name in columns} == {name: value for name, (*_, value) in columns.items()}
    assert first["source"] == "s"
    for row in others:
        assert set(row.values()) == {row["id"], None}


def test_vectors_without_a_declared_length_have_that_of_the_first(app, opened):
    app.execute("CREATE TABLE docs (id int PRIMARY KEY, embedding vector)")
    store = opened("docs")
    assert store.describe().dim == 0
    app.execute("INSERT INTO docs VALUES (1, NULL), (2, '[1,2]')")
    assert store.describe().dim == 2
    assert everything(store).num_rows == 2
    app.execute("INSERT INTO docs VALUES (3, '[1,2,3]')")
    with pytest.raises(StorageError, match="2 values each; found one of 3 values"):
        everything(store)


def test_source_vectors_of_half_precision_are_compared_as_they_are(app, opened):
    app.create("docs", 3, float16=True, rows=ROWS)
    store = opened("docs")
    rows = everything(store).sort_by("id")
    store.prepare("v2", 4, "cosine")
    made_from = rows["vector"].combine_chunks()
    assert len(store.write("v2", to_write(rows["id"].to_pylist(), Y, made_from))) == 5
    np.testing.assert_array_equal(app.rows("docs", "v2")["k2"]["target"], Y[2])


def test_a_target_that_no_index_takes_as_it_is_comes_with_a_warning(app, docs):
    with pytest.warns(CompatStoreWarning, match=r"::halfvec\(3000\)\) halfvec_l2_ops"):
        docs.prepare("v2", 3000, "l2")
    vectors = RNG.standard_normal((5, 3000), np.float32)
    assert len(docs.write("v2", to_write([row["id"] for row in ROWS], vectors, X))) == 5
    assert docs.search("v2", vectors[4], 1)[0] == ["k4"]
    app.connection.execute(docs.index_statement("v2"))
    assert docs.search("v2", vectors[3], 1)[0] == ["k3"]


def test_a_column_of_the_app_is_no_target(app, opened):
    app.create("docs", 3, rows=ROWS)
    docs = opened("docs", vector="embedding")
    app.execute("ALTER TABLE docs ADD COLUMN embedding_v2 vector(4), ADD COLUMN embedding_before_v3 int")
    before = app.objects()
    assert docs.has("v2")
    for version in ("v2", "v3"):
        with pytest.raises(AlreadyExists, match="one of the app's"):
            docs.prepare(version, 4, "cosine")
    for call in (docs.switch, docs.switch_back, lambda version: list(docs.read_target(version))):
        with pytest.raises(NotFound, match="that compatstore added"):
            call("v2")
    docs.drop("v2")
    docs.drop_source("v2")
    assert app.objects() == before


def test_names_that_the_server_would_cut_are_refused(app, docs):
    with pytest.raises(InvalidInput, match="63 bytes at most"):
        docs.prepare("v" * 50, 4, "cosine")
    docs.prepare("v2", 4, "cosine")
    with pytest.raises(InvalidInput, match="5 values a vector"):
        docs.prepare("v2", 5, "cosine")


def test_a_lock_that_is_not_had_is_given_up_for_the_app(app, docs, monkeypatch):
    monkeypatch.setattr("compatstore.stores.postgres.DDL_WAIT", 0.1)
    with psycopg.connect(app.uri) as other:
        other.execute("SELECT count(*) FROM docs")
        with pytest.raises(StorageError, match=r"lock timeout\. Another transaction holds the lock"):
            docs.prepare("v2", 4, "cosine")
    docs.prepare("v2", 4, "cosine")


def test_a_switch_that_fails_between_its_statements_changes_nothing(app, docs):
    docs.prepare("v2", 4, "cosine")
    docs.write("v2", to_write(["k0"], Y[:1], X[:1]))
    before = app.objects()
    for name in ("embedding_before_v2", "embedding"):
        app.execute(
            "CREATE FUNCTION stop() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN IF EXISTS (SELECT FROM "
            f"pg_event_trigger_ddl_commands() WHERE object_identity = 'public.docs.{name}') THEN RAISE 'cut here'; "
            "END IF; END $$"
        )
        app.execute("CREATE EVENT TRIGGER stopper ON ddl_command_end EXECUTE FUNCTION stop()")
        with pytest.raises(StorageError, match="cut here"):
            docs.switch("v2")
        app.execute("DROP EVENT TRIGGER stopper; DROP FUNCTION stop()")
        assert not docs.is_switched("v2")
        assert app.objects() == before
    docs.switch("v2")
    assert docs.is_switched("v2")
    np.testing.assert_array_equal(app.rows("docs")["k0"]["vector"], Y[0])


def test_a_switch_of_a_required_column_lets_the_app_add_rows(app, docs):
    app.execute("ALTER TABLE docs ALTER COLUMN embedding SET NOT NULL")
    assert any("NOT NULL" in note for note in docs.describe().notes)
    docs.prepare("v2", 4, "cosine")
    docs.switch("v2")
    app.put("docs", [{"id": "new", "vector": Y[0]}])
    docs.switch_back("v2")
    app.put("docs", [{"id": "other", "vector": None}])
    app.delete("docs", ["other"])
    app.delete("docs", ["new"])
    docs.switch("v2")
    docs.switch_back("v2")
    with pytest.raises(psycopg.errors.NotNullViolation):
        app.put("docs", [{"id": "new", "vector": None}])


def test_after_a_switch_target_vectors_are_written_under_the_name_of_the_app(app, docs):
    docs.prepare("v2", 4, "cosine")
    docs.switch("v2")
    assert docs.describe().parts.vector == "embedding"
    assert docs.describe().dim == 4
    assert docs.has("v2")
    assert docs.write("v2", to_write(["k0", "k1"], Y[:2], X[1::-1])) == []
    assert docs.write("v2", to_write(["k0", "k1"], Y[:2], X[:2])) == ["k0", "k1"]
    known = digests(vector_column(Y[:2], 4))
    assert docs.write("v2", to_write(["k0", "k1"], Y[2:4], X[:2], [known[0], known[0]])) == ["k0"]
    np.testing.assert_array_equal(app.rows("docs")["k0"]["vector"], Y[2])
    with pytest.raises(UpgradeError, match="Switch back first"):
        docs.drop("v2")
    app.execute("ALTER TABLE docs DROP COLUMN embedding_before_v2")
    with pytest.raises(UpgradeError, match="They were dropped"):
        docs.switch_back("v2")
    with pytest.raises(UpgradeError, match="They were dropped"):
        docs.write("v2", to_write(["k0"], Y[:1], X[:1]))
    docs.drop_source("v2")
    docs.drop_source("v2")
    assert not [one for one in app.objects() if "compatstore" in one]
    docs.prepare("v3", 5, "cosine")
    assert docs.describe().parts.vector == "embedding"
    docs.switch("v3")
    assert (docs.is_switched("v2"), docs.is_switched("v3")) == (False, True)


def test_a_switch_to_vectors_without_an_index_says_what_to_make(app, docs):
    app.execute("CREATE INDEX ON docs USING hnsw (embedding vector_cosine_ops)")
    docs.prepare("v2", 4, "cosine")
    with pytest.warns(CompatStoreWarning, match="searches read the whole table"):
        docs.switch("v2")
    docs.switch_back("v2")
    app.connection.execute(docs.index_statement("v2"))
    docs.switch("v2")
    assert "v2" in str(docs.app_change("v2"))


def test_views_and_triggers_of_the_app_are_noted(app, docs):
    app.execute("CREATE VIEW shown AS SELECT id, embedding FROM docs")
    app.execute("CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    app.execute("CREATE TRIGGER stamped BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION stamp()")
    app.execute("CREATE TRIGGER other BEFORE UPDATE OF text ON docs FOR EACH ROW EXECUTE FUNCTION stamp()")
    app.execute("CREATE INDEX near ON docs USING hnsw (embedding vector_cosine_ops)")
    notes = " ".join(docs.describe().notes)
    assert "after a switch: shown." in notes
    assert "'stamped'." in notes
    assert "entered again into 'near'" in notes
    docs.prepare("v2", 4, "cosine")
    with pytest.warns(CompatStoreWarning, match="index"):
        docs.switch("v2")
    with pytest.raises(StorageError, match="still reads the column"):
        docs.drop_source("v2")


@pytest.mark.parametrize("dim", [300, 1000])
def test_most_rows_are_in_an_index_of_the_app_only_once(app, opened, dim):
    vectors = RNG.standard_normal((300, dim), np.float32)
    rows = [{"id": at, "vector": vector} for at, vector in enumerate(vectors)]
    app.create("docs", dim, id_type="bigint", rows=rows)
    app.execute("CREATE INDEX ON docs USING hnsw (embedding vector_cosine_ops)")
    store = opened("docs")
    store.prepare("v2", 4, "cosine")
    written = store.write("v2", to_write(range(300), RNG.standard_normal((300, 4), np.float32), vectors))
    assert sorted(written) == list(range(300))
    store.close()
    counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'docs'"
    while (counts := app.execute(counted).fetchone())[0] < 300:
        pass
    assert counts[1] > 150


def test_a_row_that_the_app_is_changing_is_compared_as_it_becomes(app, docs):
    docs.prepare("v2", 4, "cosine")
    written = []
    with psycopg.connect(app.uri) as other:
        other.execute("UPDATE docs SET embedding = '[9,9,9]' WHERE id = 'k0'")
        other.execute("UPDATE docs SET text = 'other words' WHERE id = 'k1'")
        thread = threading.Thread(target=lambda: written.extend(docs.write("v2", to_write(["k0", "k1"], Y[:2], X[:2]))))
        thread.start()
        while not app.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
            pass
    thread.join()
    assert written == ["k1"]


def test_a_stream_is_of_one_moment_and_other_calls_come_between(app, opened):
    app.execute("CREATE TABLE docs (id int PRIMARY KEY, embedding vector(3))")
    app.execute("INSERT INTO docs SELECT i, '[1,2,3]' FROM generate_series(1, 20000) i")
    store, seen = opened("docs"), 0
    for batch in store.scan(PARTS):
        seen += len(batch)
        app.execute("DELETE FROM docs")
        assert not len(store.read([1], PARTS))
    assert seen == 20000
    app.execute("INSERT INTO docs SELECT i, '[1,2,3]' FROM generate_series(1, 20000) i")
    stream = store.scan(PARTS)
    next(stream)
    stream.close()
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle'"
    assert app.execute(others).fetchone() == (1,)


def test_a_connection_that_was_cut_is_made_again_by_the_next_call(app, docs):
    docs.describe()
    cut = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    app.execute(cut)
    with pytest.raises(StorageError, match="the same command goes on"):
        docs.describe()
    assert docs.describe().rows == 5
    stream = docs.scan(PARTS)
    app.execute("INSERT INTO docs SELECT 'n' || i, '[1,2,3]' FROM generate_series(1, 100000) i")
    next(stream)
    app.execute(cut)
    with pytest.raises(StorageError, match="the same command goes on"):
        list(stream)
    assert sum(map(len, docs.scan(PARTS))) == 100005


def test_a_role_without_rights_learns_which_and_no_secret_is_shown(app, docs):
    if not app.has_role("visitor"):
        app.execute("CREATE ROLE visitor LOGIN PASSWORD 'k%3A/s3cret'")
    app.execute("GRANT SELECT ON docs TO visitor")
    uri = app.uri.replace("//postgres:@", "//visitor:k%253A%2Fs3cret@")
    store = Address.of(f"{uri}#docs").open()
    assert len(everything(store)) == 5
    docs.prepare("v2", 4, "cosine")
    for call in (
        lambda: store.prepare("v3", 4, "cosine"),
        lambda: store.write("v2", to_write(["k0"], Y[:1], X[:1])),
        lambda: store.drop("v2"),
    ):
        with pytest.raises(StorageError, match="grant this user the right") as caught:
            call()
        assert "s3cret" not in str(caught.value)
    app.execute("ALTER TABLE docs ENABLE ROW LEVEL SECURITY")
    with pytest.raises(StorageError, match="row-level security"):
        store.describe()
    store.close()
    wrong = Address.of(f"{uri.replace(app.database, 's3cret')}#docs").open()
    with pytest.raises(StorageError, match="Check that the server runs") as caught:
        wrong.describe()
    assert "k%" not in str(caught.value)
    with pytest.raises(InvalidInput, match=r"%40 and %2F") as caught:
        Address.of("postgresql://app:se@cr/et@localhost/app#docs").open()
    assert "cr/et" not in str(caught.value)


def test_a_full_disk_is_an_error_that_says_so(app, docs):
    docs.prepare("v2", 4, "cosine")
    app.execute(
        "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE 'could not extend file: No space left' USING ERRCODE = 'disk_full'; END $$"
    )
    app.execute("CREATE TRIGGER filled BEFORE UPDATE ON docs FOR EACH ROW EXECUTE FUNCTION fill()")
    with pytest.raises(StorageError, match=r"No space left\. Free space"):
        docs.write("v2", to_write(["k0"], Y[:1], X[:1]))
    app.execute("DROP TRIGGER filled ON docs")
    assert docs.write("v2", to_write(["k0"], Y[:1], X[:1])) == ["k0"]
