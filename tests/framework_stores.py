"""Stores of three frameworks over a gallery, by the same five verbs: for what must hold through each of them."""

from __future__ import annotations

from lazily import Lazy
from toy_models import NEW, OLD, vector

haystack = Lazy("haystack", "haystack.components.embedders", "haystack.dataclasses", "haystack.document_stores.types")
langchain_models = Lazy("langchain_models")
llama_index = Lazy("llama_index.core.schema", "llama_index.core.vector_stores.types")
llamaindex_models = Lazy("llamaindex_models")
of_haystack = Lazy("compatstore.integrations.haystack")
of_langchain = Lazy("compatstore.integrations.langchain")
of_llamaindex = Lazy("compatstore.integrations.llamaindex")


class LangChain:
    """A store with the models of some sizes, that of the app first; `columns` is what it needs in an app's table."""

    columns = ()

    def __init__(self, path, sizes=(OLD,)):
        first, *others = map(langchain_models.Toy, sizes)
        self._store = of_langchain.CompatStoreVectorStore(first, path, models=others)

    @staticmethod
    def encoder(size=OLD):
        return of_langchain.as_encoder(langchain_models.Toy(size))

    def write(self, documents):
        texts, metadatas = zip(*documents.values(), strict=True)
        self._store.add_texts(texts, list(metadatas), ids=list(documents))

    def delete(self, names):
        self._store.delete(names)

    def read(self, names):
        return {one.id: (one.page_content, one.metadata) for one in self._store.get_by_ids(names)}

    def search(self, text):
        """Id of the nearest document."""
        return self._store.similarity_search(text, k=1)[0].id


class Haystack:
    """The same of Haystack."""

    columns = ()

    def __init__(self, path, sizes=(OLD,)):
        first, *others = map(self._embedders, sizes)
        self._store = of_haystack.CompatStoreDocumentStore(path, first, models=others)

    @staticmethod
    def _embedders(size):
        def embed(text):
            return vector(text, size)

        return of_haystack.Embedders(
            haystack.MockDocumentEmbedder(embedding_fn=embed),
            haystack.MockTextEmbedder(embedding_fn=embed),
            f"toy {size}",
        )

    @classmethod
    def encoder(cls, size=OLD):
        return of_haystack.as_encoder(cls._embedders(size))

    def write(self, documents):
        made = [haystack.Document(id=name, content=text, meta=metadata) for name, (text, metadata) in documents.items()]
        self._store.write_documents(made, haystack.DuplicatePolicy.OVERWRITE)

    def delete(self, names):
        self._store.delete_documents(names)

    def read(self, names):
        found = self._store.filter_documents({"field": "id", "operator": "in", "value": names})
        return {one.id: (one.content, one.meta) for one in found}

    def search(self, text):
        """Id of the nearest document."""
        return self._store.search(text, top_k=1)[0].id


class LlamaIndex:
    """The same of LlamaIndex."""

    columns = ("llama_index_node", "llama_index_document")

    def __init__(self, path, sizes=(OLD,)):
        first, *others = map(self._model, sizes)
        self._store = of_llamaindex.LlamaIndexVectorStore(first, path, models=others)

    @staticmethod
    def _model(size):
        return {OLD: llamaindex_models.OLD, NEW: llamaindex_models.NEW}[size]

    @classmethod
    def encoder(cls, size=OLD):
        return of_llamaindex.as_encoder(cls._model(size))

    def write(self, documents):
        made = [
            llama_index.TextNode(id_=name, text=text, metadata=metadata) for name, (text, metadata) in documents.items()
        ]
        self._store.add(made)

    def delete(self, names):
        self._store.delete_nodes(names)

    def read(self, names):
        return {one.node_id: (one.text, one.metadata) for one in self._store.get_nodes(names)}

    def search(self, text):
        """Id of the nearest node."""
        asked = llama_index.VectorStoreQuery(query_str=text, similarity_top_k=1)
        return self._store.query(asked).ids[0]


FRAMEWORKS = {"langchain": LangChain, "haystack": Haystack, "llamaindex": LlamaIndex}
