"""What only Milvus has: schemas with dynamic fields, aliases, keys with quotes across pages, ids that it makes."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from stores.engines.milvus import Engine, pymilvus

from compatstore.errors import InvalidInput, NotFound, StorageError
from compatstore.stores import milvus
from compatstore.stores.address import Address
from compatstore.stores.store import ID, KNOWN, MADE_FROM, VECTOR, vector_column

DIM, LONG = 4, 6


@pytest.fixture
def engine(tmp_path):
    started = Engine(tmp_path)
    yield started
    started.close()


def rows_of(keys):
    rng = np.random.default_rng(0)
    return [{"id": key, "vector": rng.normal(size=DIM), "text": f"text {key}", "lang": "en"} for key in keys]


def opened(engine, collection="notes"):
    return closing(Address.of(engine.address(collection)).open())


def written(store, ids):
    store.prepare("v2", LONG, "cosine")
    vectors = np.random.default_rng(1).normal(size=(len(ids), LONG))
    columns = {ID: pa.array(ids), VECTOR: vector_column(vectors, LONG)}
    empty = {MADE_FROM: pa.nulls(len(ids)), KNOWN: pa.nulls(len(ids), pa.binary())}
    return store.write("v2", pa.table({**columns, **empty}))


def test_pages_go_on_behind_keys_with_quotes(engine, monkeypatch):
    monkeypatch.setattr(milvus, "PAGE", 2)
    keys = ["a'b", 'a"b', "a\\", 'a\\"', "ü", "", "z\n", "b", "a"]
    engine.create("notes", DIM, rows=rows_of(keys[4:]))
    engine.put("notes", rows_of(keys[:4]))
    with opened(engine) as store:
        tables = list(store.scan(engine.parts))
        assert sorted(key for table in tables for key in table[ID].to_pylist()) == sorted(keys)
        assert set(written(store, keys)) == set(keys)
        store.remove("v2", keys[:5])
        assert {key for table in store.read_target("v2") for key in table[ID].to_pylist()} == set(keys[5:])


def test_rows_that_are_deleted_meanwhile_shift_no_page(engine, monkeypatch):
    monkeypatch.setattr(milvus, "PAGE", 10)
    engine.create("notes", DIM, id_type="int64", rows=rows_of(range(100)))
    seen = set()
    with opened(engine) as store:
        for table in store.scan(engine.parts):
            seen.update(table[ID].to_pylist())
            if len(seen) == 10:
                engine.delete("notes", list(range(15)))
    assert seen >= set(range(15, 100))


def test_an_alias_is_switched_in_one_step(engine):
    engine.create("notes_1", DIM, rows=rows_of(["a", "b"]))
    engine.client.create_alias("notes_1", "notes")
    with opened(engine) as store:
        about = store.describe()
        assert (about.switch, about.is_atomic, about.dim) == ("alias", True, DIM)
        written(store, ["a", "b"])
        engine.put("notes_1", [{**rows_of(["a"])[0], "lang": "de", "text": "another"}])
        store.switch("v2")
    assert engine.rows("notes")["a"]["lang"] == "de"
    assert engine.rows("notes")["a"]["text"] == "another"
    assert len(engine.rows("notes")["b"]["vector"]) == LONG
    with opened(engine) as store:
        assert store.is_switched("v2")
        store.switch_back("v2")
        assert store.describe().dim == DIM
        store.switch("v2")
        store.drop_source("v2")
        assert store.is_switched("v2")
    assert engine.objects() == {"notes_1_v2", "alias notes"}


def test_without_an_alias_the_app_names_the_collection(engine):
    engine.create("notes", DIM, rows=rows_of(["a"]))
    with opened(engine) as store:
        assert store.describe().switch == ""
        assert "'notes_v2'" in store.app_change("v2")
        written(store, ["a"])
        engine.put("notes", [{**rows_of(["a"])[0], "text": "another"}])
        store.refresh("v2")
        assert engine.rows("notes_v2")["a"]["text"] == "another"
        engine.put("notes_v2", [{"id": "a", "vector": np.ones(LONG), "text": "of the target's app"}])
        store.switch("v2")
        store.refresh("v2")
        assert engine.rows("notes_v2")["a"]["text"] == "of the target's app"


def test_the_second_collection_has_the_fields_of_the_first(engine):
    kinds = pymilvus.DataType
    schema = engine.client.create_schema(auto_id=True, enable_dynamic_field=False)
    schema.add_field("pk", kinds.INT64, is_primary=True)
    schema.add_field("v", kinds.FLOAT_VECTOR, dim=DIM)
    schema.add_field("stars", kinds.INT32, nullable=True)
    schema.add_field("tags", kinds.ARRAY, element_type=kinds.VARCHAR, max_capacity=4, max_length=20, nullable=True)
    schema.add_field("more", kinds.JSON, nullable=True)
    indexes = engine.client.prepare_index_params()
    indexes.add_index("v", index_type="AUTOINDEX", metric_type="IP")
    engine.client.create_collection("own", schema=schema, index_params=indexes)
    rows = [{"v": [1.0, 2, 3, 4], "stars": 3, "tags": ["a", "b"], "more": {"x": [1]}}]
    ids = list(engine.client.insert("own", rows)["ids"])
    with opened(engine, "own") as store:
        about = store.describe()
        assert (about.parts.id, about.parts.vector, about.parts.metadata) == ("pk", "v", ("stars",))
        assert (about.id_type, about.metric, about.rows) == ("int64", "dot", 1)
        assert "'tags' (array)" in " ".join(about.notes)
        assert written(store, ids) == ids
    (row,) = engine.client.query("own_v2", filter="", limit=5, output_fields=["*"], consistency_level="Strong")
    assert (row["pk"], row["stars"], list(row["tags"]), row["more"]) == (ids[0], 3, ["a", "b"], {"x": [1]})


def test_two_vectors_need_a_name(engine):
    schema = engine.client.create_schema(auto_id=False)
    schema.add_field("pk", pymilvus.DataType.INT64, is_primary=True)
    indexes = engine.client.prepare_index_params()
    for name in ("one", "two"):
        schema.add_field(name, pymilvus.DataType.FLOAT_VECTOR, dim=DIM)
        indexes.add_index(name, index_type="AUTOINDEX", metric_type="L2")
    engine.client.create_collection("own", schema=schema, index_params=indexes)
    with opened(engine, "own") as store, pytest.raises(InvalidInput, match="one, two"):
        store.describe()


def test_an_expression_filters_a_search(engine):
    engine.create("notes", DIM, rows=[*rows_of(["a", "b"]), {**rows_of(["c"])[0], "lang": "de"}])
    with opened(engine) as store:
        assert list(store.search(None, np.ones(DIM, np.float32), 3, 'lang == "de"')[0]) == ["c"]


def test_a_file_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(NotFound):
        Address.of(f"milvus:{tmp_path / 'absent.db'}#notes").open()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_an_error_without_the_token(monkeypatch):
    monkeypatch.setenv("MILVUS_TOKEN", "root:s3cret")
    with pytest.raises(StorageError) as found:
        Address.of("milvus+http://user:passw0rd@127.0.0.1:1#notes").open()
    assert "s3cret" not in str(found.value)
    assert "passw0rd" not in str(found.value)
