"""Metadata with any keys and values come back through each framework, and nothing of them reaches ids and texts."""

from __future__ import annotations

import random

import lance
import pyarrow as pa
import pytest

import compatstore as cs
from tests.framework_stores import FRAMEWORKS

# Names that mean something to a gallery, to Lance, to SQL or to a framework.
KEYS = [
    *("id", "ids", "source", "vector", "side", "v1", "v1__origin", "v2", "metadata", "document_metadata", "label"),
    *("_distance", "_rowid", "_score", "a.b", "A", "a", "`", "'; DROP", '"', "", " ", "\n", "\U0001f600", "text"),
    *("content", "meta", "embedding", "score", "doc_id", "ref_doc_id", "_node_content", "_node_type"),
    *("llama_index_node", "llama_index_document", "haystack", "page_content", "LABEL", "year"),
]
SCALARS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**63 - 1,
    -(2**63),
    0.0,
    1.5,
    -1e300,
    "",
    "x",
    "1",
    "true",
    "null",
    "[1]",
    "é\n",
]


def a_value(draw, depth=0):
    kind = draw.random()
    if depth < 3 and kind < 0.1:
        return [a_value(draw, depth + 1) for _ in range(draw.randrange(3))]
    if depth < 3 and kind < 0.2:
        return {key: a_value(draw, depth + 1) for key in draw.sample(KEYS, draw.randrange(3))}
    return draw.choice(SCALARS)


def some_metadata(draw, typed):
    """A few odd keys; those that have a typed column have values of its type."""
    keys = draw.sample(KEYS, draw.randrange(6))
    values = {key: a_value(draw) for key in keys}
    if typed:
        values |= {key: draw.choice(["x", "", None]) for key in keys if key == "label"}
        values |= {key: draw.choice([2024, -1, None]) for key in keys if key == "year"}
    return values


def is_equal(found, expected):
    """Whether two documents are equal, their types included: 1, 1.0 and True are three values."""
    return repr(ordered(found)) == repr(ordered(expected))


def ordered(value):
    if isinstance(value, dict):
        return sorted((key, repr(ordered(one))) for key, one in value.items())
    return [ordered(one) for one in value] if isinstance(value, list | tuple) else value


def made_before(path, encoder):
    """A gallery that was made without the adapter: it has no column of JSON, but two of other types."""
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=encoder.dim, metric="cosine", encoder=encoder))
    gallery.add({"id": ["first"], "source": ["a text"], "label": ["x"], "year": [1]})
    gallery.delete(["first"])


@pytest.mark.parametrize(
    ("framework", "typed", "operations"),
    [
        ("langchain", True, 30),
        ("haystack", True, 30),
        ("llamaindex", True, 30),
        *(pytest.param(name, typed, 150, marks=pytest.mark.full) for name in FRAMEWORKS for typed in (False, True)),
        *(pytest.param(name, typed, 3_400, marks=pytest.mark.slow) for name in FRAMEWORKS for typed in (False, True)),
    ],
)
def test_any_metadata_come_back_through(framework, typed, operations, tmp_path):
    draw, path, adapter = random.Random(operations), str(tmp_path / "documents.lance"), FRAMEWORKS[framework]
    if typed:
        made_before(path, adapter.encoder())
    store, truth = adapter(path), {}
    names = [f"doc{number}" for number in range(12)]
    for operation in range(operations):
        chosen = draw.sample(names, draw.randrange(1, 5))
        kind = draw.random()
        if kind < 0.45:
            texts = ["the contract of 2024", "x", "doc1", "two words"]
            written = {name: (draw.choice(texts), some_metadata(draw, typed)) for name in chosen}
            store.write(written)
            truth |= written
        elif kind < 0.55:
            store.delete(chosen)
            truth = {name: document for name, document in truth.items() if name not in chosen}
        elif kind < 0.6:
            store = adapter(path)
        else:
            found = store.read(chosen if operation % 10 else names)
            wanted = {name: truth[name] for name in (chosen if operation % 10 else names) if name in truth}
            assert found.keys() == wanted.keys()
            for name, document in wanted.items():
                assert is_equal(found[name], document), (operation, name)


@pytest.mark.full
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_vectors_that_an_adopted_table_keeps_are_no_metadata(framework, tmp_path):
    adapter, path = FRAMEWORKS[framework], str(tmp_path / "documents.lance")
    encoder = adapter.encoder()
    columns = {"id": ["doc1"], "source": ["two words"], "year": [2024]}
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(encoder.encode(["two words"]).reshape(-1)), encoder.dim)
    lance.write_dataset(pa.table({**columns, "embedding": vectors}), path)
    first = cs.EmbeddingVersion("v1", dim=encoder.dim, metric="cosine", encoder=encoder)
    gallery = cs.Gallery.adopt(path, first, vector="embedding", id="id", source="source")
    lookup = cs.encoders.Precomputed({"doc1": [1.0, 0.0, 0.0]})
    gallery.register(cs.EmbeddingVersion("v2", dim=3, metric="cosine", encoder=lookup))
    gallery.upgrade("v2", backfill=1.0)
    gallery.cutover("v2")
    gallery.retire("v1")
    assert adapter(path).read(["doc1"]) == {"doc1": ("two words", {"year": 2024})}
