"""Haystack's own suites for document stores."""

from __future__ import annotations

import numpy as np
import pytest
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.testing import document_store as suite
from haystack.testing import document_store_async as suite_async

from compatstore.integrations.haystack import CompatStoreDocumentStore

pytestmark = pytest.mark.full


class OnOneStore:
    """What the suites leave to a store: its making, what NONE means, and how exactly an embedding is kept."""

    @pytest.fixture
    def document_store(self, tmp_path):
        return CompatStoreDocumentStore(str(tmp_path / "documents.lance"), "random", embedding_dim=768)

    @staticmethod
    def assert_documents_are_equal(received, expected):
        """All equal, embeddings as float32 keeps them."""
        assert len(received) == len(expected)
        for one, other in zip(received, expected, strict=True):
            kept = None if other.embedding is None else np.asarray(other.embedding, np.float32).tolist()
            assert one.to_dict() == other.to_dict() | {"embedding": kept}


class TestDocumentStore(
    OnOneStore,
    suite.CountDocumentsByFilterTest,
    suite.CountUniqueMetadataByFilterTest,
    suite.GetMetadataFieldsInfoTest,
    suite.GetMetadataFieldMinMaxTest,
    suite.GetMetadataFieldUniqueValuesTest,
    suite.DocumentStoreBaseExtendedTests,
):
    document_store = OnOneStore.document_store  # the suite has one of its own, which raises

    def test_write_documents(self, document_store):
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document], DuplicatePolicy.NONE)
        self.assert_documents_are_equal(document_store.filter_documents(), [document])


class TestDocumentStoreAsync(
    OnOneStore,
    suite_async.CountDocumentsAsyncTest,
    suite_async.CountDocumentsByFilterAsyncTest,
    suite_async.CountUniqueMetadataByFilterAsyncTest,
    suite_async.DeleteAllAsyncTest,
    suite_async.DeleteByFilterAsyncTest,
    suite_async.DeleteDocumentsAsyncTest,
    suite_async.FilterDocumentsAsyncTest,
    suite_async.GetMetadataFieldsInfoAsyncTest,
    suite_async.GetMetadataFieldMinMaxAsyncTest,
    suite_async.GetMetadataFieldUniqueValuesAsyncTest,
    suite_async.UpdateByFilterAsyncTest,
    suite_async.WriteDocumentsAsyncTest,
):
    async def test_write_documents_async(self, document_store):
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document], DuplicatePolicy.NONE)
        self.assert_documents_are_equal(await document_store.filter_documents_async(), [document])


def test_every_class_of_the_suites_is_there():
    """Also those that a later release adds."""
    taken = {*TestDocumentStore.__mro__, *TestDocumentStoreAsync.__mro__}
    for module in (suite, suite_async):
        classes = [value for name, value in vars(module).items() if name.endswith(("Test", "Tests"))]
        assert classes
        assert set(classes) <= taken
