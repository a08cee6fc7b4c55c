"""Stores of other frameworks on one table, with the same operations: write, delete, read."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from zlib import crc32

from tests.known.vectors import ENCODERS, label

Document = tuple[str, dict[str, Any]]  # text and metadata

# Keys and values that mean something to a gallery, to SQL or to a framework.
KEYS = ("id", "source", "vector", "v1", "v2__origin", "metadata", "a.b", "'; DROP", "", "_distance", "text", "doc_id")
VALUES = (None, True, 0, 2**63 - 1, 1.5, "", "é\n", [1, None], {"id": "x"})


def metadata(source: str, odd: bool) -> dict[str, Any]:
    """The metadata that a framework's store is handed with a text: a label, and odd keys and values beside it."""
    draw = random.Random(crc32(source.encode()))
    keys = draw.sample(KEYS, draw.randrange(4)) if odd else []
    return {"label": label(source), **{key: draw.choice(VALUES) for key in keys}}


class DocumentStore(Protocol):
    """What the three have in common."""

    def write(self, documents: Mapping[str, Document]) -> None:
        """Write documents by their ids, in one commit."""

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents, in one commit."""

    def read(self, ids: Sequence[str]) -> dict[str, Document]:
        """Those that are there."""


class LangChain:
    """LangChain's store."""

    def __init__(self, path: str) -> None:
        from compatstore.integrations.langchain import CompatStoreVectorStore

        source, target = (encoder.of_frameworks for encoder in ENCODERS.values())
        self._store = CompatStoreVectorStore(source, path, models=[target])

    def write(self, documents: Mapping[str, Document]) -> None:
        """Write documents by their ids, in one commit."""
        texts, metadatas = zip(*documents.values(), strict=True)
        self._store.add_texts(texts, list(metadatas), ids=list(documents))

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents, in one commit."""
        self._store.delete(list(ids))

    def read(self, ids: Sequence[str]) -> dict[str, Document]:
        """Those that are there."""
        return {str(one.id): (one.page_content, one.metadata) for one in self._store.get_by_ids(ids)}


class Haystack:
    """Haystack's store."""

    def __init__(self, path: str) -> None:
        from haystack.components.embedders import MockDocumentEmbedder, MockTextEmbedder

        from compatstore.integrations.haystack import CompatStoreDocumentStore, Embedders

        models = []
        for name, encoder in ENCODERS.items():
            embed = _of_one_text(encoder)
            made = MockDocumentEmbedder(embedding_fn=embed), MockTextEmbedder(embedding_fn=embed)
            models.append(Embedders(*made, identity=name))
        self._store = CompatStoreDocumentStore(path, models[0], models=models[1:])

    def write(self, documents: Mapping[str, Document]) -> None:
        """Write documents by their ids, in one commit."""
        from haystack import Document as Made
        from haystack.document_stores.types import DuplicatePolicy

        made = [Made(id=name, content=text, meta=meta) for name, (text, meta) in documents.items()]
        self._store.write_documents(made, DuplicatePolicy.OVERWRITE)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents, in one commit."""
        self._store.delete_documents(list(ids))

    def read(self, ids: Sequence[str]) -> dict[str, Document]:
        """Those that are there."""
        found = self._store.filter_documents({"field": "id", "operator": "in", "value": list(ids)})
        return {one.id: (one.content or "", one.meta) for one in found}


class LlamaIndex:
    """LlamaIndex's store."""

    def __init__(self, path: str) -> None:
        from compatstore.integrations.llamaindex import LlamaIndexVectorStore

        source, target = (encoder.of_frameworks for encoder in ENCODERS.values())
        self._store = LlamaIndexVectorStore(source, path, models=[target])

    def write(self, documents: Mapping[str, Document]) -> None:
        """Write documents by their ids, in one commit."""
        from llama_index.core.schema import TextNode

        self._store.add(
            [
                TextNode(id_=name, text=text, metadata=meta, excluded_embed_metadata_keys=list(meta))
                for name, (text, meta) in documents.items()
            ]
        )

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents, in one commit."""
        self._store.delete_nodes(list(ids))

    def read(self, ids: Sequence[str]) -> dict[str, Document]:
        """Those that are there."""
        return {one.node_id: (one.get_content(), one.metadata) for one in self._store.get_nodes(list(ids))}


FRAMEWORKS: dict[str, type[DocumentStore]] = {"LangChain": LangChain, "Haystack": Haystack, "LlamaIndex": LlamaIndex}


def _of_one_text(encoder: Any) -> Any:
    return lambda text: encoder.encode([text])[0].tolist()
