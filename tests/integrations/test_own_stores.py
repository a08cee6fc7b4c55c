"""Tables that the frameworks' own stores on LanceDB made: adopted, and served as those stores do, or refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import Incompatible, InvalidInput
from lazily import Lazy
from toy_models import NEW, OLD, vector

lancedb = Lazy("lancedb")
haystack = Lazy("haystack", "haystack.components.embedders", "haystack.dataclasses")
langchain = Lazy("langchain_core.documents")
langchain_models = Lazy("langchain_models")
llama_index = Lazy("llama_index.core.schema", "llama_index.core.vector_stores.types")
llamaindex_models = Lazy("llamaindex_models")
of_haystack = Lazy("compatstore.integrations.haystack")
of_langchain = Lazy("compatstore.integrations.langchain")
of_llamaindex = Lazy("compatstore.integrations.llamaindex")


# LlamaIndex's store lists tables so.
pytestmark = pytest.mark.filterwarnings("ignore:table_names\\(\\) is deprecated:DeprecationWarning")


def adopted(path, encoder, text="text"):
    version = cs.EmbeddingVersion("v1", dim=encoder.dim, metric="l2", encoder=encoder)
    return cs.Gallery.adopt(path, version, vector="vector", id="id", source=text)


def upgraded(path, encoders):
    v1, v2 = encoders
    gallery = cs.Gallery.open(path, encoders={"v1": v1})
    gallery.register(cs.EmbeddingVersion("v2", dim=v2.dim, metric="l2", encoder=v2))
    cs.Gallery.open(path, encoders={"v1": v1, "v2": v2}).upgrade("v2", backfill=1.0)
    cs.Gallery.open(path).cutover("v2")


# ---- LangChain


@pytest.fixture
def theirs(tmp_path):
    """LangChain's store, with two texts; the metadata of the second have other keys."""
    vectorstores = pytest.importorskip("langchain_community.vectorstores.lancedb")
    store = vectorstores.LanceDB(uri=str(tmp_path), embedding=langchain_models.Toy(OLD), table_name="t", mode="append")
    metadata = [{"lang": "de", "page": 1, "docx": {"author": "it's"}}, {"lang": "en", "tags": ["x", "y"]}]
    store.add_texts(["a red coat", "the blue sea"], metadata, ids=["1", "2"])
    return store


@pytest.fixture
def chain(theirs, tmp_path):
    adopted(f"{tmp_path}#t", of_langchain.as_encoder(langchain_models.Toy(OLD)))
    return of_langchain.CompatStoreVectorStore(langchain_models.Toy(OLD), f"{tmp_path}#t")


def contents(documents):
    return [(one.page_content, one.metadata) for one in documents]


def names(documents):
    return sorted(one.id for one in documents)


def test_langchain_gives_what_its_own_store_gives(theirs, chain):
    for text in ("a red coat", "the blue sea"):
        assert contents(chain.similarity_search(text, k=2)) == contents(theirs.similarity_search(text, k=2))
    chain.add_texts(["green grass"], [{"lang": None, "page": 7, "docx": {"author": "B"}}], ids=["3"])
    assert contents(chain.get_by_ids(["3"])) == contents(theirs.similarity_search("green grass", k=1))
    theirs.add_texts(["grey stone"], [{"lang": "fr", "page": 8}], ids=["4"])
    assert contents(chain.similarity_search("grey stone", k=1)) == contents(theirs.similarity_search("grey stone", k=1))
    chain.delete(["3"])
    assert theirs.get_table().count_rows() == 3


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"lang": "de"}, ["1"]),
        ({"lang": {"$ne": "de"}}, ["2"]),
        ({"page": {"$gte": 1}}, ["1"]),
        ({"page": {"$exists": False}}, ["2"]),
        ({"docx.author": "it's"}, ["1"]),
        ({"$or": [{"lang": "en"}, {"page": 1}]}, ["1", "2"]),
    ],
)
def test_langchain_filters_the_fields_of_the_struct(chain, condition, expected):
    assert names(chain.similarity_search("a", k=5, filter=condition)) == expected


@pytest.mark.parametrize("metadata", [{"new": 1}, {"docx": {"new": 1}}, {"lang": 5}, {"page": "x"}])
def test_langchain_names_the_key_that_the_table_has_no_place_for(chain, metadata):
    key = "new" if "new" in str(metadata) else next(iter(metadata))
    with pytest.raises(InvalidInput, match=rf"write document '3'.*{key}"):
        chain.add_texts(["x"], [metadata], ids=["3"])
    assert chain.get_by_ids(["3"]) == []


