"""A Haystack document store on a gallery and its retriever; it can be upgraded while pipelines run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from compatstore.asynchronous import method_beside
from compatstore.encoders import Function
from compatstore.errors import InvalidInput, MissingExtra
from compatstore.gallery import Gallery
from compatstore.ingest.arrow import as_json
from compatstore.ingest.items import Repeated
from compatstore.integrations.documents import Documents
from compatstore.integrations.filter_languages import read_haystack
from compatstore.integrations.models import FrameworkModel, identity_of, require_model
from compatstore.integrations.serving import log, one_vector, serve
from compatstore.versions import Metric

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.components.embedders.types import DocumentEmbedder, TextEmbedder
    from haystack.core.serialization import component_to_dict
    from haystack.dataclasses import ByteStream, SparseEmbedding
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy, FilterPolicy, apply_filter_policy
    from haystack.errors import FilterError
except ImportError as error:
    raise MissingExtra("haystack", "haystack") from error

Filters = dict[str, Any]
EXTRAS = "haystack"  # column of a document's data beside text, metadata and embedding


class Embedders:
    """A document embedder and the text embedder that belongs to it: one embedding model.

    Args:
        document: Embeds documents by their content.
        text: Embeds queries.
        identity: Identity of the model ("text-embedding-3-small@2024-01"), if the components' classes,
            settings and release are not sufficient, or too specific.
    """

    def __init__(self, document: DocumentEmbedder, text: TextEmbedder, identity: str | None = None) -> None:
        self.document, self.text, self.identity = document, text, identity

    def to_dict(self) -> dict[str, Any]:
        """Serialize both components."""
        document, text = component_to_dict(self.document, "document"), component_to_dict(self.text, "text")
        return default_to_dict(self, document=document, text=text, identity=self.identity)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Embedders:
        """Make embedders of the output of `to_dict`."""
        return default_from_dict(cls, data)

    def model(self) -> FrameworkModel:
        """The pair of components as a single model."""
        if self.identity is None:
            named = f"{identity_of(self.document, 'haystack')}; {identity_of(self.text, 'haystack')}"
        else:
            named = require_model(self.identity, "Haystack")
        return FrameworkModel(named, self._documents, self._queries)

    def _documents(self, texts: Sequence[str]) -> list[list[float]]:
        _warm_up(self.document)
        return [done.embedding for done in self.document.run([Document(content=text) for text in texts])["documents"]]

    def _queries(self, texts: Sequence[str]) -> list[list[float]]:
        _warm_up(self.text)
        return [self.text.run(text)["embedding"] for text in texts]


def as_encoder(embedders: Embedders, *, spec: str = "") -> Function:
    """Haystack's embedders as an encoder: for `Gallery.register`, and for `--encoder python:MODULE:ATTRIBUTE`.

    Args:
        embedders: One document is embedded, to see how many values a vector has.
        spec: Spec by which `encoders.from_spec` finds this object again ("python:package.module:attribute").
    """
    return embedders.model().measured(spec)


def _warm_up(embedder: object) -> None:
    warm_up = getattr(embedder, "warm_up", None)
    if warm_up is not None:
        warm_up()


class CompatStoreDocumentStore:
    """A `DocumentStore` whose documents are the items of a gallery.

    Content is the item's source, metadata is in columns of its own or in one of JSON (`documents.py`). Documents bring
    embeddings of `model`, or are embedded by the store if it has embedders; others are kept without one. A gallery is
    made if there is none.

    Args:
        gallery: A path, a URI or `DATABASE#TABLE`.
        model: The app's embedding model: its embedders, or its name if the pipelines alone embed.
        models: Embedders of further models: those that the gallery is or will be upgraded to, or comes from.
        embedding_dim: Length of an embedding, for a gallery that is made here for a name alone.
        metric: Distance of a gallery that is made here.
        metadata: Metadata columns of a gallery that is made here, by name and type; all else is kept as JSON.
        return_embedding: True to return documents with their embeddings, unless a call overrides it.

    Raises:
        Incompatible: The model is another one than the gallery's.
    """

    def __init__(
        self,
        gallery: str,
        model: Embedders | str,
        *,
        models: Sequence[Embedders] = (),
        embedding_dim: int | None = None,
        metric: Metric = "cosine",
        metadata: Mapping[str, str] | None = None,
        return_embedding: bool = True,
    ) -> None:
        self.gallery, self.model, self.models = gallery, model, list(models)
        self.embedding_dim, self.metric = embedding_dim, metric
        self.metadata = None if metadata is None else dict(metadata)
        self.return_embedding = return_embedding
        named = FrameworkModel(require_model(model, "Haystack")) if isinstance(model, str) else model.model()
        every = [named, *(further.model() for further in models)]
        columns = {**(metadata or {}), EXTRAS: "json"}
        self._served = serve(gallery, every, dim=embedding_dim, metric=metric, metadata=columns)

    def to_dict(self) -> dict[str, Any]:
        """Serialize the arguments of the store."""
        return _to_dict(self, models=[further.to_dict() for further in self.models])

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CompatStoreDocumentStore:
        """Open a store with the arguments that `to_dict` wrote."""
        parameters = dict(data.get("init_parameters", {}))
        parameters["models"] = [Embedders.from_dict(further) for further in parameters.get("models", [])]
        return default_from_dict(cls, {**data, "init_parameters": parameters})

    # ---- the protocol

    def count_documents(self) -> int:
        """Number of documents."""
        return len(self._served.now())

    def filter_documents(self, filters: Filters | None = None) -> list[Document]:
        """Documents that fulfil a filter; all without one.

        Raises:
            FilterError: The filter is none.
        """
        gallery, documents = self._open()
        where = self._where(documents, filters)
        vector = self._vector(gallery) if self.return_embedding else None
        found = gallery.scan([*documents.columns, *([vector] if vector else [])], where).to_arrow()
        return [_document(documents, row, vector) for row in found.to_pylist()]

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents, in one commit.

        Args:
            documents: n documents; those without an embedding are embedded if the store has embedders.
            policy: Handling of existing ids. NONE is FAIL; of equal ids in one call SKIP takes the first, and
                OVERWRITE the last.

        Returns:
            How many were written; of OVERWRITE n.

        Raises:
            DuplicateDocumentError: An id is there, or twice in the call, with FAIL; nothing was written.
            InvalidInput: These are no documents, or have embeddings of another length.
        """
        if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
            raise InvalidInput("write documents", expected="a list of documents", found=type(documents).__name__)
        if policy == DuplicatePolicy.SKIP:
            return self._write_new(documents)
        try:
            self._write(documents, upsert=policy == DuplicatePolicy.OVERWRITE)
        except InvalidInput as error:
            if not error.duplicates:
                raise
            raise DuplicateDocumentError(str(error)) from error
        return len(documents)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Remove documents; ids that are not there are ignored."""
        self._served.now().delete(document_ids)

    # ---- beyond the protocol

    def delete_all_documents(self, recreate_index: bool = False) -> None:
        """Remove all documents; the gallery and its versions stay.

        Args:
            recreate_index: Drop the vector indexes of the removed documents too.
        """
        self.delete_by_filter({})
        if recreate_index:
            gallery = self._served.now()
            for name in gallery.versions():
                if gallery.maintenance.index(name).status().kind:
                    gallery.maintenance.index(name).drop()

    def delete_by_filter(self, filters: Filters) -> int:
        """Remove the documents that fulfil a filter; returns how many."""
        gallery, documents = self._open()
        ids = gallery.scan([documents.id], self._where(documents, filters)).to_arrow()[documents.id].to_pylist()
        return gallery.delete(ids)

    def update_by_filter(self, filters: Filters, meta: dict[str, Any]) -> int:
        """Add metadata to the documents that fulfil a filter, in one commit; their embeddings stay.

        Returns:
            How many were changed.
        """
        gallery, documents = self._open()
        found = gallery.scan(documents.columns, self._where(documents, filters)).to_arrow().to_pylist()
        if not found:
            return 0
        changed = [documents.metadata(row) | meta for row in found]
        columns = documents.rows([row[documents.id] for row in found], [None] * len(found), changed)
        columns.pop(documents.text or "", None)
        return gallery.update(columns)

    def count_documents_by_filter(self, filters: Filters) -> int:
        """Number of the documents that fulfil a filter."""
        gallery, documents = self._open()
        return len(gallery.scan(where=self._where(documents, filters)))

    def count_unique_metadata_by_filter(self, filters: Filters, metadata_fields: list[str]) -> dict[str, int]:
        """Numbers of distinct values of metadata, by field, in the documents that fulfil a filter."""
        every = self._metadata(filters)
        keys = [field.removeprefix("meta.") for field in metadata_fields]
        return {key: len(_distinct(values.get(key) for values in every)) for key in keys}

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Type of each field of metadata: boolean, int, float, or keyword for all else."""
        kinds: dict[type, str] = {bool: "boolean", int: "int", float: "float"}
        every = [(key, value) for values in self._metadata(None) for key, value in values.items()]
        return {key: {"type": kinds.get(type(value), "keyword")} for key, value in every if value is not None}

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Smallest and largest value of a field; None if it has none, or such that have no order."""
        key = metadata_field.removeprefix("meta.")
        values = [values.get(key) for values in self._metadata(None)]
        plain = [value for value in values if isinstance(value, int | float | str)]
        texts = [isinstance(value, str) for value in plain]
        if not plain or len(set(texts)) > 1:
            return {"min": None, "max": None}
        return {"min": min(plain), "max": max(plain)}

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: Filters | None = None,
    ) -> tuple[list[Any], int]:
        """Distinct values of a field, ordered by their texts, a page of them, and how many there are in all.

        Args:
            metadata_field: With or without "meta.".
            search_term: Only values whose text holds it, in any case.
            from_: Values before the page.
            size: Values of the page.
            filters: Only of documents that fulfil it.
        """
        key = metadata_field.removeprefix("meta.")
        values = _distinct(values.get(key) for values in self._metadata(filters))
        term = (search_term or "").lower()
        kept = [value for value in values if term in str(value).lower()]
        kept.sort(key=lambda value: (str(value), type(value).__name__))
        return kept[from_ : from_ + size], len(kept)

    def search(
        self,
        query: str | Sequence[float],
        filters: Filters | None = None,
        top_k: int = 10,
        *,
        scale_score: bool = False,
        return_embedding: bool | None = None,
    ) -> list[Document]:
        """The documents nearest to a query.

        Args:
            query: An embedding of `model`, or a text, which is embedded by the model of the serving version, or by
                both models during a fused search.
            filters: Only documents that fulfil it.
            top_k: Documents wanted.
            scale_score: Bring a cosine into the range from 0 to 1.
            return_embedding: True to return documents with their embeddings; None for the store's setting.

        Returns:
            Documents with a score, the best first. It is the cosine or the product, minus the distance under l2, and
            minus a mean of standardised distances of a fused search.
        """
        version = self._served.version() if isinstance(query, str) else self._served.first()
        gallery, documents = self._open()
        where = self._where(documents, filters)
        wanted = self.return_embedding if return_embedding is None else return_embedding
        vector = self._vector(gallery) if wanted else None
        value = query if isinstance(query, str) else one_vector(query)
        columns = [*documents.columns, *([vector] if vector else [])]
        metric = self._served.metric_of(value, version)
        found = gallery.search(value, top_k, version, where, columns).to_pylist()
        return [_document(documents, row, vector, _score(row["_distance"], metric, scale_score)) for row in found]

    # ---- beside the event loop

    count_documents_async = method_beside(count_documents)
    filter_documents_async = method_beside(filter_documents)
    write_documents_async = method_beside(write_documents)
    delete_documents_async = method_beside(delete_documents)
    delete_all_documents_async = method_beside(delete_all_documents)
    delete_by_filter_async = method_beside(delete_by_filter)
    update_by_filter_async = method_beside(update_by_filter)
    count_documents_by_filter_async = method_beside(count_documents_by_filter)
    count_unique_metadata_by_filter_async = method_beside(count_unique_metadata_by_filter)
    get_metadata_fields_info_async = method_beside(get_metadata_fields_info)
    get_metadata_field_min_max_async = method_beside(get_metadata_field_min_max)
    get_metadata_field_unique_values_async = method_beside(get_metadata_field_unique_values)

    # ---- inside

    def _open(self) -> tuple[Gallery, Documents]:
        gallery = self._served.now()
        return gallery, Documents.of(gallery, {EXTRAS: EXTRAS})

    def _vector(self, gallery: Gallery) -> str:
        """Column of the model's vectors if the gallery still has them, else of the active version's."""
        try:
            return gallery.columns.vectors[self._served.first()]
        except KeyError:
            return gallery.columns.vectors[gallery.active]

    @staticmethod
    def _where(documents: Documents, filters: Filters | None) -> str | None:
        try:
            return documents.where(read_haystack(filters) if filters else None)
        except InvalidInput as error:
            raise FilterError(str(error)) from error

    def _metadata(self, filters: Filters | None) -> list[dict[str, Any]]:
        gallery, documents = self._open()
        found = gallery.scan(documents.columns, self._where(documents, filters)).to_arrow()
        return [documents.metadata(row) for row in found.to_pylist()]

    def _write_new(self, documents: list[Document]) -> int:
        """Write the documents whose ids are not there, and again those that no other writer brings meanwhile."""
        new = {document.id: document for document in reversed(documents)}
        while new:
            gallery = self._served.now()
            column = gallery.columns.id
            for known in gallery.get(list(new), [column], missing="skip")[column].to_pylist():
                del new[known]
            try:
                self._write(list(reversed(new.values())), upsert=False)
                break
            except InvalidInput as error:
                if not error.duplicates:
                    raise
        return len(new)

    def _write(self, documents: list[Document], *, upsert: bool) -> None:
        if not documents:
            return
        gallery, layout = self._open()
        ids, texts = [document.id for document in documents], [document.content for document in documents]
        columns = layout.rows(ids, texts, [document.meta for document in documents])
        extras = [_extras(document) for document in documents]
        if EXTRAS in layout.apart or any(extras):
            kind = pa.json_(pa.string())
            columns[EXTRAS] = pa.ExtensionArray.from_storage(kind, pa.array(extras, pa.string()))
        vectors = [document.embedding for document in documents]
        embedded = any(vector is not None for vector in vectors)
        if embedded:
            columns["vector"] = vectors
        version = self._served.first() if embedded or isinstance(self.model, str) else self._served.version()
        repeated: Repeated = "last" if upsert else "refuse"
        added = gallery.add(columns, version, upsert=upsert, repeated=repeated, unembedded="keep")
        for name, reason in added.failures:
            log.warning("document %s could not be embedded, and is kept without an embedding: %s", name, reason)


@component
class CompatStoreEmbeddingRetriever:
    """Retrieves the documents nearest to a query from a `CompatStoreDocumentStore`.

    Args:
        document_store: The store.
        filters: Only documents that fulfil it.
        top_k: Documents wanted.
        scale_score: Bring a cosine into the range from 0 to 1.
        return_embedding: True to return documents with their embeddings.
        filter_policy: REPLACE: filters of a run replace those above; MERGE: they are joined.

    Raises:
        InvalidInput: `document_store` is another one, or `top_k` is below 1.
    """

    def __init__(
        self,
        document_store: CompatStoreDocumentStore,
        *,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        scale_score: bool = False,
        return_embedding: bool = False,
        filter_policy: FilterPolicy | str = FilterPolicy.REPLACE,
    ) -> None:
        if not isinstance(document_store, CompatStoreDocumentStore) or top_k < 1:
            found = f"{type(document_store).__name__}, top_k {top_k}"
            raise InvalidInput("make a retriever", expected="a CompatStoreDocumentStore and top_k >= 1", found=found)
        self.document_store, self.filters, self.top_k = document_store, filters, top_k
        self.scale_score, self.return_embedding = scale_score, return_embedding
        self.filter_policy = FilterPolicy(filter_policy)

    def to_dict(self) -> dict[str, Any]:
        """Serialize the arguments of the component."""
        return _to_dict(self, filter_policy=self.filter_policy.value)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CompatStoreEmbeddingRetriever:
        """Make a component with the arguments that `to_dict` wrote."""
        return default_from_dict(cls, data)

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
            query: In its place a text, which the store embeds by the model of the serving version, also after a
                cutover to another model.
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
        request: str | list[float] = query if query is not None else query_embedding or []
        documents = self.document_store.search(
            request,
            apply_filter_policy(self.filter_policy, self.filters, filters),
            self.top_k if top_k is None else top_k,
            scale_score=self.scale_score if scale_score is None else scale_score,
            return_embedding=self.return_embedding if return_embedding is None else return_embedding,
        )
        return {"documents": documents}

    run_async = component.output_types(documents=list[Document])(method_beside(run))


def _to_dict(part: object, **written: Any) -> dict[str, Any]:
    """Serialize an object whose public attributes are its arguments."""
    arguments = {name: value for name, value in vars(part).items() if not name.startswith("_")}
    return default_to_dict(part, **arguments | written)


def _extras(document: Document) -> str | None:
    """Blob and sparse embedding as JSON, or None if it has neither."""
    parts = {"blob": document.blob, "sparse_embedding": document.sparse_embedding}
    kept = {name: part.to_dict() for name, part in parts.items() if part is not None}
    return as_json(kept, f"write document {document.id[:80]}") if kept else None


def _document(documents: Documents, row: Mapping[str, Any], vector: str | None, score: float | None = None) -> Document:
    extras = json.loads(row.get(EXTRAS) or "{}")
    blob, sparse = extras.get("blob"), extras.get("sparse_embedding")
    return Document(
        id=str(row[documents.id]),
        content=row[documents.text] if documents.text else None,
        meta=documents.metadata(row),
        embedding=row[vector] if vector else None,
        blob=ByteStream.from_dict(blob) if blob else None,
        sparse_embedding=SparseEmbedding.from_dict(sparse) if sparse else None,
        score=score,
    )


def _score(distance: float, metric: str, scaled: bool) -> float:
    if metric == "l2":
        return -math.sqrt(max(distance, 0.0))
    if metric not in ("cosine", "dot"):
        return -distance
    return 1.0 - distance / 2.0 if scaled and metric == "cosine" else 1.0 - distance


def _distinct(values: Any) -> list[Any]:
    """Values that are there, without repeats; 1, 1.0, "1" and True are four."""
    found = {(type(value).__name__, json.dumps(value, sort_keys=True)): value for value in values if value is not None}
    return list(found.values())
