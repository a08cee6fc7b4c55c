"""A LangChain vector store on a gallery, which can be upgraded to another embedding model while the app serves."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from compatstore.asynchronous import method_beside
from compatstore.encoders import Function
from compatstore.errors import InvalidInput, MissingExtra
from compatstore.evaluation.fusion import Serving
from compatstore.integrations.documents import Documents, refuse_unknown
from compatstore.integrations.filter_languages import read_langchain
from compatstore.integrations.models import FrameworkModel, model_of_framework
from compatstore.integrations.serving import one_vector, serve
from compatstore.versions import Metric

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ImportError as error:
    raise MissingExtra("langchain_core", "langchain") from error

Filter = Mapping[str, Any]


def model_of(embeddings: Embeddings | FrameworkModel, identity: str | None = None) -> FrameworkModel:
    """LangChain's embeddings as a model with an identity.

    Args:
        embeddings: Any `Embeddings` of LangChain.
        identity: Identity of the model ("text-embedding-3-small@2024-01"), if class, settings and
            release of the library are not sufficient, or too specific.

    Raises:
        InvalidInput: They are no `Embeddings`, or the identity is no text.
    """
    return model_of_framework("LangChain", Embeddings, ("embed_documents", "embed_query"), embeddings, identity)


def as_encoder(embeddings: Embeddings, *, identity: str | None = None, spec: str = "") -> Function:
    """LangChain's embeddings as an encoder: for `Gallery.register`, and for `--encoder python:MODULE:ATTRIBUTE`.

    Args:
        embeddings: Any `Embeddings` of LangChain; one text is embedded, to see how many values a vector has.
        identity: As `model_of` takes it.
        spec: Spec by which `encoders.from_spec` finds this object again ("python:package.module:attribute").
    """
    return model_of(embeddings, identity).measured(spec)


class CompatStoreVectorStore(VectorStore):
    """A `VectorStore` whose documents are the items of a gallery.

    Text is the item's source, metadata is in columns of its own or in one of JSON (`documents.py`). A gallery is
    made if there is none. While an upgrade is served by both of its versions, queries are embedded by both models.

    Args:
        embedding: The app's embedding model; a `FrameworkModel` of `model_of` if its identity is declared.
        gallery: A path, a URI or `DATABASE#TABLE`.
        models: Further models of the app: those that the gallery is or will be upgraded to, or comes from.
        metric: Distance of a gallery that is made here.
        metadata: Metadata columns of a gallery that is made here, by name and type; all else is kept as JSON.
        storage_options: Settings of the object store.

    Raises:
        Incompatible: The embedding model is another one than the gallery's.
    """

    def __init__(
        self,
        embedding: Embeddings | FrameworkModel,
        gallery: str,
        *,
        models: Sequence[Embeddings | FrameworkModel] = (),
        metric: Metric = "cosine",
        metadata: Mapping[str, str] | None = None,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        every = [model_of(model) for model in (embedding, *models)]
        self._embedding = embedding
        self._served = serve(gallery, every, metric=metric, metadata=metadata, storage_options=storage_options)

    @property
    def embeddings(self) -> Embeddings | None:
        """The app's embedding model, if it was handed over as one of LangChain."""
        return self._embedding if isinstance(self._embedding, Embeddings) else None

    # ---- writing

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed and write texts, in one commit; a text whose id exists replaces the former one.

        Args:
            texts: n texts.
            metadatas: A mapping for each.
            ids: An id for each; None for a new one.
            kwargs: None.

        Returns:
            The ids of the written texts.

        Raises:
            InvalidInput: There is not one of each, or metadata that cannot be kept.
        """
        refuse_unknown(kwargs, "add texts")
        every = list(texts)
        values = [one or {} for one in metadatas] if metadatas else [{} for _ in every]
        named = [None for _ in every] if ids is None else list(ids)
        if not len(every) == len(values) == len(named):
            found = f"{len(every)} texts, {len(values)} metadatas and {len(named)} ids"
            raise InvalidInput("add texts", expected="metadata and an id for each text", found=found)
        if not all(isinstance(text, str) for text in every) or not all(isinstance(one, Mapping) for one in values):
            found = ", ".join(sorted({type(one).__name__ for one in (*every, *values)}))
            raise InvalidInput("add texts", expected="texts, and mappings as metadata", found=found)
        written = [str(uuid.uuid4()) if name is None else name for name in named]
        if not every:
            return []
        version = self._served.version()
        return self._served.write(Documents.of(self._served.now()).rows(written, every, values), version, written)

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        """Remove documents; all of them if `ids` is None, as LangChain has it. Unknown ids are ignored."""
        refuse_unknown(kwargs, "delete documents")
        gallery = self._served.now()
        gone = gallery.scan([gallery.columns.id]).to_arrow()[gallery.columns.id].to_pylist() if ids is None else ids
        gallery.delete(gone)
        return True

    # ---- reading

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Documents by their ids, in their order; ids that are not there are left out."""
        gallery = self._served.now()
        documents = Documents.of(gallery)
        found = gallery.get(list(ids), documents.columns, missing="skip")
        return [_document(documents, row) for row in found.to_pylist()]

    def similarity_search(self, query: str, k: int = 4, filter: Filter | None = None, **kwargs: Any) -> list[Document]:
        """The k documents nearest to a text.

        Args:
            query: A text.
            k: Documents wanted.
            filter: Condition on the metadata, such as {"year": {"$gte": 2024}}; see `filter_languages.py`.
            kwargs: None.
        """
        return [document for document, _ in self.similarity_search_with_score(query, k, filter, **kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Filter | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """The k documents nearest to a text, with their distances, nearest first.

        The distance of a fused search is a mean of standardised distances.
        """
        return self._search(_text(query), k, filter, self._served.version(), **kwargs)

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: Filter | None = None, **kwargs: Any
    ) -> list[Document]:
        """The k documents nearest to a vector of the app's embedding model."""
        found = self._search(embedding, k, filter, self._served.first(), **kwargs)
        return [document for document, _ in found]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Choose, of the `fetch_k` documents nearest to a text, k that are near to it and unlike each other."""
        version = self._served.version()
        found = self._search(query, fetch_k, filter, version, **kwargs)
        return self._diverse(query, found, version or self._served.now().active, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Filter | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """The same for a vector of the app's embedding model."""
        name = self._served.first()
        found = self._search(embedding, fetch_k, filter, name, **kwargs)
        return self._diverse(embedding, found, name, k, lambda_mult)

    amax_marginal_relevance_search_by_vector = method_beside(max_marginal_relevance_search_by_vector)

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, filter: Filter | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """By one version alone: only its distances have a scale that a relevance can be read from."""
        version = self._served.version() or self._served.now().active
        relevance = self._relevance(version)
        found = self._search(query, k, filter, version, **kwargs)
        return [(document, relevance(distance)) for document, distance in found]

    _asimilarity_search_with_relevance_scores = method_beside(_similarity_search_with_relevance_scores)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self._relevance(self._served.version() or self._served.now().active)

    def _relevance(self, version: str) -> Callable[[float], float]:
        """From 0 to 1, by LangChain's own formulas for the version's distance."""
        metric = self._served.now().version(version, encoders=False).metric
        of_metric: Mapping[str, Callable[[float], float]] = {
            "cosine": self._cosine_relevance_score_fn,
            "l2": lambda squared: self._euclidean_relevance_score_fn(math.sqrt(max(squared, 0.0))),
            "dot": self._cosine_relevance_score_fn,  # Lance's distance is 1 - the product
        }
        return lambda distance: min(max(of_metric[metric](distance), 0.0), 1.0)

    @classmethod
    def from_texts(  # type: ignore[override]
        cls,
        texts: list[str],
        embedding: Embeddings | FrameworkModel,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        gallery: str,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> CompatStoreVectorStore:
        """Open or make a gallery, and write texts to it; further arguments are those of the class."""
        store = cls(embedding, gallery, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    # ---- inside

    def _search(
        self,
        query: str | Sequence[float],
        k: int,
        filter: Filter | None,
        version: str | None,
        serving: Serving | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        refuse_unknown(kwargs, "search")
        gallery = self._served.now()
        documents = Documents.of(gallery)
        where = documents.where(read_langchain(filter) if filter else None)
        value = query if isinstance(query, str) else one_vector(query)
        found = gallery.search(value, k, version, where, documents.columns, serving=serving)
        return [(_document(documents, row), row["_distance"]) for row in found.to_pylist()]

    def _diverse(
        self,
        query: str | Sequence[float],
        found: Sequence[tuple[Document, float]],
        version: str,
        k: int,
        lambda_mult: float,
    ) -> list[Document]:
        """The documents that LangChain's rule chooses; those without a vector of the version come last."""
        positions, vectors = self._served.stored_vectors([f"{document.id}" for document, _ in found], version)
        vector = np.asarray(self._served.query_vector(query, version))
        chosen = [positions[number] for number in maximal_marginal_relevance(vector, vectors, lambda_mult, k)]
        rest = [position for position in range(len(found)) if position not in positions]
        return [found[position][0] for position in [*chosen, *rest][:k]]


def _document(documents: Documents, row: Mapping[str, Any]) -> Document:
    text = row[documents.text] if documents.text else None
    return Document(id=str(row[documents.id]), page_content=text or "", metadata=documents.metadata(row))


def _text(query: object) -> str:
    if not isinstance(query, str):
        fix = "similarity_search_by_vector takes vectors."
        raise InvalidInput("search by a text", expected="a text", found=type(query).__name__, fix=fix)
    return query
