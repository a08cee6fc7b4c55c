"""A LanceDB table with an embedding function of its own: adopted with that model, built only where it is trusted."""

from __future__ import annotations

import functools
import json
import warnings
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.encoders import LanceDBFunction, encode_queries
from compatstore.encoders.functions import identity_of
from compatstore.errors import Incompatible, NotFound, SourceError
from compatstore.storage.lancedb_functions import function_of
from lazily import Lazy

lancedb = Lazy("lancedb", "lancedb.embeddings", "lancedb.pydantic")

TEXTS = ["red shirt", "blue coat", "green hat", "red hat"]
DIM = 8


@functools.cache
def letters():
    """The function of the app's table, registered."""

    @lancedb.register("letters-of-tests")
    class Letters(lancedb.EmbeddingFunction):
        """Counts letters; queries are told from sources by the last value."""

        seed: int = 0
        api_key: str = ""

        def ndims(self) -> int:
            return DIM

        def compute_source_embeddings(self, texts, *args, **kwargs):
            texts = texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)
            return [self._embed(text, 0.0) if text != "unreadable" else None for text in texts]

        def compute_query_embeddings(self, query, *args, **kwargs):
            return [self._embed(query, 1.0)]

        def _embed(self, text, last):
            table = np.random.default_rng(self.seed).standard_normal((256, DIM - 1))
            return [*(sum(table[byte % 256] for byte in text.encode()) / len(text)), last]

    return Letters


@pytest.fixture
def table(tmp_path):
    """A table as an app of LanceDB's makes it, with a key among the arguments."""
    function = letters().create(seed=3, api_key="sk-of-the-app")

    class Note(lancedb.LanceModel):
        key: str
        text: str = function.SourceField()
        vector: lancedb.Vector(DIM) = function.VectorField()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = lancedb.connect(tmp_path / "db").create_table("notes", schema=Note)
        made.add([{"key": f"n{number}", "text": text} for number, text in enumerate(TEXTS)])
    return made


def adopted(table, **settings):
    version = cs.EmbeddingVersion("v1", dim=DIM, metric="cosine", **settings)
    return cs.Gallery.adopt(table, version, vector="vector", id="key")


def reopened(tmp_path, **settings):
    return cs.Gallery.open(f"{tmp_path / 'db'}#notes", **settings)


def test_the_table_says_which_model_it_has_and_what_it_embeds(table, tmp_path):
    gallery = adopted(table)
    (version,) = gallery.status().versions
    assert version.encoder == "lancedb:vector"
    assert gallery._catalog.registry().source_column == "text"
    assert gallery._catalog.recorded().record("v1").model == identity_of("letters-of-tests", {"seed": 3})


def test_it_is_built_only_where_the_gallery_is_trusted(table, tmp_path):
    adopted(table)
    with pytest.raises(Incompatible, match=r"lancedb:vector.*trust_code=True"):
        reopened(tmp_path).search("red shirt", k=1)
    gallery = reopened(tmp_path, trust_code=True)
    encoder = gallery._catalog.encoder("v1")
    np.testing.assert_allclose(encoder.encode(TEXTS), gallery.vectors(["n0", "n1", "n2", "n3"]), atol=1e-6)
    assert gallery.search("blue coat", k=1)["key"].to_pylist() == ["n1"]


def test_queries_and_sources_go_their_own_ways(table):
    encoder = LanceDBFunction(letters().create(seed=3))
    assert encoder.encode(TEXTS)[:, -1].tolist() == [0.0] * 4
    assert encode_queries(encoder, TEXTS).vectors[:, -1].tolist() == [1.0] * 4
    assert encoder.encode([]).shape == encoder.encode_queries([]).shape == (0, DIM)
    with pytest.raises(SourceError) as error:
        encoder.encode(["red", "unreadable"])
    assert list(error.value.failures) == [1]


