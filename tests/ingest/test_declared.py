"""Metadata columns that a gallery has from the start, JSON among them."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput
from compatstore.ingest.metadata import TYPES

V1 = cs.EmbeddingVersion("v1", dim=2, metric="l2")


@pytest.fixture
def make(tmp_path):
    return lambda metadata, name="new.lance": cs.Gallery.create(str(tmp_path / name), V1, metadata=metadata)


def test_every_type_is_there_from_the_start(make):
    gallery = make({kind: kind for kind in TYPES})
    assert gallery.columns.metadata.names == list(TYPES)
    assert [field.type for field in gallery.columns.metadata] == list(TYPES.values())
    assert gallery.scan(where="`int64` > 1 AND string = 'a'").to_arrow().num_rows == 0
    assert gallery.search([0.0, 1.0], where="json_extract(json_get(`json`, 'a'), '$') = '1'").num_rows == 0
    assert gallery.maintenance.verify().clean


def test_an_arrow_schema(make):
    gallery = make(pa.schema([pa.field("tags", pa.list_(pa.string()), nullable=False), ("n", pa.int8())]))
    gallery.add({"id": ["a", "b"], "vector": [[0.0, 1.0]] * 2, "tags": [["x"], None]})
    assert gallery.scan(["tags", "n"]).to_arrow().to_pylist() == [{"tags": ["x"], "n": None}, {"tags": None, "n": None}]


def test_items_may_bring_further_columns(make):
    gallery = make({"year": "int64"})
    gallery.add({"id": ["a"], "vector": [[0.0, 1.0]], "label": ["x"]})
    assert gallery.columns.metadata.names == ["year", "label"]


@pytest.mark.parametrize("name", ["id", "source", "vector", "side", "v1", "v1__x", "_x", "a.b", "", "a`b"])
def test_a_name_that_means_something_else(make, tmp_path, name):
    with pytest.raises(InvalidInput, match="name"):
        make({name: "string"})
    assert not (tmp_path / "new.lance").exists()


def test_a_name_twice_or_a_type_that_is_unknown(make, tmp_path):
    with pytest.raises(InvalidInput, match="each column once"):
        make(pa.schema([("a", pa.int8()), ("a", pa.string())]))
    with pytest.raises(InvalidInput, match="types of string, int64"):
        make({"a": "text"})
    with pytest.raises(InvalidInput, match="types that Lance can keep"):
        make(pa.schema([("a", pa.month_day_nano_interval())]))
    assert not (tmp_path / "new.lance").exists()


VALUES = [{"a": 1, "b": [None, True, "é\u2028", 0.5]}, {}, [], "text", 1, 1.5, None, {"a": {"b": {"c": "it's"}}}]


def test_json_comes_back_and_stays_through_an_upgrade(make):
    gallery = make({"about": "json"})
    ids = [f"{number}" for number in range(len(VALUES))]
    documents = [json.dumps(value) for value in VALUES]
    vectors = [[1.0, float(number)] for number in range(len(VALUES))]
    gallery.add({"id": ids, "vector": vectors, "about": documents})
    gallery.add({"id": ids[:2], "vector": vectors[:2]}, upsert=True)  # what is not given stays
    lookup = cs.encoders.Precomputed(dict(zip(ids, vectors, strict=True)))
    gallery.register(cs.EmbeddingVersion("v2", dim=2, metric="l2", encoder=lookup))
    gallery.upgrade("v2", backfill=1.0)
    gallery.cutover("v2")
    gallery.maintenance.optimize(grace=0)
    kept = gallery.get(ids, ["about"])["about"].to_pylist()
    assert [json.loads(text) for text in kept] == VALUES
    found = gallery.search([1.0, 0.0], where="json_extract(json_get(about, 'a'), '$') = '1'", columns=["id"])
    assert found["id"].to_pylist() == ["0"]
    assert gallery.maintenance.verify().clean


def test_values_are_written_as_json(make):
    gallery = make({"about": "json"})
    given = [{"a": [1, None, {"b": "é"}]}, [], 1.5, True, None, float("nan"), '{"a": 2}', np.int64(3)]
    gallery.add([{"id": f"{n}", "vector": [0.0, 1.0], "about": value} for n, value in enumerate(given)])
    kept = gallery.get([f"{n}" for n in range(len(given))], ["about"])["about"].to_pylist()
    assert [text and json.loads(text) for text in kept] == [*given[:4], None, None, {"a": 2}, 3]
    assert gallery.update([{"id": "0", "about": {"a": 5}}]) == 1
    assert json.loads(gallery.get(["0"], ["about"])["about"][0].as_py()) == {"a": 5}


@pytest.mark.parametrize("text", ["{", "x", "", "NaN", '{"a": Infinity}', "{'a': 1}"])
def test_what_is_no_json_is_refused(make, text):
    gallery = make({"about": "json"})
    with pytest.raises(InvalidInput, match="column 'about' of item 'b'; expected a text of JSON"):
        gallery.add({"id": ["a", "b"], "vector": [[0.0, 1.0]] * 2, "about": ["{}", text]})
    assert len(gallery) == 0


@pytest.mark.parametrize("value", [uuid.UUID(int=5), Path("a/b"), Decimal("1.5"), float("nan"), np.float32("inf")])
@pytest.mark.parametrize("verb", ["upsert", "update"])
def test_what_json_cannot_hold_is_named_with_its_key_and_item(make, value, verb):
    gallery = make({"about": "json"})
    gallery.add({"id": ["a", "b"], "vector": [[0.0, 1.0]] * 2})
    data = {"id": ["a", "b"], "about": [{"k": 1}, {"k": [0, value]}]}
    named = rf"column 'about' of item 'b'.* of type {type(value).__name__.replace('float32', 'float')} under 'k\.1'"
    with pytest.raises(InvalidInput, match=named):
        gallery.update(data) if verb == "update" else gallery.add(data | {"vector": [[1.0, 0.0]] * 2}, upsert=True)
    assert gallery.get(["a", "b"], ["about"])["about"].to_pylist() in ([None, None], ["null", "null"])
