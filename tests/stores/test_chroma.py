"""What only Chroma has: a switch of two renames, metadata without a schema, an app that holds a collection."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from stores.engines.chroma import Engine, chromadb

from compatstore.errors import InvalidInput, NotFound, StorageError, UpgradeError
from compatstore.stores.address import Address
from compatstore.stores.store import ID, KNOWN, MADE_FROM, SOURCE, VECTOR, Parts, vector_column

DIM, LONG = 4, 6


@pytest.fixture
def engine(tmp_path):
    started = Engine(tmp_path)
    yield started
    started.close()


def made(engine, count=6):
    rng = np.random.default_rng(0)
    rows = [{"id": f"r{n}", "vector": rng.normal(size=DIM), "text": f"text {n}", "lang": "en"} for n in range(count)]
    engine.create("notes", DIM, rows=rows)
    return [row["id"] for row in rows]


def opened(engine, collection="notes"):
    return closing(Address.of(engine.address(collection)).open())


def batch(ids):
    vectors = np.random.default_rng(1).normal(size=(len(ids), LONG))
    columns = {ID: pa.array(ids), VECTOR: vector_column(vectors, LONG)}
    return pa.table({**columns, MADE_FROM: pa.nulls(len(ids)), KNOWN: pa.nulls(len(ids), pa.binary())})


def written(store, ids):
    store.prepare("v2", LONG, "cosine")
    return store.write("v2", batch(ids))


def length(engine, name="notes"):
    return len(engine.collection(name).get(limit=1, include=["embeddings"])["embeddings"][0])


@pytest.mark.parametrize("back", [False, True])
def test_a_switch_that_was_killed_between_its_renames_goes_on_or_back(engine, back):
    ids = made(engine)
    with opened(engine) as store:
        written(store, ids)
    engine.collection("notes").modify(name="notes_before_v2")
    with opened(engine) as store:
        assert not store.is_switched("v2")
        assert store.describe(engine.parts).dim == DIM
        assert sum(table.num_rows for table in store.scan(engine.parts)) == len(ids)
        with pytest.raises(UpgradeError, match="between its two renames"):
            store.drop("v2")
        (store.switch_back if back else store.switch)("v2")
        assert store.is_switched("v2") != back
    assert length(engine) == (DIM if back else LONG)


def test_after_a_switch_the_app_has_documents_and_metadata_as_they_are_then(engine):
    ids = made(engine)
    with opened(engine) as store:
        written(store, ids)
        app = engine.collection("notes")
        engine.put("notes", [{"id": "r1", "vector": np.ones(DIM), "text": "another text", "lang": "de"}])
        app.update(ids=["r1"], metadatas=[{"stars": 5}])
        engine.put("notes", [{"id": "r2", "vector": np.ones(DIM), "text": None, "lang": None}])
        before = app.get(include=["documents", "metadatas"])
        store.switch("v2")
    after = engine.collection("notes").get(include=["documents", "metadatas"])
    rows = [
        {key: row for key, *row in zip(*(got[k] for k in ("ids", "documents", "metadatas")), strict=True)}
        for got in (before, after)
    ]
    assert rows[0] == rows[1]
    assert rows[1]["r1"] == ["another text", {"lang": "de", "stars": 5}]
    assert rows[1]["r2"] == [None, None]


def test_a_write_after_the_switch_keeps_what_the_app_wrote_and_brings_no_row_back(engine):
    ids = made(engine)
    with opened(engine) as store:
        written(store, ids)
        store.switch("v2")
        app = engine.collection("notes")
        engine.put("notes", [{"id": "r1", "vector": np.ones(LONG), "text": "new text", "lang": "en"}])
        app.delete(ids=["r0"])
        assert set(written(store, ids)) == set(ids) - {"r0"}
        store.remove("v2", ids)
    found = engine.collection("notes").get(include=["documents"])
    assert dict(zip(found["ids"], found["documents"], strict=True))["r1"] == "new text"
    assert set(found["ids"]) == set(ids) - {"r0"}


def test_names_that_the_switch_needs_are_taken_for_the_places(engine):
    made(engine)
    engine.create("notes_before_v2", DIM)
    with opened(engine) as store:
        assert store.has("v2")
        assert not store.has("v3")


def test_metadata_come_with_the_types_that_they_have(engine):
    made(engine, 1)
    engine.collection("notes").update(
        ids=["r0"], metadatas=[{"n": 3, "f": 1.5, "b": True, "tags": ["a"], "source": "a.txt", "document": "x"}]
    )
    with opened(engine) as store:
        about = store.describe()
        assert about.parts.source == "document"
        assert set(about.parts.metadata) == {"n", "f", "b", "lang"}
        notes = " ".join(about.notes)
        assert "'tags' (list)" in notes
        assert "'document' (the name of another column)" in notes
        assert "'source'" in notes
        (table,) = store.scan(Parts(source="source", metadata=("n", "f", "b")))
        assert table.drop_columns([VECTOR]).to_pylist() == [{ID: "r0", SOURCE: "a.txt", "n": 3, "f": 1.5, "b": True}]
        assert table.schema.field("n").type == pa.int64()


def test_a_collection_of_an_embedding_function_needs_none_of_it(engine):
    made(engine)
    function = chromadb.utils.embedding_functions.DefaultEmbeddingFunction()
    engine.client.create_collection("own", embedding_function=function)
    with opened(engine, "own") as store:
        assert (store.describe().rows, store.describe().metric, store.describe().dim) == (0, "l2", 0)


def test_a_condition_filters_a_search(engine):
    ids = made(engine)
    engine.collection("notes").update(ids=ids[:2], metadatas=[{"lang": "de"}] * 2)
    with opened(engine) as store:
        found, _ = store.search(None, np.ones(DIM, np.float32), 6, '{"lang": "de"}')
        assert set(found) == set(ids[:2])
        with pytest.raises(InvalidInput, match="as JSON"):
            store.search(None, np.ones(DIM, np.float32), 6, "lang = 'de'")


def test_a_folder_without_chroma_stays_without(tmp_path):
    with pytest.raises(NotFound, match=r"chroma\.sqlite3"):
        Address.of(f"chroma:{tmp_path}#notes").open()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_an_error_without_the_token(monkeypatch):
    monkeypatch.setenv("CHROMA_TOKEN", "s3cret")
    with pytest.raises(StorageError) as found:
        Address.of("chroma+http://user:passw0rd@127.0.0.1:1#notes").open()
    assert "s3cret" not in str(found.value)
    assert "passw0rd" not in str(found.value)