def test_secrets_stand_nowhere_and_change_nothing(table, tmp_path):
    gallery = adopted(table)
    config = json.dumps({f"{key}": f"{value}" for key, value in gallery._catalog.store.snapshot().config().items()})
    assert "sk-of-the-app" not in config
    for secrets in ({"api_key": "another"}, {"api_key": "$var:key"}, {}):
        assert identity_of("letters-of-tests", {"seed": 3, **secrets}) == gallery._catalog.recorded().record("v1").model
    assert identity_of("f", {"seed": 3}) != identity_of("f", {"seed": 4})
    assert identity_of("f", {"seed": 3}) != identity_of("g", {"seed": 3})
    inner = [{"a": {"hf_token": secret, "url": f"https://me:{secret}@host/x"}} for secret in ("one", "two")]
    assert identity_of("f", inner[0]) == identity_of("f", inner[1])
    assert identity_of("f", {"device": "cpu", "max_retries": 3}) == identity_of("f", {"device": "cuda"})
    assert identity_of("f", {"tokenizer": "one"}) != identity_of("f", {"tokenizer": "two"})


def test_what_is_named_counts_more_than_what_the_table_says(table):
    gallery = adopted(table, model="letters@2026")
    assert gallery._catalog.recorded().record("v1").model == "letters@2026"
    assert gallery.status().versions[0].encoder == ""


def test_a_function_that_the_app_changed_is_another_model(table, tmp_path):
    adopted(table)
    schema = table.schema
    listed = json.loads(schema.metadata[b"embedding_functions"])
    listed[0]["model"]["seed"] = 4
    dataset = lance.dataset(tmp_path / "db" / "notes.lance")
    dataset.update_schema_metadata({"embedding_functions": json.dumps(listed)})
    with pytest.raises(Incompatible, match=r"model|fingerprint"):
        reopened(tmp_path, trust_code=True).search("red shirt", k=1)


def test_an_unknown_function_is_named(table, tmp_path, monkeypatch):
    adopted(table)
    known = dict(lancedb.get_registry()._functions)
    known.pop("letters-of-tests")
    monkeypatch.setattr(lancedb.get_registry(), "_functions", known)
    with pytest.raises(NotFound, match=r"'letters-of-tests'.*Import the module"):
        reopened(tmp_path, trust_code=True).search("red shirt", k=1)


def test_arguments_that_do_not_fit_are_not_shown(table, tmp_path, monkeypatch):
    adopted(table)

    def create(**arguments):
        raise ValueError(f"cannot use {arguments}")

    monkeypatch.setattr(letters(), "create", create)
    with pytest.raises(Incompatible, match="ValueError") as error:
        reopened(tmp_path, trust_code=True).search("red shirt", k=1)
    assert "sk-of-the-app" not in str(error.value)
    assert error.value.__cause__ is None


@pytest.mark.parametrize(
    "written",
    [b"", b"{}", b"[", b"[1]", b'[{"vector_column": "vector"}]', b'[{"vector_column": "other", "model": {}}]', b"null",
     b'[{"vector_column": "vector", "model": 3, "name": "f", "source_column": "t"}]', b"\xff"],
)  # fmt: skip
def test_metadata_that_cannot_be_read_name_no_function(written):
    schema = pa.schema([pa.field("vector", pa.list_(pa.float32(), 4))], metadata={b"embedding_functions": written})
    assert function_of(schema, "vector") is None


def test_a_function_can_be_the_target(table, tmp_path):
    gallery = adopted(table)
    target = LanceDBFunction(letters().create(seed=9))
    gallery.register(cs.EmbeddingVersion("v2", dim=DIM, metric="cosine", encoder=target))
    assert gallery.upgrade("v2", backfill=1.0).backfilled == 4
    gallery.cutover("v2")
    assert gallery.search("green hat", k=1)["key"].to_pylist() == ["n2"]
    assert Path(tmp_path / "db").exists()
