"""The retriever of a pipeline, on a document store of a gallery."""

from __future__ import annotations

from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import FilterPolicy, apply_filter_policy

from compatstore.asynchronous import method_beside
from compatstore.errors import InvalidInput
from compatstore.integrations.haystack.store import CompatStoreDocumentStore


@component
class CompatStoreEmbeddingRetriever:
    """Retrieves the documents nearest to a query from a `CompatStoreDocumentStore`.

    Args:
        document_store: The store.
        filters: Only documents that fulfil it.
        top_k: Documents wanted.
        scale_score: Bring a cosine into the range from 0 to 1.
        return_embedding: Whether documents come with their embeddings.
        filter_policy: Whether filters of a run replace those above, or are joined with them.

    Raises:
        InvalidInput: `document_store` is another one, or `top_k` is below 1.
    """

    __module__ = "compatstore.integrations.haystack"  # stored pipelines name it so

    def __init__(
        self,
        document_store: CompatStoreDocumentStore,
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        scale_score: bool = False,
        return_embedding: bool = False,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        if not isinstance(document_store, CompatStoreDocumentStore) or top_k < 1:
            found = f"{type(document_store).__name__}, top_k {top_k}"
            raise InvalidInput("make a retriever", expected="a CompatStoreDocumentStore and top_k >= 1", found=found)
        self.document_store, self.filters, self.top_k = document_store, filters, top_k
        self.scale_score, self.return_embedding = scale_score, return_embedding
        self.filter_policy = filter_policy

    def to_dict(self) -> dict[str, Any]:
        """What makes the component again."""
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            scale_score=self.scale_score,
            return_embedding=self.return_embedding,
            filter_policy=self.filter_policy.value,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CompatStoreEmbeddingRetriever:
        """Make the component again."""
        parameters = dict(data.get("init_parameters", {}))
        if "filter_policy" in parameters:
            parameters["filter_policy"] = FilterPolicy.from_str(parameters["filter_policy"])
        return default_from_dict(cls, {**data, "init_parameters": parameters})

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float] | None = None,
        query: str | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        scale_score: bool | None = None,
        return_embedding: bool | None = None,
    ) -> dict[str, list[Document]]:
        """Retrieve documents.

        Args:
            query_embedding: An embedding of the store's model.
            query: In its place a text, which the store embeds by what serves now; it goes on after a cutover to
                another model.
            filters: As the component's; see `filter_policy`.
            top_k: In place of the component's.
            scale_score: In place of the component's.
            return_embedding: In place of the component's.

        Raises:
            InvalidInput: Neither an embedding nor a text, or both.
        """
        if (query is None) == (query_embedding is None):
            found = "both" if query is not None else "neither"
            raise InvalidInput("retrieve documents", expected="a query or a query_embedding", found=found)
        asked: str | list[float] = query if query is not None else query_embedding or []
        documents = self.document_store.search(
            asked,
            apply_filter_policy(self.filter_policy, self.filters, filters),
            self.top_k if top_k is None else top_k,
            scale_score=self.scale_score if scale_score is None else scale_score,
            return_embedding=self.return_embedding if return_embedding is None else return_embedding,
        )
        return {"documents": documents}

    run_async = component.output_types(documents=list[Document])(method_beside(run))
