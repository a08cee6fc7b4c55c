"""A LlamaIndex vector store on a gallery, which can be upgraded to another embedding model while the app serves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from compatstore.arrays import FloatArray
from compatstore.asynchronous import method_beside
from compatstore.encoders import Function
from compatstore.errors import Incompatible, InvalidInput, MissingExtra, NotFound
from compatstore.gallery import Gallery
from compatstore.ingest.arrow import as_json
from compatstore.integrations.documents import Documents, refuse_unknown
from compatstore.integrations.filter_languages import read_llamaindex
from compatstore.integrations.filters import ID, AllOf, Condition, Term, apart
from compatstore.integrations.models import FrameworkModel, model_of_framework
from compatstore.integrations.serving import ServedGallery, one_vector, serve
from compatstore.versions import Metric

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
    from llama_index.core.schema import (
        BaseNode,
        Document,
        ImageDocument,
        ImageNode,
        IndexNode,
        MetadataMode,
        Node,
        TextNode,
    )
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ImportError as error:
    raise MissingExtra("llama_index", "llamaindex") from error

Row: TypeAlias = Mapping[str, Any]
DOCUMENT = "llama_index_document"  # column of the id of the document that a node is a part of
_KEYS = dict.fromkeys(("ref_doc_id", "doc_id", "document_id"), apart(DOCUMENT))  # of LlamaIndex's stores in filters
CONTENT = "llama_index_node"  # column of all that a node has beside its vector, as a text of JSON
# LlamaIndex's own store on LanceDB keeps the node in its struct of metadata, and the document's id in this column.
STORED, STORED_DOCUMENT = "_node_content", "doc_id"
MMR_FACTOR = 4.0  # candidates of a search by maximal marginal relevance, as a multiple of the results
MMR_THRESHOLD = 0.5
SAME = 0.99  # cosine of two embeddings of one text by one model, at least; endpoints differ in the last digits
_KINDS = {kind.class_name(): kind for kind in (TextNode, Node, ImageNode, IndexNode, Document, ImageDocument)}


def model_of(model: BaseEmbedding | FrameworkModel, identity: str | None = None) -> FrameworkModel:
    """LlamaIndex's embedding model as a model with an identity.

    Args:
        model: Any `BaseEmbedding` of LlamaIndex.
        identity: Identity of the model ("text-embedding-3-small@2024-01"), if class, settings and
            release of the library are not sufficient, or too specific.

    Raises:
        InvalidInput: It is no `BaseEmbedding`, or the identity is no text.
    """
    methods = ("get_text_embedding_batch", "get_query_embedding")
    return model_of_framework("LlamaIndex", BaseEmbedding, methods, model, identity)


def as_encoder(model: BaseEmbedding, *, identity: str | None = None, spec: str = "") -> Function:
    """LlamaIndex's embedding model as an encoder: for `Gallery.register`, and `--encoder python:MODULE:ATTRIBUTE`.

    Args:
        model: Any `BaseEmbedding` of LlamaIndex; one text is embedded, to see how many values a vector has.
        identity: As `model_of` takes it.
        spec: Spec by which `encoders.from_spec` finds this object again ("python:package.module:attribute").
    """
    return model_of(model, identity).measured(spec)


class LlamaIndexVectorStore(BasePydanticVectorStore):
    """A LlamaIndex vector store whose nodes are the items of a gallery.

    An item's source is the text that LlamaIndex embeds of a node: its own, with the metadata of its settings before it.
    In a table of LlamaIndex's own `LanceDBVectorStore` that was adopted, rows are written and read as that store does,
    and the source is the node's text alone. A gallery is made if there is none. The store embeds queries itself,
    by both models while an upgrade is served by both of its versions, so LlamaIndex does not (`is_embedding_query` is
    False).

    Args:
        embed_model: The app's embedding model, the same that its index has; a `FrameworkModel` of `model_of` if its
            identity is declared.
        gallery: A path, a URI or `DATABASE#TABLE`.
        models: Further models of the app: those that the gallery is or will be upgraded to, or comes from.
        metric: Distance of a gallery that is made here.
        metadata: Metadata columns of a gallery that is made here, by name and type; all else is kept as JSON.
        storage_options: Settings of the object store.
        is_embedding_query: True: LlamaIndex embeds queries, as texts that HyDE made up, and searches use that model's
            version alone.

    Raises:
        Incompatible: The embedding model is another one than the gallery's. The table was made by `LanceDBVectorStore`
            with another `doc_id_key`.
    """

    stores_text: bool = True
    is_embedding_query: bool = False
    _served: ServedGallery = PrivateAttr()
    _trusted: bool = PrivateAttr(default=False)

    def __init__(
        self,
        embed_model: BaseEmbedding | FrameworkModel,
        gallery: str,
        *,
        models: Sequence[BaseEmbedding | FrameworkModel] = (),
        metric: Metric = "cosine",
        metadata: Mapping[str, str] | None = None,
        storage_options: dict[str, str] | None = None,
        is_embedding_query: bool = False,
    ) -> None:
        super().__init__(stores_text=True, is_embedding_query=is_embedding_query)
        columns = {**(metadata or {}), DOCUMENT: "string", CONTENT: "string"}
        every = [model_of(model) for model in (embed_model, *models)]
        self._served = serve(gallery, every, metric=metric, metadata=columns, storage_options=storage_options)
        self._documents(self._served.now())

    @classmethod
    def class_name(cls) -> str:
        """Name of the class, for LlamaIndex."""
        return "LlamaIndexVectorStore"

    @property
    def client(self) -> Gallery:
        """The gallery as of now."""
        return self._served.now()

    # ---- writing

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Write nodes, in one commit; a node whose id exists replaces the former one.

        Vectors that the nodes have are taken as those of the app's model, until its version is retired. The gallery
        embeds nodes without a vector, and after a cutover all nodes by the active version's model.

        Args:
            nodes: n nodes.
            kwargs: None.

        Returns:
            The ids of the written nodes.

        Raises:
            Incompatible: The nodes were embedded by another model than the store's.
            InvalidInput: Vectors have another length.
        """
        refuse_unknown(kwargs, "add nodes")
        every = list(nodes)
        if not every:
            return []
        gallery, name = self._served.now(), self._served.first()
        texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in every]
        documents, names = self._documents(gallery), [node.node_id for node in every]
        if STORED in documents.struct.names:
            plain = [node.get_content(metadata_mode=MetadataMode.NONE) for node in every]
            rows = documents.rows(names, plain, [node_to_metadata_dict(node) for node in every])
        else:
            rows = documents.rows(names, texts, [node.metadata for node in every])
            rows[CONTENT] = [_content(node, text) for node, text in zip(every, texts, strict=True)]
        column = documents.apart[DOCUMENT].name if DOCUMENT in documents.apart else DOCUMENT
        rows[column] = pa.array([node.ref_doc_id for node in every], pa.string())
        embeddings = [node.embedding for node in every]
        version = self._served.version()
        if _is_live(gallery, name) and any(embedding is not None for embedding in embeddings):
            self._require_own(texts, embeddings)
            rows[name] = embeddings
        return self._served.write(rows, version, names)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Remove all nodes of a document.

        Raises:
            InvalidInput: The table is an app's, and has no column of the nodes' documents.
        """
        refuse_unknown(delete_kwargs, "delete a document")
        gallery = self._served.now()
        documents = self._documents(gallery)
        if DOCUMENT not in documents.apart:
            if documents.adopted:
                fix = "Remove its nodes by their ids: delete_nodes([...])."
                raise InvalidInput("delete a document", expected=f"a column {DOCUMENT}", found="none", fix=fix)
            return
        column, where = documents.apart[DOCUMENT].name, documents.where(read_query(None, [ref_doc_id], None))
        found = gallery.scan([documents.id, column], where).to_arrow()
        # Ids that write one moment in two ways are equal for a condition.
        gallery.delete([row[documents.id] for row in found.to_pylist() if row[column] == ref_doc_id])

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Remove nodes that have one of the ids and pass the filters; without either, none: see `clear`."""
        refuse_unknown(delete_kwargs, "delete nodes")
        if node_ids is None and filters is None:
            return
        gallery = self._served.now()
        gallery.delete(node_ids if filters is None and node_ids else self._ids(gallery, node_ids, filters))

    def clear(self) -> None:
        """Remove all nodes; versions and upgrades of the gallery stay."""
        gallery = self._served.now()
        gallery.delete(self._ids(gallery, None, None))

    # ---- reading

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Nodes that have one of the ids and pass the filters; all nodes without either.

        They are in the order of the ids if there are no filters; ids that are not there are left out.
        """
        gallery = self._served.now()
        documents = self._documents(gallery)
        if node_ids is not None and filters is None:
            found = gallery.get(node_ids, documents.columns, missing="skip")
        else:
            found = gallery.scan(documents.columns, self._where(documents, node_ids, filters)).to_arrow()
        return [_node(documents, row) for row in found.to_pylist()]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Find the nodes nearest to a text, or to a vector of the app's model.

        The mode "mmr" chooses among the `mmr_prefetch_k` nearest (or `mmr_prefetch_factor` times the results) those
        that are near and unlike each other.

        Args:
            query: LlamaIndex's query, of the mode "default" or "mmr"; its vector has precedence over its text.
            kwargs: `mmr_threshold`, `mmr_prefetch_k`, `mmr_prefetch_factor`.

        Returns:
            Nodes, similarities and ids, most similar first. A similarity is the cosine or the product, or
            1 / (1 + squared distance) of an l2 version; that of a fused search is a
            number from 0 to 1 that is meaningful by its order only.

        Raises:
            InvalidInput: The mode is another, or there is neither a text nor a vector.
        """
        refuse_unknown({name: value for name, value in kwargs.items() if not name.startswith("mmr_")}, "search")
        if query.mode not in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
            raise InvalidInput(
                "search a gallery through LlamaIndex",
                expected="the mode default or mmr",
                found=str(getattr(query.mode, "value", query.mode)),
                fix="A gallery searches by vectors: use vector_store_query_mode='default'.",
            )
        value = query.query_str if query.query_embedding is None else one_vector(query.query_embedding)
        if value is None:
            raise InvalidInput("search a gallery through LlamaIndex", expected="a text or a vector", found="neither")
        version = self._served.version() if isinstance(value, str) else self._served.first()
        gallery = self._served.now()
        documents = self._documents(gallery)
        # An index that leaves texts to its store passes an empty list of nodes, which means any.
        where = documents.where(read_query(query.filters, query.doc_ids or None, query.node_ids or None))
        count = wanted = query.similarity_top_k
        diverse = query.mode == VectorStoreQueryMode.MMR
        if diverse:
            factor = kwargs.get("mmr_prefetch_factor", MMR_FACTOR)
            count = max(count, int(kwargs.get("mmr_prefetch_k") or math.ceil(count * factor)))
        rows = gallery.search(value, count, version, where, documents.columns).to_pylist()
        if diverse:
            threshold = kwargs.get("mmr_threshold", query.mmr_threshold)
            rows, similarities = self._diverse(rows, value, version or gallery.active, wanted, threshold)
        else:
            metric = self._served.metric_of(value, version)
            similarities = [_similarity(metric, row["_distance"]) for row in rows]
        nodes = [_node(documents, row) for row in rows]
        return VectorStoreQueryResult(nodes=nodes, similarities=similarities, ids=[node.node_id for node in nodes])

    async_add = method_beside(add)
    adelete = method_beside(delete)
    adelete_nodes = method_beside(delete_nodes)
    aclear = method_beside(clear)
    aget_nodes = method_beside(get_nodes)
    aquery = method_beside(query)

    # ---- inside

    def _diverse(
        self, rows: list[Row], query: str | FloatArray, version: str, count: int, threshold: float | None
    ) -> tuple[list[Row], list[float]]:
        """The rows that LlamaIndex's rule chooses, by the vectors of one version, and their similarities."""
        column = self.client.columns.id
        positions, vectors = self._served.stored_vectors([row[column] for row in rows], version)
        if not positions:
            return [], []
        similarities, chosen = get_top_k_mmr_embeddings(
            query_embedding=self._served.query_vector(query, version),
            embeddings=vectors,
            similarity_top_k=count,
            embedding_ids=positions,
            mmr_threshold=MMR_THRESHOLD if threshold is None else threshold,
        )
        return [rows[position] for position in chosen], [float(one) for one in similarities]

    def _require_own(self, texts: Sequence[str], embeddings: Sequence[list[float] | None]) -> None:
        """Embed one text once, to see that the nodes' vectors are the model's.

        Raises:
            Incompatible: They are another one's.
        """
        model = self._served.models[0]
        if self._trusted or model.documents is None:
            return
        text, embedding = next(pair for pair in zip(texts, embeddings, strict=True) if pair[1] is not None)
        own, given = np.asarray(model.documents([text])[0], float), np.asarray(embedding, float)
        lengths = np.linalg.norm(own) * np.linalg.norm(given)
        if own.shape != given.shape or (lengths > 0 and own @ given < SAME * lengths):
            raise Incompatible(
                f"add nodes to {self._served.path}",
                expected=f"vectors of {model.identity}",
                found="vectors of another model",
                fix="Give the index the store's model: VectorStoreIndex(..., embed_model=...).",
            )
        self._trusted = bool(lengths > 0)  # a vector of zeros does not identify its model

    @staticmethod
    def _documents(gallery: Gallery) -> Documents:
        documents = Documents.of(gallery, {DOCUMENT: DOCUMENT, CONTENT: CONTENT})
        if STORED not in documents.struct.names:
            return documents
        documents = Documents.of(gallery, {DOCUMENT: STORED_DOCUMENT})
        if DOCUMENT not in documents.apart:
            raise Incompatible(
                "serve a table of LlamaIndex's LanceDBVectorStore",
                expected=f"a column {STORED_DOCUMENT} of the nodes' documents",
                found="none; the store was made with another doc_id_key",
                fix=f"Rename the column: table.alter_columns({{'path': KEY, 'rename': {STORED_DOCUMENT!r}}})",
            )
        return documents

    def _where(self, documents: Documents, node_ids: list[str] | None, filters: MetadataFilters | None) -> str | None:
        return documents.where(read_query(filters, None, node_ids))

    def _ids(self, gallery: Gallery, node_ids: list[str] | None, filters: MetadataFilters | None) -> list[Any]:
        documents = self._documents(gallery)
        found = gallery.scan([documents.id], self._where(documents, node_ids, filters)).to_arrow()
        return [row[documents.id] for row in found.to_pylist()]