def test_a_column_of_json_takes_all_other_keys(theirs, chain, tmp_path):
    with pytest.raises(InvalidInput, match=r"pa.field\('document_metadata', pa.json_") as refusal:
        chain.add_texts(["x"], [{"new": 1}], ids=["3"])
    table = lancedb.connect(tmp_path).open_table("t")
    table.add_columns(pa.field("document_metadata", pa.json_(pa.string())))
    assert "table.add_columns(" in refusal.value.fix
    chain.add_texts(["x"], [{"new": {"deep": 1}, "lang": "it"}], ids=["3"])
    ((_, metadata),) = contents(chain.get_by_ids(["3"]))
    assert metadata == {"new": {"deep": 1}, "lang": "it", "page": None, "docx": None, "tags": None}
    assert names(chain.similarity_search("x", filter={"new.deep": 1})) == ["3"]
    theirs.add_texts(["y"], [{"lang": "es"}], ids=["4"])  # as the app goes on doing
    assert names(chain.similarity_search("y", filter={"lang": "es"})) == ["4"]


def test_langchain_through_an_upgrade(chain, tmp_path):
    models = [langchain_models.Toy(OLD), langchain_models.Toy(NEW)]
    upgraded(f"{tmp_path}#t", [of_langchain.as_encoder(model) for model in models])
    store = of_langchain.CompatStoreVectorStore(models[0], f"{tmp_path}#t", models=models[1:])
    store.add_texts(["green grass"], [{"lang": "de"}], ids=["3"])
    assert names(store.similarity_search("green grass", k=1, filter={"lang": "de"})) == ["3"]
    assert cs.Gallery.open(f"{tmp_path}#t").maintenance.verify().clean


# ---- LlamaIndex


def node(name, document=None, text=None, **metadata):
    made = llama_index.TextNode(id_=name, text=text or f"text of {name}", metadata=metadata)
    if document:
        source = llama_index.RelatedNodeInfo(node_id=document)
        made.relationships = {llama_index.NodeRelationship.SOURCE: source}
    return made


def embedded(one):
    text = one.get_content(metadata_mode=llama_index.MetadataMode.EMBED)
    return one.model_copy(update={"embedding": llamaindex_models.OLD.get_text_embedding(text)})


@pytest.fixture
def their_nodes(tmp_path):
    """LlamaIndex's store, with three nodes of two documents."""
    stores = pytest.importorskip("llama_index.vector_stores.lancedb")
    store = stores.LanceDBVectorStore(str(tmp_path), "t")
    every = [node("a", "d1", lang="de", page=1), node("b", "d1", lang="en"), node("c", "d2", lang="it's")]
    store.add([embedded(one) for one in every])
    return store


@pytest.fixture
def nodes(their_nodes, tmp_path):
    adopted(f"{tmp_path}#t", of_llamaindex.as_encoder(llamaindex_models.OLD))
    return of_llamaindex.LlamaIndexVectorStore(llamaindex_models.OLD, f"{tmp_path}#t")


def plain(every):
    return sorted(
        ((one.node_id, one.text, one.metadata, one.ref_doc_id, type(one).__name__, one.hash) for one in every),
        key=lambda one: one[0],
    )


def test_llamaindex_gives_what_its_own_store_gives(their_nodes, nodes):
    assert plain(nodes.get_nodes()) == plain(their_nodes.get_nodes())
    nodes.add([embedded(node("d", "d2", lang="fr", page=4)), node("e", "d3", lang="de")])  # e is embedded here
    their_nodes.table.checkout_latest()
    assert plain(nodes.get_nodes()) == plain(their_nodes.get_nodes())
    assert nodes.get_nodes(["d"])[0].metadata == {"lang": "fr", "page": 4}
    asked = llamaindex_models.OLD.get_text_embedding("text of c")
    ours = nodes.query(llama_index.VectorStoreQuery(query_embedding=asked, similarity_top_k=3))
    own = their_nodes.query(llama_index.VectorStoreQuery(query_embedding=asked, similarity_top_k=3))
    assert (ours.ids, plain(ours.nodes)) == (own.ids, plain(own.nodes))


def test_llamaindex_deletes_the_nodes_of_a_document(their_nodes, nodes):
    nodes.add([embedded(node("d", "d1", lang="fr")), embedded(node("e", lang="fr"))])
    nodes.delete("None")  # which metadata say of a node without a document
    nodes.delete("d1")
    assert [one.node_id for one in nodes.get_nodes()] == ["c", "e"]
    their_nodes.table.delete("doc_id = 'd2'")  # as the app goes on doing; its own method writes quotes of another kind
    assert [(one.node_id, one.ref_doc_id) for one in nodes.get_nodes()] == [("e", None)]
    nodes.clear()
    assert nodes.get_nodes() == []


@pytest.mark.parametrize(
    ("key", "operator", "value", "expected"),
    [
        ("lang", "==", "it's", ["c"]),
        ("lang", "!=", "de", ["b", "c"]),
        ("page", ">=", 1, ["a"]),
        ("page", "is_empty", None, ["b", "c"]),
        ("ref_doc_id", "==", "d1", ["a", "b"]),
        ("doc_id", "in", ["d2"], ["c"]),
    ],
)
def test_llamaindex_filters_the_fields_of_the_struct(nodes, key, operator, value, expected):
    filters = llama_index.MetadataFilters(filters=[llama_index.MetadataFilter(key=key, operator=operator, value=value)])
    assert sorted(one.node_id for one in nodes.get_nodes(filters=filters)) == expected
    asked = llama_index.VectorStoreQuery(query_str="text", similarity_top_k=5, filters=filters)
    assert sorted(nodes.query(asked).ids) == expected


