"""The Haystack store: what Haystack's own suites do not ask for."""

from __future__ import annotations

import pytest

import compatstore as cs
from compatstore.errors import Incompatible, InvalidInput
from lazily import Lazy
from toy_models import NEW, OLD, TEXTS, vector

haystack = Lazy(
    "haystack",
    "haystack.components.embedders",
    "haystack.dataclasses",
    "haystack.document_stores.errors",
    "haystack.document_stores.types",
    "haystack.errors",
)
ours = Lazy("compatstore.integrations.haystack")


def old(text):
    return vector(text, OLD)


def new(text):
    return vector(text, NEW)


def embedders(function):
    return ours.Embedders(
        haystack.MockDocumentEmbedder(embedding_fn=function), haystack.MockTextEmbedder(embedding_fn=function)
    )


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "documents.lance")


@pytest.fixture
def store(path):
    store = ours.CompatStoreDocumentStore(path, embedders(old), models=[embedders(new)])
    store.write_documents([haystack.Document(id=f"{n}", content=text, meta={"n": n}) for n, text in enumerate(TEXTS)])
    return store


@pytest.mark.full
def test_all_parts_of_a_document_come_back(store, path):
    document = haystack.Document(
        content="text",
        meta={"a": {"b": [1, None, "it's"]}, "id": 3, "meta.x": "y", "none": None},
        blob=haystack.ByteStream(b"\x00\xff", meta={"k": "v"}, mime_type="image/png"),
        sparse_embedding=haystack.SparseEmbedding(indices=[1, 5], values=[0.5, 0.25]),
        embedding=[0.5] * OLD,
    )
    nothing = haystack.Document(id="nothing")
    store.write_documents([document, nothing])
    for opened in (store, ours.CompatStoreDocumentStore(path, embedders(old))):
        (found,) = opened.filter_documents({"field": "id", "operator": "==", "value": document.id})
        assert found == document
        (found,) = opened.filter_documents({"field": "id", "operator": "==", "value": "nothing"})
        assert found == nothing


@pytest.mark.full
def test_a_gallery_that_was_not_made_for_haystack(path):
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=OLD, encoder=ours.as_encoder(embedders(old))))
    gallery.add({"id": ["a"], "source": TEXTS[:1], "label": ["x"]})
    store = ours.CompatStoreDocumentStore(path, embedders(old), return_embedding=False)
    (found,) = store.filter_documents({"field": "meta.label", "operator": "==", "value": "x"})
    assert found == haystack.Document(id="a", content=TEXTS[0], meta={"label": "x"})
    document = haystack.Document(id="b", content="b", meta={"label": "y"}, blob=haystack.ByteStream(b"b"))
    store.write_documents([document])
    assert store.filter_documents({"field": "label", "operator": "==", "value": "y"}) == [document]
    with pytest.raises(haystack.FilterError, match="lost"):
        store.filter_documents({"field": "meta.lost", "operator": "==", "value": "y"})


@pytest.mark.parametrize(
    "filters",
    [
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": {}},
        {"field": "meta.n", "operator": "~", "value": 1},
        {"field": "embedding", "operator": "==", "value": 1},
        {"field": 1, "operator": "==", "value": 1},
        {"field": "meta.n", "operator": "==", "value": [1]},
        {"operator": ["AND"], "conditions": []},
        {"field": "meta.n", "operator": ["=="], "value": 1},
        [1],
        "n = 1",
    ],
    ids=str,
)
def test_what_is_no_filter(store, filters):
    with pytest.raises(haystack.FilterError):
        store.filter_documents(filters)


def test_fields_of_objects_and_of_documents(store):
    store.write_documents([haystack.Document(id="x", content="it's", meta={"who": {"name": "a", "x.y": 1}})])
    for filters in (
        {"field": "meta.who.name", "operator": "==", "value": "a"},
        {"field": "who.name", "operator": "in", "value": ["a", None]},
        {"field": "content", "operator": "==", "value": "it's"},
        {"operator": "NOT", "conditions": [{"field": "meta.n", "operator": "not in", "value": [None]}]},
    ):
        assert "x" in [document.id for document in store.filter_documents(filters)]


def test_policies_within_one_call(store):
    pair = [haystack.Document(id="p", content="first"), haystack.Document(id="p", content="second")]
    with pytest.raises(haystack.DuplicateDocumentError):
        store.write_documents(pair, haystack.DuplicatePolicy.FAIL)
    assert store.write_documents([*pair, haystack.Document(id="0")], haystack.DuplicatePolicy.SKIP) == 1
    assert store.write_documents(pair, haystack.DuplicatePolicy.SKIP) == 0
    content = {"field": "id", "operator": "==", "value": "p"}
    assert store.filter_documents(content)[0].content == "first"
    assert store.write_documents(pair, haystack.DuplicatePolicy.OVERWRITE) == 2
    assert store.filter_documents(content)[0].content == "second"
    assert store.write_documents([]) == 0


