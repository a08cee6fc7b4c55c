"""What only Qdrant has: names of vectors, aliases, ids of two kinds, payloads without a schema, and a server."""

from __future__ import annotations

import os
import uuid
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from stores.engines import qdrant, qdrant_unnamed

from compatstore.errors import InvalidInput, NotFound, StorageError
from compatstore.stores.address import Address
from compatstore.stores.store import ID, KNOWN, MADE_FROM, VECTOR, Parts, matrix, vector_column

models = qdrant.models
DIM, LONG = 4, 6
SERVER = os.environ.get("COMPATSTORE_QDRANT_URL", "")


@pytest.fixture(params=[qdrant, qdrant_unnamed], ids=["named", "unnamed"])
def engine(request, tmp_path):
    started = request.param.Engine(tmp_path)
    yield started
    started.close()


@pytest.fixture
def named(tmp_path):
    started = qdrant.Engine(tmp_path)
    yield started
    started.close()


@pytest.fixture
def unnamed(tmp_path):
    started = qdrant_unnamed.Engine(tmp_path)
    yield started
    started.close()


def rows_of(keys):
    rng = np.random.default_rng(0)
    return [{"id": key, "vector": rng.normal(size=DIM) * 3, "text": f"text {key}", "lang": "en"} for key in keys]


def opened(engine, collection="notes"):
    return closing(Address.of(engine.address(collection)).open())


def written(store, ids):
    store.prepare("v2", LONG, "cosine")
    vectors = np.random.default_rng(1).normal(size=(len(ids), LONG))
    columns = {ID: pa.array(ids), VECTOR: vector_column(vectors, LONG)}
    empty = {MADE_FROM: pa.nulls(len(ids)), KNOWN: pa.nulls(len(ids), pa.binary())}
    return store.write("v2", pa.table({**columns, **empty}))


def names_of(engine, collection):
    settings = engine.client.get_collection(collection).config.params.vectors
    return set(settings) if isinstance(settings, dict) else {""}


def test_a_target_is_a_second_vector_of_a_collection_with_names(named):
    named.create("notes", DIM, rows=rows_of([1, 2, 3]))
    with opened(named) as store:
        about = store.describe()
        assert (about.beside, about.switch, about.parts.vector) == ("column", "", "text")
        assert written(store, [1, 2, 77]) == [1, 2]
        assert names_of(named, "notes") == {"text", "text_v2"}
        (table,) = store.scan(named.parts, "v2")
        assert dict(zip(table[ID].to_pylist(), table["in_target"].to_pylist(), strict=True)) == {
            1: True,
            2: True,
            3: False,
        }
        assert 'using="text_v2"' in store.app_change("v2")


def test_a_collection_without_names_stays_as_it_is(unnamed):
    unnamed.create("notes", DIM, rows=rows_of([1, 2, 3]))
    with opened(unnamed) as store:
        about = store.describe()
        assert (about.beside, about.switch) == ("collection", "")
        assert written(store, [1, 2, 77]) == [1, 2]
        assert "'notes_v2'" in store.app_change("v2")
    assert names_of(unnamed, "notes") == {""}
    assert all(isinstance(point.vector, list) for point in unnamed.points("notes"))


