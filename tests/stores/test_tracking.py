"""Change capture in PostgreSQL: a sync reads the rows that the app changed, all of them, and no others."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from shell import invoke
from stores.engines.postgres import Engine, psycopg, server
from stores.test_mirror import NAME, held, mirror, new, require_same, row_of, upgraded

import compatstore as cs
from compatstore.errors import InvalidInput, StorageError
from compatstore.stores import postgres_select
from compatstore.stores.ledger import MirrorLedger
from compatstore.stores.postgres_tracking import PREFIX, PostgresCapture

COUNT = 40
TRUNCATED = "the table was truncated or rewritten, or its partitions or triggers are others"
RESTORED = "the database or the gallery was restored or copied, or the server crashed"
KILLED = """
import os, signal, sys
import compatstore as cs
from compatstore.stores.postgres_tracking import PostgresCapture
forget = PostgresCapture.forget
def forget_and_die(*arguments):
    if sys.argv[2] == "after":
        forget(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
PostgresCapture.forget = forget_and_die
cs.Gallery.open(sys.argv[1]).sync()
"""


@pytest.fixture(scope="module")
def database():
    database = Engine()
    yield database
    database.close()


@pytest.fixture
def engine(database):
    """An engine with an empty database, but for pgvector."""
    yield database
    database.clear()


@pytest.fixture
def rows(engine):
    made = [row_of(f"id-{n}", f"word{n % 7} word{n % 11} word{n % 3}") for n in range(COUNT)]
    engine.create(NAME, 8, rows=made)
    return made


@pytest.fixture
def before(engine, rows):
    """What the database held before the mirror."""
    return engine.objects()


@pytest.fixture
def gallery(engine, rows, before, tmp_path):
    gallery = tracked(engine, tmp_path)
    gallery.sync()
    return gallery


@pytest.fixture
def read(monkeypatch):
    """Ids of the rows that the server sent since the last call."""
    fetched, ids = postgres_select.fetched, []

    def counted(found, columns):
        table = fetched(found, columns)
        ids.extend(table["id"].to_pylist())
        return table

    def taken():
        taken, ids[:] = list(ids), []
        return taken

    monkeypatch.setattr(postgres_select, "fetched", counted)
    return taken


def tracked(engine, tmp_path, **options):
    return mirror(engine, tmp_path, metadata=("lang",), **{"track": True, **options})


def records(engine):
    """Ids in the change tables of a database."""
    names = engine.execute(f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^{PREFIX}'").fetchall()
    query = "SELECT id FROM {table} WHERE number > 0 ORDER BY number"
    return [one for (name,) in names for (one,) in engine.execute(query, table=name)]


def require_in_step(engine, gallery):
    """The gallery holds what the database holds."""
    there, version = engine.rows(NAME), gallery.status().store.switched or gallery.status().store.source
    here = {row["id"]: row for row in gallery.scan(["id", "source", "lang", version]).to_arrow().to_pylist()}
    assert here.keys() == there.keys()
    for key, row in there.items():
        assert (here[key]["source"], here[key]["lang"]) == (row["text"], row["lang"])
        assert here[key][version] == (row["vector"] and pytest.approx(row["vector"], abs=1e-5))


def in_step(engine, gallery):
    """Sync, compare, and give the reason why all rows were compared."""
    done = gallery.sync()
    require_in_step(engine, gallery)
    return done.gap


# What is read


def test_a_sync_reads_the_changed_rows_alone(engine, gallery, read):
    execute = engine.execute
    engine.put(NAME, [row_of("id-1", "another text"), row_of("new", "an added text")])
    execute("UPDATE notes SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 'id-2'")
    execute("UPDATE notes SET lang = 'de' WHERE id = 'id-3'")
    execute("UPDATE notes SET embedding = NULL WHERE id = 'id-4'")
    engine.delete(NAME, ["id-5"])
    read()
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted, done.gap) == (1, 4, 1, "")
    assert sorted(read()) == ["id-1", "id-2", "id-3", "id-4", "new"]
    require_in_step(engine, gallery)
    assert records(engine) == []
    read()
    gallery.sync()
    assert read() == []


def test_columns_that_the_mirror_does_not_read_are_no_changes(engine, rows, tmp_path, read):
    engine.execute("ALTER TABLE notes ADD COLUMN views int")
    gallery = tracked(engine, tmp_path)
    read()
    engine.execute("UPDATE notes SET views = 7")
    engine.execute("UPDATE notes SET views = 8, text = text, embedding = embedding")
    assert records(engine) == []
    gallery.sync()
    assert read() == []


def test_each_way_to_change_a_row_is_recorded(engine, gallery):
    with engine.connection.cursor() as cursor, cursor.copy("COPY notes (id, text) FROM STDIN") as copy:
        copy.write("copied\twords\n")
    engine.execute("INSERT INTO notes (id, text) VALUES ('id-1', 'upserted') ON CONFLICT (id) DO UPDATE SET text = 'x'")
    engine.execute(
        "MERGE INTO notes USING (VALUES ('id-2'), ('merged')) AS v(id) ON notes.id = v.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, text) VALUES (v.id, 'merged')"
    )
    engine.execute("UPDATE notes SET id = 'renamed' WHERE id = 'id-3'")
    body = "'BEGIN NEW.text = upper(NEW.text); RETURN NEW; END'"
    engine.execute(f"CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS {body}")
    engine.execute("ALTER TABLE notes ADD COLUMN views int")
    engine.execute("CREATE TRIGGER shouting BEFORE UPDATE OF views ON notes FOR EACH ROW EXECUTE FUNCTION shout()")
    engine.execute("UPDATE notes SET views = 1 WHERE id = 'id-4'")
    engine.execute("BEGIN; SET LOCAL session_replication_role = replica; "
                   "UPDATE notes SET text = 'replicated' WHERE id = 'id-5'; COMMIT")  # fmt: skip
    assert sorted(records(engine)) == ["copied", "id-1", "id-2", "id-3", "id-4", "id-5", "merged", "renamed"]
    assert in_step(engine, gallery) == ""


def test_ids_of_numbers_and_names_of_any_content(engine, tmp_path):
    schema, table, columns = 'my "schema".%s', "no'tes; {x} ü", ("i'd {} %", 'em"b', "te\\xt")
    engine.execute("CREATE SCHEMA {schema}", schema=schema)
    named = dict(zip(("id", "vector", "text"), columns, strict=True))
    names = {"table": f"{schema}\n{table}", **named}
    engine.execute("CREATE TABLE {table} ({id} int PRIMARY KEY, {vector} vector(2), {text} text)", **names)
    engine.execute("INSERT INTO {table} VALUES (1, '[1,2]', 'a'), (2, '[3,4]', 'b')", **names)
    before = engine.objects()

    def mirrored(track):
        address = f"{engine.uri}#{schema}.{table}"
        return cs.Gallery.mirror(address, tmp_path / "odd.lance", id=columns[0], source=columns[2], track=track)

    gallery = mirrored(True)
    engine.execute("UPDATE {table} SET {id} = -7 WHERE {id} = 1", **names)
    engine.execute("UPDATE {table} SET {vector} = '[5,6]' WHERE {id} = 2", **names)
    done = gallery.sync()
    assert (done.added, done.changed, done.deleted, done.gap) == (1, 1, 1, "")
    assert held(gallery, "v1") == {-7: [1, 2], 2: [5, 6]}
    mirrored(False)
    assert engine.objects() == before


def test_target_vectors_that_an_upgrade_writes_are_no_changes_of_the_app(engine, gallery, rows, read):
    upgraded(gallery)
    assert records(engine) == []
    read()
    assert gallery.sync().written == 0
    assert read() == []
    engine.put(NAME, [row_of("id-1", "another text")])
    assert gallery.sync().changed == 1
    upgraded(gallery)
    require_same(engine, gallery, [row_of("id-1", "another text") if row["id"] == "id-1" else row for row in rows])


def test_a_row_that_was_deleted_and_added_again_gets_its_target_vector_again(engine, gallery, rows):
    upgraded(gallery)
    engine.delete(NAME, ["id-2"])
    engine.put(NAME, [rows[2]])
    assert gallery.sync().gap == ""
    require_same(engine, gallery, rows)


def test_many_changes_are_read_in_batches(engine, gallery, monkeypatch):
    monkeypatch.setattr("compatstore.stores.tracking.BATCH", 7)
    engine.execute("UPDATE notes SET text = text || ' more' WHERE id < 'id-3'")
    engine.execute("UPDATE notes SET lang = 'fr' WHERE id > 'id-2'")
    assert in_step(engine, gallery) == ""
    assert records(engine) == []


# Order


def test_a_transaction_that_commits_after_a_later_one_is_not_forgotten(engine, gallery):
    with psycopg.connect(engine.uri) as first, psycopg.connect(engine.uri) as second:
        first.execute("UPDATE notes SET text = 'first' WHERE id = 'id-1'")
        second.execute("UPDATE notes SET text = 'second' WHERE id = 'id-2'")
        second.commit()
        assert gallery.sync().changed == 1
        first.commit()
    assert gallery.sync().changed == 1
    require_in_step(engine, gallery)


def test_a_row_that_changes_after_it_was_read_is_read_again(engine, gallery, monkeypatch):
    engine.put(NAME, [row_of("id-1", "another text")])
    forget = PostgresCapture.forget

    def forget_later(*arguments):
        engine.execute("UPDATE notes SET text = 'a later text' WHERE id = 'id-1'")
        forget(*arguments)

    monkeypatch.setattr(PostgresCapture, "forget", forget_later)
    gallery.sync()
    monkeypatch.undo()
    assert records(engine) == ["id-1"]
    assert in_step(engine, gallery) == ""


def test_changes_during_the_first_comparison_are_followed(engine, rows, tmp_path, monkeypatch):
    make = PostgresCapture.make

    def make_and_write(*arguments):
        make(*arguments)
        engine.put(NAME, [row_of("id-1", "another text"), row_of("new", "an added text")])

    monkeypatch.setattr(PostgresCapture, "make", make_and_write)
    gallery = tracked(engine, tmp_path)
    require_in_step(engine, gallery)
    assert in_step(engine, gallery) == ""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_sync_that_is_killed_while_it_forgets_changes_loses_none(engine, gallery, tmp_path, read, moment):
    engine.put(NAME, [row_of("id-1", "another text"), row_of("new", "an added text")])
    engine.delete(NAME, ["id-2"])
    path = str(tmp_path / "notes.lance")
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", KILLED, path, moment], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert len(records(engine)) == (3 if moment == "before" else 0)
    read()
    gallery = cs.Gallery.open(path)
    assert in_step(engine, gallery) == ""
    assert set(read()) <= {"id-1", "new"}
    engine.put(NAME, [row_of("id-3", "another text")])
    assert in_step(engine, gallery) == ""


def test_a_first_comparison_that_was_cut_is_made_again(engine, rows, tmp_path, monkeypatch, read):
    class Cut(BaseException):
        pass

    def cut(*_):
        raise Cut

    monkeypatch.setattr("compatstore.stores.sync.Sync._record", cut)
    with pytest.raises(Cut):
        tracked(engine, tmp_path)
    monkeypatch.undo()
    gallery = cs.Gallery.open(str(tmp_path / "notes.lance"))
    assert in_step(engine, gallery) == ""
    engine.put(NAME, [row_of("id-1", "another text")])
    assert in_step(engine, gallery) == ""


# Changes without a record


@pytest.mark.parametrize(
    "statements",
    [
        "TRUNCATE notes",
        "TRUNCATE notes; INSERT INTO notes (id, text) VALUES ('id-1', 'alone')",
        "ALTER TABLE notes DISABLE TRIGGER ALL; UPDATE notes SET text = 'unseen' WHERE id = 'id-1'; "
        "ALTER TABLE notes ENABLE ALWAYS TRIGGER {insert}, ENABLE ALWAYS TRIGGER {update}",
        "VACUUM FULL notes",
    ],
)
def test_a_table_that_is_not_as_it_was_left_is_compared_as_a_whole(engine, gallery, statements):
    triggers = engine.execute("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY length(tgname)").fetchall()
    names = dict(zip(("insert", "update"), (name for (name,) in triggers), strict=True))
    for statement in statements.split("; "):
        engine.execute(statement, **names)
    assert in_step(engine, gallery) == TRUNCATED
    assert in_step(engine, gallery) == ""
    engine.put(NAME, [row_of("id-1", "another text")])
    assert in_step(engine, gallery) == ""


@pytest.mark.parametrize("state", ["DISABLE", "ENABLE"])
def test_a_trigger_that_is_off_is_noticed_at_each_sync(engine, gallery, tmp_path, state):
    engine.execute(f"ALTER TABLE notes {state} TRIGGER USER")
    for text in ("one", "two"):
        engine.execute("UPDATE notes SET text = %s WHERE id = 'id-1'", (text,))
        assert "disabled" in in_step(engine, gallery)
    assert "all rows were compared, as changes may be unrecorded: its triggers on notes" in str(gallery.sync())
    (finding,) = (one for one in gallery.maintenance.verify().findings if one.check == "store")
    assert "its triggers on notes are disabled" in finding.what
    assert "track=True" in finding.repair
    assert in_step(engine, tracked(engine, tmp_path)) == ""
    assert not [one for one in gallery.maintenance.verify().findings if one.check == "store"]


def test_a_table_that_was_made_again_is_compared_as_a_whole(engine, gallery, tmp_path):
    for text in ("one", "two"):
        engine.execute("DROP TABLE IF EXISTS aside; ALTER TABLE notes RENAME TO aside")
        engine.create(NAME, 8, rows=[row_of("id-1", text)])
        assert in_step(engine, gallery) == "notes lacks its triggers"
    gallery = tracked(engine, tmp_path)
    engine.put(NAME, [row_of("id-2", "another text")])
    assert in_step(engine, gallery) == ""


def test_a_table_that_returns_has_lost_its_standing(engine, gallery):
    engine.execute("ALTER TABLE notes RENAME TO aside")
    engine.create(NAME, 8, rows=[row_of("id-1", "in between")])
    gallery.sync()
    engine.execute("DROP TABLE notes; ALTER TABLE aside RENAME TO notes")
    assert in_step(engine, gallery) == ""
    engine.put(NAME, [row_of("id-1", "another text")])
    assert in_step(engine, gallery) == ""


def test_a_crash_of_the_server_empties_the_change_table_and_is_noticed(engine, gallery):
    engine.put(NAME, [row_of("id-1", "another text")])
    engine.restart()
    engine.reconnect()
    assert in_step(engine, gallery) == RESTORED
    engine.put(NAME, [row_of("id-2", "another text")])
    assert in_step(engine, gallery) == ""


def test_two_copies_of_a_gallery_take_nothing_from_each_other(engine, gallery, tmp_path):
    for path in tmp_path.glob("notes.lance*"):
        shutil.copytree(path, tmp_path / path.name.replace("notes", "copy"))
    copy = cs.Gallery.open(str(tmp_path / "copy.lance"))
    for text in ("one", "two"):
        engine.put(NAME, [row_of("id-1", text)])
        assert in_step(engine, gallery) == ("" if text == "one" else RESTORED)
        assert in_step(engine, copy) == RESTORED


def test_two_mirrors_of_a_table_have_a_change_table_each(engine, gallery, before, tmp_path):
    (tmp_path / "other").mkdir()
    other = tracked(engine, tmp_path / "other")
    engine.put(NAME, [row_of("id-1", "another text")])
    assert in_step(engine, gallery) == in_step(engine, other) == ""
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    gallery.sync()
    for (finding,) in [
        [one for one in each.maintenance.verify().findings if one.check == "store"] for each in (gallery,)
    ]:
        assert f"compatstore changes, read by {tmp_path / 'other' / 'notes.lance'}" in finding.what
        engine.execute(finding.repair.partition(": ")[2])
    gallery.rollback()
    gallery.abort("v2")
    assert engine.objects() == before
    assert in_step(engine, other) == "its function or its change table is gone"


# Partitions and children


@pytest.fixture
def partitioned(engine, tmp_path):
    columns = "id text PRIMARY KEY, embedding vector(8), text text, lang text"
    engine.execute(f"CREATE TABLE notes ({columns}) PARTITION BY RANGE (id)")
    for name, first, last in (("low", "a", "i"), ("high", "i", "z")):
        engine.execute(f"CREATE TABLE {name} PARTITION OF notes FOR VALUES FROM ('{first}') TO ('{last}')")
    engine.put(NAME, [row_of(f"{letter}-{n}", f"word{n}") for letter in "ak" for n in range(5)])
    return tracked(engine, tmp_path)


def test_changes_of_partitions_are_recorded(engine, partitioned, read):
    read()
    engine.put(NAME, [row_of("a-1", "another text"), row_of("k-9", "an added text")])
    engine.execute("UPDATE notes SET id = 'l-2' WHERE id = 'a-2'")  # it moves to another partition
    engine.execute("DELETE FROM high WHERE id = 'k-3'")
    assert in_step(engine, partitioned) == ""
    assert sorted(read()) == ["a-1", "k-9", "l-2"]


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE low",
        "DROP TABLE low",
        "ALTER TABLE notes DETACH PARTITION low",
        "CREATE TABLE more (LIKE notes); INSERT INTO more (id, text) VALUES ('z-1', 'attached'); "
        "ALTER TABLE notes ATTACH PARTITION more FOR VALUES FROM ('z') TO ('zz')",
    ],
)
def test_partitions_that_come_and_go_are_compared(engine, partitioned, statement):
    engine.execute(statement)
    assert in_step(engine, partitioned) == TRUNCATED
    engine.put(NAME, [row_of("k-1", "another text")])
    assert in_step(engine, partitioned) == ""


def test_a_table_with_children_that_no_trigger_of_it_sees_is_refused(engine, rows, before, tmp_path):
    engine.execute("CREATE TABLE child () INHERITS (notes)")
    before = engine.objects()
    with pytest.raises(InvalidInput, match="child lacks its triggers"):
        tracked(engine, tmp_path)
    assert engine.objects() == before
    gallery = tracked(engine, tmp_path, track=False)
    engine.execute("DROP TABLE child")
    assert in_step(engine, gallery) == ""


# An app beside it


def test_an_app_writes_with_its_own_rights(engine, gallery):
    engine.execute("CREATE ROLE clerk; GRANT SELECT, INSERT, UPDATE, DELETE ON notes TO clerk; SET ROLE clerk")
    try:
        engine.put(NAME, [row_of("id-1", "another text")])
        engine.delete(NAME, ["id-2"])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            records(engine)
    finally:
        engine.execute("RESET ROLE; DROP OWNED BY clerk; DROP ROLE clerk")
    assert in_step(engine, gallery) == ""


@pytest.mark.parametrize("table", [True, False])
def test_an_app_goes_on_whatever_becomes_of_the_change_table_or_the_id(engine, gallery, tmp_path, table):
    (name,) = engine.execute(f"SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^{PREFIX}'").fetchone()
    if table:
        engine.execute("DROP TABLE {name}", name=name)
        engine.put(NAME, [row_of("id-1", "another text")])
        assert in_step(engine, gallery) == "its function or its change table is gone"
    else:
        engine.execute("ALTER TABLE notes RENAME COLUMN id TO number")
        engine.execute("UPDATE notes SET text = 'another text' WHERE number = 'id-1'")
        assert records(engine) == [None]
        engine.execute("ALTER TABLE notes RENAME COLUMN number TO id")
        assert in_step(engine, gallery) == "rows changed while the column of their ids had another name"
        assert in_step(engine, gallery) == ""
    gallery = tracked(engine, tmp_path)
    engine.put(NAME, [row_of("id-2", "another text")])
    assert in_step(engine, gallery) == ""


def test_a_schema_that_changes_its_name_is_noticed(engine, tmp_path):
    engine.execute("CREATE SCHEMA first; SET search_path = first, public")
    engine.create(NAME, 8, rows=[row_of("id-1", "a text")])
    gallery = cs.Gallery.mirror(f"{engine.uri}#first.notes", tmp_path / "notes.lance", source="text", track=True)
    engine.execute("ALTER SCHEMA first RENAME TO second; CREATE SCHEMA first; SET search_path = second, public")
    engine.execute("UPDATE second.notes SET text = 'unseen'")
    engine.execute("ALTER TABLE second.notes SET SCHEMA first; SET search_path = first, public")
    done = gallery.sync()
    assert (done.changed, done.gap) == (1, "its function writes elsewhere")


def test_a_dump_restores_and_no_publication_has_the_change_table(engine, gallery):
    program = server().bin_path / "pg_dump"
    dump = subprocess.run([program, engine.uri], capture_output=True, text=True, check=True).stdout
    other = Engine()
    try:
        other.execute("DROP EXTENSION vector")
        command = [program.with_name("psql"), "-qv", "ON_ERROR_STOP=1", other.uri]
        subprocess.run(command, input=dump, capture_output=True, text=True, check=True)
        other.reconnect()
        other.put(NAME, [row_of("id-1", "another text")])
        assert records(other) == ["id-1"]
    finally:
        other.close()
    engine.execute("CREATE PUBLICATION all_tables FOR ALL TABLES")
    assert engine.execute("SELECT tablename FROM pg_publication_tables").fetchall() == [(NAME,)]


def test_a_lock_that_is_not_had_leaves_nothing(engine, rows, before, tmp_path, monkeypatch):
    monkeypatch.setattr("compatstore.stores.postgres_tracking.DDL_WAIT", 0.1)
    with psycopg.connect(engine.uri) as other:
        other.execute("UPDATE notes SET text = 'x' WHERE id = 'id-1'")
        with pytest.raises(StorageError, match="Another transaction holds the lock"):
            tracked(engine, tmp_path)
        assert engine.objects() == before
    assert in_step(engine, tracked(engine, tmp_path)) == ""


def test_a_role_without_rights_learns_which_and_leaves_nothing(engine, rows, before, tmp_path):
    engine.execute("CREATE ROLE guest LOGIN; GRANT SELECT ON notes TO guest")
    try:
        address = f"{engine.uri.replace('//postgres:@', '//guest@')}#{NAME}"
        named = {"source": "text", "id": "id", "vector": "embedding"}
        with pytest.raises(StorageError, match="Connect as the owner of the table, or grant this user the right"):
            cs.Gallery.mirror(address, tmp_path / "notes.lance", **named, track=True)
        assert engine.objects() == before
        gallery = cs.Gallery.mirror(address, tmp_path / "notes.lance", **named)
        assert len(gallery) == COUNT
    finally:
        engine.execute("DROP OWNED BY guest; DROP ROLE guest")


# A life


def test_a_switch_and_a_rollback_are_followed(engine, gallery, read):
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    assert in_step(engine, gallery) == ""
    read()
    changed = {**row_of("id-1", "another text"), "vector": new(["another text"])[0].tolist()}
    engine.put(NAME, [changed])
    assert records(engine) == ["id-1"]
    assert in_step(engine, gallery) == ""
    assert set(read()) == {"id-1"}
    engine.put(NAME, [{**changed, "id": "id-2"}])
    gallery.rollback()
    engine.put(NAME, [row_of("id-3", "a third text")])
    assert in_step(engine, gallery) == ""
    read()
    engine.put(NAME, [row_of("id-4", "a fourth text")])
    assert in_step(engine, gallery) == ""
    assert set(read()) == {"id-4"}


@pytest.mark.parametrize("end", ["abort", "rollback", "retire", "mirror"])
def test_nothing_is_left_at_the_end(engine, gallery, before, tmp_path, end):
    assert gallery.status().store.tracked
    assert "its triggers record changes" in str(gallery.status())
    upgraded(gallery, 1.0)
    if end in ("rollback", "retire"):
        gallery.cutover("v2")
        gallery.sync()
    if end == "rollback":
        gallery.rollback()
    if end == "retire":
        gallery.retire("v1", drop_adopted=True)
    elif end == "mirror":
        tracked(engine, tmp_path, track=False)
        assert not {name for name in engine.objects() if PREFIX in name}
        gallery.abort("v2")
    else:
        gallery.abort("v2")
    assert engine.objects() == before
    assert not gallery.status().store.tracked
    engine.execute("UPDATE notes SET text = 'another text' WHERE id = 'id-1'")
    assert in_step(engine, gallery) == ""


def test_a_retirement_without_a_sync_after_the_cutover_drops_the_apps_column(engine, gallery, before):
    upgraded(gallery, 1.0)
    gallery.cutover("v2")
    gallery.retire("v1", drop_adopted=True)
    assert engine.objects() == before


def test_tracking_goes_on_with_another_upgrade(engine, gallery, before, read):
    third = cs.encoders.Function(new, dim=12, fingerprint="third-words")
    upgraded(gallery, 1.0)
    gallery.upgrade(cs.EmbeddingVersion("v3", dim=12, encoder=third), backfill=1.0)
    gallery.cutover("v2")
    gallery.sync()
    gallery.rollback()
    gallery.abort("v2")
    assert in_step(engine, gallery) == ""
    read()
    engine.put(NAME, [row_of("id-4", "another text")])
    assert in_step(engine, gallery) == ""
    assert set(read()) == {"id-4"}
    gallery.abort("v3")
    assert engine.objects() == before


@pytest.mark.parametrize("verb", ["abort", "retire"])
def test_an_end_that_is_killed_before_the_ledger_knows_goes_on(engine, gallery, before, tmp_path, monkeypatch, verb):
    class Cut(BaseException):
        pass

    def end(gallery):
        return gallery.abort("v2") if verb == "abort" else gallery.retire("v1", drop_adopted=True)

    upgraded(gallery, 1.0)
    if verb == "retire":
        gallery.cutover("v2")
    for name in ("note", "displace", "settle"):
        whole = getattr(MirrorLedger, name)

        def cut(ledger, *arguments, whole=whole, **options):
            if arguments[:1] == ("retired",):
                return whole(ledger, *arguments, **options)
            raise Cut

        monkeypatch.setattr(MirrorLedger, name, cut)
        with suppress(Cut):
            end(cs.Gallery.open(str(tmp_path / "notes.lance")))
        monkeypatch.undo()
    end(cs.Gallery.open(str(tmp_path / "notes.lance")))
    assert engine.objects() == before
    assert not cs.Gallery.open(str(tmp_path / "notes.lance")).status().store.tracked


# The command


def test_a_store_that_cannot_record_changes_refuses(tmp_path):
    faiss = pytest.importorskip("faiss")
    index = faiss.IndexFlatL2(2)
    index.add(np.eye(2, dtype=np.float32))
    path = tmp_path / "index.faiss"
    faiss.write_index(index, str(path))
    with pytest.raises(InvalidInput, match="a store that can record them: PostgreSQL"):
        cs.Gallery.mirror(f"faiss:{path}", tmp_path / "mirror.lance", track=True)
    done = invoke("mirror", f"faiss:{path}", tmp_path / "mirror.lance", "--track")
    assert done.code == 2
    assert "track changes of faiss:" in done.err
    assert not (tmp_path / "mirror.lance").exists()


def test_a_check_says_what_tracking_makes(engine, rows, before, tmp_path):
    done = invoke("mirror", engine.address(NAME), tmp_path / "notes.lance", "--track", "--check")
    assert done.code == 0
    assert f"with --track by two triggers of public.notes, a function and a table {PREFIX}" in done.out
    assert engine.objects() == before


def test_the_command_tracks_and_ends_it(engine, rows, before, tmp_path):
    words = ("mirror", engine.address(NAME), tmp_path / "notes.lance", "--source", "text")
    done = invoke(*words, "--track")
    assert done.code == 0
    assert "its triggers record changes" in done.out
    assert {name for name in engine.objects() - before if name.startswith("trigger")}
    assert invoke(*words).code == 0
    assert engine.objects() == before
