"""LangChain's own suite for vector stores."""

from __future__ import annotations

import lancedb
import pyarrow as pa
import pytest
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests

import compatstore as cs
from compatstore.integrations.langchain import CompatStoreVectorStore, as_encoder

pytestmark = pytest.mark.full


class TestCompatStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path):
        return CompatStoreVectorStore(self.get_embeddings(), str(tmp_path / "documents.lance"))


class TestTableOfItsOwnStore(VectorStoreIntegrationTests):
    """A table that LangChain's store on LanceDB has made, whose metadata is a struct; other keys go to JSON."""

    @pytest.fixture
    def vectorstore(self, tmp_path):
        stores = pytest.importorskip("langchain_community.vectorstores.lancedb")
        embeddings, path = self.get_embeddings(), f"{tmp_path}#t"
        stores.LanceDB(uri=str(tmp_path), embedding=embeddings, table_name="t").add_texts(["x"], [{"id": 0}], ["x"])
        table = lancedb.connect(tmp_path).open_table("t")
        table.add_columns(pa.field("document_metadata", pa.json_(pa.string())))
        encoder = as_encoder(embeddings)
        version = cs.EmbeddingVersion("v1", dim=encoder.dim, encoder=encoder)
        cs.Gallery.adopt(path, version, vector="vector", id="id", source="text").delete(["x"])
        return CompatStoreVectorStore(embeddings, path)