def test_vectors_are_those_that_qdrant_returns(engine):
    engine.create("notes", DIM, rows=rows_of([1, 2, 3]))
    with opened(engine) as store:
        (table,) = store.scan(engine.parts)
    held = engine.rows("notes")
    np.testing.assert_array_equal(matrix(table[VECTOR]), [held[key]["vector"] for key in table[ID].to_pylist()])
    np.testing.assert_allclose(np.linalg.norm(matrix(table[VECTOR]), axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("kinds", ["integers", "uuids", "both"])
def test_ids_of_both_kinds(engine, kinds):
    uuids = [str(uuid.UUID(int=n + 1)) for n in range(2)]
    keys = {"integers": [7, 8], "uuids": uuids, "both": [7, *uuids]}[kinds]
    engine.create("notes", DIM, rows=rows_of(keys))
    ids = keys if kinds != "both" else [str(key) for key in keys]
    with opened(engine) as store:
        assert store.describe(engine.parts).id_type == ("int64" if kinds == "integers" else "string")
        assert {key for table in store.scan(engine.parts) for key in table[ID].to_pylist()} == set(ids)
        assert set(written(store, ids)) == set(ids)
        assert set(store.read(ids, engine.parts)[ID].to_pylist()) == set(ids)
        store.remove("v2", ids[:1])
        assert {key for table in store.read_target("v2") for key in table[ID].to_pylist()} == set(ids[1:])
        found, _ = store.search("v2", np.ones(LONG, np.float32), 5)
        assert set(found) == set(ids[1:])


def test_an_alias_is_switched_in_one_step(unnamed):
    unnamed.create("notes-1", DIM, rows=rows_of([1, 2, 3]))
    create = models.CreateAlias(collection_name="notes-1", alias_name="notes")
    unnamed.client.update_collection_aliases([models.CreateAliasOperation(create_alias=create)])
    with opened(unnamed) as store:
        about = store.describe()
        assert (about.switch, about.is_atomic) == ("alias", True)
        written(store, [1, 2, 3])
        unnamed.client.set_payload("notes-1", {"lang": "de"}, [2])
        store.switch("v2")
    assert unnamed.rows("notes")[2]["lang"] == "de"
    assert len(unnamed.rows("notes")[1]["vector"]) == LONG
    with opened(unnamed) as store:
        assert store.is_switched("v2")
        assert store.has("v2")
        assert store.describe().dim == LONG
        store.switch_back("v2")
        assert store.describe().dim == DIM
        store.switch("v2")
        store.drop_source("v2")
        assert store.is_switched("v2")
    assert unnamed.objects() == {"notes-1_v2", "notes-1_v2 ", "alias notes of notes-1_v2"}


def test_other_vectors_of_a_row_stay(named):
    settings = {name: models.VectorParams(size=DIM, distance="Cosine") for name in ("text", "image")}
    sparse = {"words": models.SparseVectorParams()}
    named.client.create_collection("notes", vectors_config=settings, sparse_vectors_config=sparse)
    vectors = {"text": [1.0, 0, 0, 0], "image": [0, 1.0, 0, 0], "words": models.SparseVector(indices=[1], values=[2])}
    named.client.upsert("notes", [models.PointStruct(id=1, vector=vectors, payload={"a": {"b": [1]}})])
    before = named.points("notes")[0]
    with opened(named) as store:
        with pytest.raises(InvalidInput, match="text, image"):
            store.describe()
        store.describe(Parts(vector="text"))
        written(store, [1])
        after = named.points("notes")[0]
        assert {name: one for name, one in after.vector.items() if name != "text_v2"} == before.vector
        assert after.payload == before.payload
        store.drop("v2")
    assert named.points("notes")[0] == before


def test_names_of_vectors_that_are_there_are_no_places_of_ours(named):
    settings = {name: models.VectorParams(size=DIM, distance="Cosine") for name in ("text", "text_v2")}
    named.client.create_collection("notes", vectors_config=settings)
    with opened(named) as store:
        store.describe(Parts(vector="text"))
        assert store.has("v2")


def test_payloads_that_are_no_plain_values_are_left_out_with_a_note(engine):
    engine.create("notes", DIM, rows=rows_of([1]))
    engine.client.set_payload("notes", {"nested": {"a": 1}, "n": 3, "source": "a.txt"}, [1])
    with opened(engine) as store:
        about = store.describe()
        assert set(about.parts.metadata) == {"text", "lang", "n"}
        assert "'nested' (dict)" in " ".join(about.notes)
        (table,) = store.scan(replace(about.parts, source="source", metadata=("n",)))
        assert (table["source"].to_pylist(), table["n"].to_pylist()) == (["a.txt"], [3])


def test_a_filter_narrows_a_search(engine):
    engine.create("notes", DIM, rows=rows_of([1, 2, 3]))
    engine.client.set_payload("notes", {"lang": "de"}, [2])
    with opened(engine) as store:
        where = '{"must": [{"key": "lang", "match": {"value": "de"}}]}'
        assert list(store.search(None, np.ones(DIM, np.float32), 3, where)[0]) == [2]
        with pytest.raises(InvalidInput, match="filter"):
            store.search(None, np.ones(DIM, np.float32), 3, "lang = 'de'")


@pytest.mark.filterwarnings("ignore:unclosed file", "ignore::pytest.PytestUnraisableExceptionWarning")  # of the client
def test_another_client_of_the_folder_is_named(tmp_path):
    with closing(qdrant.Client(path=str(tmp_path))) as client:
        client.create_collection("notes", vectors_config=models.VectorParams(size=DIM, distance="Cosine"))
        with pytest.raises(StorageError, match="already accessed"):
            Address.of(f"qdrant:{tmp_path}#notes").open()


def test_a_folder_without_qdrant_stays_without(tmp_path):
    with pytest.raises(NotFound, match=r"meta\.json"):
        Address.of(f"qdrant:{tmp_path}#notes").open()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")
def test_a_server_that_is_not_there_is_an_error_without_the_key(monkeypatch):
    monkeypatch.setenv("QDRANT_API_KEY", "s3cret")
    with pytest.raises(StorageError) as found:
        Address.of("qdrant+http://user:passw0rd@127.0.0.1:1#notes").open()
    assert "s3cret" not in str(found.value)
    assert "passw0rd" not in str(found.value)


@pytest.mark.skipif(not SERVER, reason="COMPATSTORE_QDRANT_URL names no server of Qdrant")
@pytest.mark.parametrize("vector", ["text", ""])
def test_a_server(vector):
    client, name = qdrant.Client(url=SERVER, api_key=os.environ.get("QDRANT_API_KEY")), f"notes-{uuid.uuid4()}"
    settings = models.VectorParams(size=DIM, distance="Cosine")
    client.create_collection(name, vectors_config={vector: settings} if vector else settings)
    try:
        rows = np.random.default_rng(0).normal(size=(3, DIM))
        points = [
            models.PointStruct(
                id=n, vector={vector: row.tolist()} if vector else row.tolist(), payload={"text": f"{n}"}
            )
            for n, row in enumerate(rows)
        ]
        client.upsert(name, points)
        with closing(Address.of(f"qdrant+{SERVER}#{name}").open()) as store:
            about = store.describe()
            assert (about.rows, about.dim) == (3, DIM)
            assert sorted(written(store, [0, 1, 77])) == [0, 1]
            assert sorted(key for table in store.read_target("v2") for key in table[ID].to_pylist()) == [0, 1]
            store.remove("v2", [0, 77])
            assert [key for table in store.read_target("v2") for key in table[ID].to_pylist()] == [1]
            store.drop("v2")
            assert not store.has("v2")
        assert client.count(name).count == 3
    finally:
        client.delete_collection(name)
        client.delete_collection(f"{name}_v2")
        client.close()