def test_llamaindex_keeps_to_documents_and_names_a_key_without_a_place(nodes):
    asked = llama_index.VectorStoreQuery(query_str="text", similarity_top_k=5, doc_ids=["d1"])
    assert sorted(nodes.query(asked).ids) == ["a", "b"]
    with pytest.raises(InvalidInput, match=r"write document 'x'.*the key 'new'"):
        nodes.add([node("x", "d1", new=1)])


def test_llamaindex_through_an_upgrade(nodes, tmp_path):
    encoders = [of_llamaindex.as_encoder(llamaindex_models.OLD), of_llamaindex.as_encoder(llamaindex_models.NEW)]
    upgraded(f"{tmp_path}#t", encoders)
    store = of_llamaindex.LlamaIndexVectorStore(llamaindex_models.OLD, f"{tmp_path}#t", models=[llamaindex_models.NEW])
    store.add([embedded(node("d", "d9", lang="de"))])
    store.delete("d1")
    found = store.query(llama_index.VectorStoreQuery(query_str="text of d", similarity_top_k=1))
    assert [(one.node_id, one.ref_doc_id) for one in found.nodes] == [("d", "d9")]


def test_llamaindex_refuses_a_store_with_another_column_of_documents(tmp_path):
    stores = pytest.importorskip("llama_index.vector_stores.lancedb")
    stores.LanceDBVectorStore(str(tmp_path), "t", doc_id_key="document").add([embedded(node("a", "d1"))])
    adopted(f"{tmp_path}#t", of_llamaindex.as_encoder(llamaindex_models.OLD))
    with pytest.raises(Incompatible, match="expected a column doc_id") as refusal:
        of_llamaindex.LlamaIndexVectorStore(llamaindex_models.OLD, f"{tmp_path}#t")
    assert "'rename': 'doc_id'" in refusal.value.fix


def test_llamaindex_says_where_documents_are_unknown(tmp_path):
    lancedb.connect(tmp_path).create_table(
        "t", [{"id": "a", "text": "x", "vector": llamaindex_models.OLD.get_text_embedding("x")}]
    )
    adopted(f"{tmp_path}#t", of_llamaindex.as_encoder(llamaindex_models.OLD))
    store = of_llamaindex.LlamaIndexVectorStore(llamaindex_models.OLD, f"{tmp_path}#t")
    with pytest.raises(InvalidInput, match="delete a document"):
        store.delete("d1")


# ---- Haystack


def test_a_table_of_lancedb_haystack_is_refused(tmp_path):
    """The schema of lancedb-haystack 0.1.1, which is not among what the tests install: it needs DuckDB."""
    parts = ("blob", "content", "dataframe", "id", "meta", "vector")
    flags = {name: name in ("blob", "dataframe") for name in parts}
    meta = {"_isempty": {"lang": False}, "lang": "de"}
    row = {"id": "a", "vector": vector("x", OLD), "content": "x", "meta": meta, "_isempty": flags}
    lancedb.connect(tmp_path).create_table("t", [row])

    def embed(text):
        return vector(text, OLD)

    embedders = of_haystack.Embedders(
        haystack.MockDocumentEmbedder(embedding_fn=embed), haystack.MockTextEmbedder(embedding_fn=embed)
    )
    adopted(f"{tmp_path}#t", of_haystack.as_encoder(embedders), "content")
    with pytest.raises(Incompatible, match="a table of lancedb-haystack") as refusal:
        of_haystack.CompatStoreDocumentStore(f"{tmp_path}#t", embedders)
    assert "write_documents(LanceDBDocumentStore(" in refusal.value.fix


def test_haystack_reads_and_filters_a_struct_of_metadata(theirs, tmp_path):
    def embed(text):
        return vector(text, OLD)

    embedders = of_haystack.Embedders(
        haystack.MockDocumentEmbedder(embedding_fn=embed), haystack.MockTextEmbedder(embedding_fn=embed)
    )
    adopted(f"{tmp_path}#t", of_haystack.as_encoder(embedders))
    store = of_haystack.CompatStoreDocumentStore(f"{tmp_path}#t", embedders)
    condition = {"field": "meta.lang", "operator": "==", "value": "de"}
    assert store.update_by_filter(condition, {"page": 5}) == 1
    assert [one.meta["page"] for one in store.filter_documents(condition)] == [5]
    store.write_documents([haystack.Document(id="3", content="x", meta={"lang": "de", "tags": ["z"]})])
    assert sorted(one.id for one in store.filter_documents(condition)) == ["1", "3"]