def test_an_update_leaves_embeddings_of_an_upgrade_as_they_are(store, path):
    manager = cs.Gallery.open(path)
    manager.register(cs.EmbeddingVersion("v2", dim=NEW, encoder=ours.as_encoder(embedders(new))))
    manager.upgrade("v2", backfill=1.0)
    assert store.update_by_filter({"field": "meta.n", "operator": ">", "value": 3}, {"late": True}) == 2
    assert manager.status().versions[1].native == len(TEXTS)
    late = store.filter_documents({"field": "meta.late", "operator": "==", "value": True})
    assert [document.meta for document in late] == [{"n": 4, "late": True}, {"n": 5, "late": True}]


def test_the_wrong_model_or_embedding(store, path):
    with pytest.raises(Incompatible, match="NEW_VERSION"):
        ours.CompatStoreDocumentStore(path, embedders(new))
    with pytest.raises(Incompatible, match=r"model|fingerprint"):
        ours.CompatStoreDocumentStore(path, "another@1")
    with pytest.raises(ValueError, match="values"):
        store.write_documents([haystack.Document(id="z", content="z", embedding=[1.0])])
    with pytest.raises(InvalidInput, match="length of its vectors"):
        ours.CompatStoreDocumentStore(f"{path}.new", "outside")


def test_a_retriever(store):
    retriever = ours.CompatStoreEmbeddingRetriever(
        store,
        top_k=2,
        filters={"field": "meta.n", "operator": "!=", "value": 1},
        filter_policy=haystack.FilterPolicy.MERGE,
    )
    found = retriever.run(query=TEXTS[2])["documents"]
    assert [document.content for document in found][:1] == [TEXTS[2]]
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    assert found[0].embedding is None
    assert retriever.run(query_embedding=old(TEXTS[2]))["documents"] == found
    late = {"field": "meta.n", "operator": ">", "value": 3}
    assert {found.meta["n"] for found in retriever.run(query=TEXTS[1], filters=late)["documents"]} == {4, 5}
    other = retriever.run(query=TEXTS[1], top_k=1, return_embedding=True, scale_score=True)["documents"][0]
    assert other.content != TEXTS[1]
    assert len(other.embedding) == OLD
    assert 0 <= other.score <= 1
    for arguments in ({}, {"query": "x", "query_embedding": [1.0]}):
        with pytest.raises(InvalidInput, match="a query or a query_embedding"):
            retriever.run(**arguments)
    with pytest.raises(InvalidInput, match="top_k >= 1"):
        ours.CompatStoreEmbeddingRetriever(store, top_k=0)


TRUSTED = ["compatstore.integrations.haystack", "toy_models", __name__]


def test_a_pipeline_is_stored_and_built_again(store):
    pipeline = haystack.Pipeline()
    pipeline.add_component("text_embedder", haystack.MockTextEmbedder(embedding_fn=old))
    pipeline.add_component("retriever", ours.CompatStoreEmbeddingRetriever(store, top_k=1))
    pipeline.connect("text_embedder.embedding", "retriever.query_embedding")
    text = pipeline.dumps()
    for name in ("DocumentStore", "EmbeddingRetriever"):  # as stored pipelines name them
        assert f"type: compatstore.integrations.haystack.CompatStore{name}\n" in text
    again = haystack.Pipeline.loads(text, allowed_modules=TRUSTED)
    assert again.dumps() == text
    for built in (pipeline, again):
        found = built.run({"text_embedder": {"text": TEXTS[4]}})["retriever"]["documents"]
        assert [document.content for document in found] == [TEXTS[4]]


@pytest.mark.full
async def test_a_pipeline_goes_on_through_an_upgrade(store, path):
    """By texts in each state, and by the old model's embeddings until its version is retired."""
    retriever = ours.CompatStoreEmbeddingRetriever(store, top_k=1)
    manager = cs.Gallery.open(path)
    manager.register(cs.EmbeddingVersion("v2", dim=NEW, encoder=ours.as_encoder(embedders(new))))

    async def works(state, by_embedding=True):
        added = haystack.Document(id=state, content=f"new in {state}", meta={"state": state})
        assert await store.write_documents_async([added]) == 1
        for text in (*TEXTS, added.content):
            asked = [{"query": text}, *([{"query_embedding": old(text)}] if by_embedding else [])]
            for arguments in asked:
                (found,) = (await retriever.run_async(**arguments))["documents"]
                assert found.content == text
        assert await store.count_documents_async() == len(TEXTS) + 1
        await store.delete_documents_async([state])

    await works("registered")
    manager.upgrade("v2", backfill=0.5)
    await works("half native")
    manager.upgrade("v2", backfill=1.0)
    await works("ready")
    manager.cutover("v2")
    await works("cut over")
    manager.retire("v1")
    await works("retired", by_embedding=False)
    with pytest.raises(cs.CompatStoreError, match="v1"):
        retriever.run(query_embedding=old(TEXTS[0]))
    assert len(store.filter_documents()[0].embedding) == NEW
    assert manager.maintenance.verify().clean
