"""LangChain's own suite for vector stores."""

from __future__ import annotations

import pytest
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests

from compatstore.integrations.langchain import CompatStoreVectorStore

pytestmark = pytest.mark.full


class TestCompatStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, tmp_path):
        return CompatStoreVectorStore(self.get_embeddings(), str(tmp_path / "documents.lance"))