def _content(node: BaseNode, source: str) -> str:
    """The data of a node beside its vector, without its text if that is the source.

    The metadata are in here too: columns of JSON do not keep the order of keys, which affects the embedded text.
    """
    content = node.model_dump(mode="json", exclude={"metadata", "embedding"})
    if content.get("text") == source:
        del content["text"]
    whole = {"kind": node.class_name(), "content": content, "metadata": node.metadata}
    return as_json(whole, f"write node {node.node_id}")


def _node(documents: Documents, row: Mapping[str, Any]) -> BaseNode:
    """The node of a row; of an item that did not come from LlamaIndex, a node with its text and metadata."""
    source = (row[documents.text] if documents.text else None) or ""
    values = documents.metadata(row)
    if values.get(STORED) is not None and STORED in documents.struct.names:
        return metadata_dict_to_node(values)
    if row.get(CONTENT) is None:
        return TextNode(id_=str(row[documents.id]), text=source, metadata=values)
    stored = json.loads(row[CONTENT])
    kind = _KINDS.get(stored["kind"], TextNode)
    content = stored["content"]
    if "text" in kind.model_fields:
        content.setdefault("text", source)
    node: BaseNode = kind.from_dict(content)
    node.metadata = stored["metadata"] if stored["metadata"] == values else values  # changed by the gallery
    return node


def _similarity(metric: str, distance: float) -> float:
    if metric == "fused":  # a mean of standardised distances, around 0
        return 1 / (1 + math.exp(max(-700.0, min(700.0, distance))))
    return 1 / (1 + max(distance, 0.0)) if metric == "l2" else 1 - distance


def _is_live(gallery: Gallery, version: str) -> bool:
    with suppress(NotFound):
        gallery.explain(version=version)
        return True
    return False


def read_query(
    filters: MetadataFilters | None, documents: Sequence[str] | None, nodes: Sequence[str] | None
) -> Condition | None:
    """The condition of a query: its filters, and the documents and nodes that it keeps to; None for any node."""
    parts: list[Condition] = [] if filters is None else [read_llamaindex(filters, _KEYS)]
    if documents is not None:
        parts.append(Term(apart(DOCUMENT), "in", tuple(documents)))
    if nodes is not None:
        parts.append(Term(ID, "in", tuple(nodes)))
    return AllOf(tuple(parts)) if parts else None
