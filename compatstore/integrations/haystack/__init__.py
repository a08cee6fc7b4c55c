"""A Haystack document store on a gallery and its retriever; it can be upgraded while pipelines run."""

from compatstore.errors import MissingExtra

try:
    from haystack import component as _component  # noqa: F401  (what earlier libraries of this name have not)
except ImportError as error:
    raise MissingExtra("haystack", "haystack") from error

from compatstore.integrations.haystack.retriever import CompatStoreEmbeddingRetriever
from compatstore.integrations.haystack.store import CompatStoreDocumentStore, Embedders, as_encoder

__all__ = ["CompatStoreDocumentStore", "CompatStoreEmbeddingRetriever", "Embedders", "as_encoder"]
