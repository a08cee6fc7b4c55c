"""The LangChain store: what LangChain's own suite does not ask for."""

from __future__ import annotations

import asyncio
import math
from datetime import date

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import Incompatible, InvalidInput
from lazily import Lazy
from toy_models import NEW, OLD, TEXTS, vector

langchain = Lazy("langchain_core.documents", "langchain_core.embeddings")
models = Lazy("langchain_models")
ours = Lazy("compatstore.integrations.langchain")

METADATAS = [
    {"n": 0, "id": "own", "source": "a.txt", "tags": ["x", "y"]},
    {"n": 1.5, "source": "b.txt", "day": "2024-05-01", "nested": {"a": {"b": None}}},
    {"n": "1", "it's": "' OR '1'='1"},
    {"n": True, "day": "2024-06-01T00:00:00+02:00", "tags": []},
    {},
    {"n": None, "vector": [1, 2], "_distance": 0, "v1": "x", "a.b": 1, "metadata": {"metadata": 1}},
]
IDS = ["0", "1", "2", "3", "4", "5"]


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "documents.lance")


@pytest.fixture
def store(path):
    return ours.CompatStoreVectorStore.from_texts(
        TEXTS, models.Toy(OLD), METADATAS, gallery=path, ids=IDS, models=[models.Toy(NEW)]
    )


@pytest.mark.full
def test_documents_come_back_as_they_are(store, path):
    again = ours.CompatStoreVectorStore(models.Toy(OLD), path)
    for opened in (store, again):
        found = opened.get_by_ids([*IDS, "lost"])
        assert [(one.id, one.page_content, one.metadata) for one in found] == [*zip(IDS, TEXTS, METADATAS, strict=True)]
        assert opened.similarity_search(TEXTS[1], k=1)[0].metadata == METADATAS[1]


FILTERS = [
    ({"n": 0}, ["0"]),
    ({"n": {"$eq": "1"}}, ["2"]),
    ({"n": {"$gte": 0, "$lt": 2}}, ["0", "1"]),
    ({"n": {"$ne": 0}}, ["1", "2", "3", "4", "5"]),
    ({"n": {"$in": [0, True]}}, ["0", "3"]),
    ({"n": {"$nin": [0, True]}}, ["1", "2", "4", "5"]),
    ({"n": None}, ["4", "5"]),
    ({"n": {"$exists": True}}, ["0", "1", "2", "3"]),
    ({"n": {"$between": [0, 1.5]}}, ["0", "1"]),
    ({"day": {"$gt": "2024-05-01T12:00:00"}}, ["3"]),
    ({"day": date(2024, 5, 1)}, ["1"]),
    ({"tags": {"$contains": "y"}}, ["0"]),
    ({"source": {"$contains": ".txt"}}, ["0", "1"]),
    ({"$or": [{"n": 0}, {"$and": [{"n": {"$gt": 1}}, {"source": "b.txt"}]}]}, ["0", "1"]),
    ({"$not": {"n": {"$exists": True}}}, ["4", "5"]),
    ({"it's": "' OR '1'='1"}, ["2"]),
    ({"id": "own"}, ["0"]),
    ({"a.b": 1}, ["5"]),
    ({"nested.a": {"$exists": True}}, ["1"]),
    ({"metadata.metadata": 1}, ["5"]),
    ({"metadata.metadata": {"$ne": 1}}, ["0", "1", "2", "3", "4"]),
    ({"unknown": 1}, []),
    ({}, IDS),
    (None, IDS),
]


@pytest.mark.parametrize(("filter", "ids"), FILTERS, ids=[str(number) for number in range(len(FILTERS))])
def test_filters(store, filter, ids):
    assert sorted(one.id for one in store.similarity_search("river", k=10, filter=filter)) == ids
    by_vector = store.similarity_search_by_vector(vector("river", OLD), k=10, filter=filter)
    assert sorted(one.id for one in by_vector) == ids
    assert sorted(one.id for one in store.max_marginal_relevance_search("river", k=10, filter=filter)) == ids
    retriever = store.as_retriever(search_kwargs={"k": 10, "filter": filter})
    assert sorted(one.id for one in retriever.invoke("river")) == ids


@pytest.mark.parametrize(
    "filter",
    [
        {"n": {"$like": "x"}},
        {"n": {}},
        {"$nor": []},
        {"$and": []},
        {"$or": {"n": 1}},
        {"n": [1]},
        {"n": {"$in": 1}},
        {"n": {"$between": [1]}},
        {"n": {"$exists": 1}},
        {"n": {"$gt": None}},
        {"n": float("nan")},
        {1: 1},
        "n = 1",
        ["n"],
    ],
    ids=str,
)
def test_what_is_no_filter(store, filter):
    with pytest.raises(InvalidInput):
        store.similarity_search("river", filter=filter)


def test_metadata_columns_of_their_own(path):
    store = ours.CompatStoreVectorStore(models.Toy(OLD), path, metadata={"year": "int64", "day": "date"})
    store.add_texts(TEXTS[:2], [{"year": 2024, "day": date(2024, 5, 1), "x": 1}, {"year": None}], ids=["a", "b"])
    found = store.get_by_ids(["a", "b"])
    assert [one.metadata for one in found] == [{"year": 2024, "day": date(2024, 5, 1), "x": 1}, {"year": None}]
    assert [one.id for one in store.similarity_search("x", filter={"year": {"$gt": 2000}, "x": 1})] == ["a"]
    assert [one.id for one in store.similarity_search("x", filter={"day": {"$lte": "2024-05-01"}})] == ["a"]
    store.add_texts(TEXTS[:1], [{"x": 2}], ids=["a"])  # nothing of what was replaced stays
    assert store.get_by_ids(["a"])[0].metadata == {"x": 2}
    with pytest.raises(InvalidInput, match="'year' of type int64"):
        store.add_texts(TEXTS[:1], [{"year": "soon"}], ids=["c"])


def test_an_existing_gallery_keeps_metadata_in_its_columns(path):
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=OLD, encoder=ours.as_encoder(models.Toy(OLD))))
    gallery.add({"id": ["a", "b"], "source": TEXTS[:2], "label": ["x", "y"]})
    store = ours.CompatStoreVectorStore(models.Toy(OLD), path)
    assert [one.metadata for one in store.similarity_search(TEXTS[1], k=1, filter={"label": "y"})] == [{"label": "y"}]
    store.add_texts([TEXTS[2]], [{"label": "z", "n": 1}], ids=["c"])
    assert store.get_by_ids(["c"])[0].metadata == {"label": "z", "n": 1}
    assert gallery.columns.metadata.names == ["label", "metadata"]
    assert store.similarity_search("x", filter={"lost": 1}) == []


@pytest.mark.parametrize(
    "value",
    [float("inf"), float("nan"), 2**63, b"x", object(), {1: 2}, "\ud800", {"\ud800": 1}, 1j],
    ids=lambda value: ascii(value)[:7],
)
def test_metadata_that_cannot_be_kept_writes_nothing(store, value):
    with pytest.raises(InvalidInput):
        store.add_texts(["new", "other"], [{}, {"x": value}])
    assert len(store.get_by_ids(IDS)) == len(store._served.now()) == len(IDS)


def test_values_that_json_has_no_form_for_become_plain(store):
    given = {"day": date(2024, 5, 1), "tuple": (1, 2), "numpy": np.float32(0.5), "n": np.int64(3)}
    (name,) = store.add_texts(["new"], [given])
    assert store.get_by_ids([name])[0].metadata == {"day": "2024-05-01", "tuple": [1, 2], "numpy": 0.5, "n": 3}


def test_wrong_numbers_of_arguments(store):
    for arguments in ({"metadatas": [{}]}, {"ids": ["a"]}):
        with pytest.raises(ValueError, match="for each text"):
            store.add_texts(["a", "b"], **arguments)
    with pytest.raises(InvalidInput, match="namespace"):
        store.similarity_search("x", namespace="y")
    with pytest.raises(InvalidInput, match="values"):
        store.similarity_search_by_vector([1.0])
    assert store.add_texts([]) == []
    with pytest.raises(InvalidInput, match="found float, str"):
        store.add_texts(["a"], [0.5])
    with pytest.raises(InvalidInput, match="texts, and mappings"):
        store.add_texts([None])
    with pytest.raises(InvalidInput, match="similarity_search_by_vector"):
        store.similarity_search([0.5] * OLD)


def test_the_last_of_equal_ids_stays(store):
    assert store.add_texts(["one", "two"], ids=["x", "x"]) == ["x", "x"]
    assert store.get_by_ids(["x"])[0].page_content == "two"


def test_delete_all(store):
    assert store.delete() is True
    assert store.similarity_search("x") == []
    store.add_documents([langchain.Document(page_content="again")])
    assert len(store.similarity_search("x")) == 1


@pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
def test_scores_and_relevance(path, metric):
    store = ours.CompatStoreVectorStore.from_texts(TEXTS, models.Toy(OLD), gallery=path, metric=metric)
    distances = [distance for _, distance in store.similarity_search_with_score(TEXTS[0], k=6)]
    assert distances == sorted(distances)
    relevant = store.similarity_search_with_relevance_scores(TEXTS[0], k=6)
    assert [score for _, score in relevant] == sorted((score for _, score in relevant), reverse=True)
    assert all(0 <= score <= 1 for _, score in relevant)
    if metric != "dot":
        assert relevant[0][0].page_content == TEXTS[0]
        assert math.isclose(relevant[0][1], 1.0, abs_tol=1e-3)
    chosen = store.as_retriever(search_type="similarity_score_threshold", search_kwargs={"score_threshold": 0.99})
    assert {one.page_content for one in chosen.invoke(TEXTS[0])} == {
        one.page_content for one, score in relevant[:4] if score >= 0.99
    }


def test_max_marginal_relevance_is_diverse(path):
    texts = [*TEXTS, f"{TEXTS[0]} ", f" {TEXTS[0]}"]  # three times the same
    store = ours.CompatStoreVectorStore.from_texts(texts, models.Toy(OLD), gallery=path)
    nearest = {one.page_content.strip() for one in store.similarity_search(TEXTS[0], k=3)}
    diverse = {one.page_content.strip() for one in store.max_marginal_relevance_search(TEXTS[0], k=3, lambda_mult=0.1)}
    assert (len(nearest), len(diverse)) == (1, 3)
    by_vector = store.max_marginal_relevance_search_by_vector(vector(TEXTS[0], OLD), k=3, lambda_mult=0.1)
    assert {one.page_content.strip() for one in by_vector} == diverse


def test_another_model_is_refused(store, path):
    for other in (models.Toy(NEW), langchain.DeterministicFakeEmbedding(size=OLD)):
        with pytest.raises(Incompatible, match=r'gallery\.upgrade\("NEW_VERSION"\)'):
            ours.CompatStoreVectorStore(other, path)
    with pytest.raises(InvalidInput, match="Embeddings"):
        ours.CompatStoreVectorStore("text-embedding-3-small", path)


def test_a_declared_identity(path):
    ours.CompatStoreVectorStore(ours.model_of(models.Toy(OLD), "toy@1"), path)
    assert ours.CompatStoreVectorStore(ours.model_of(models.Toy(OLD), "toy@1"), path).embeddings is None
    with pytest.raises(Incompatible, match=r"model|fingerprint"):
        ours.CompatStoreVectorStore(ours.model_of(models.Toy(OLD), "toy@2"), path)
    with pytest.raises(InvalidInput, match="a text that names it"):
        ours.model_of(models.Toy(OLD), " ")


def asks(store):
    """Everything that an app asks for, of each text by itself: whether it is what is found."""
    first = [
        [one.page_content for one in store.similarity_search(text, k=1, filter={"lost": None})] for text in TEXTS
    ] + [[one.page_content for one in store.max_marginal_relevance_search(text, k=1)] for text in TEXTS]
    scored = [store.similarity_search_with_relevance_scores(text, k=1)[0][0].page_content for text in TEXTS]
    return first == [[text] for text in (*TEXTS, *TEXTS)] and scored == TEXTS


@pytest.mark.full
async def test_an_app_goes_on_through_an_upgrade(store, path):
    """Each state is asked, sync and async, and written to."""
    manager = cs.Gallery.open(path)
    manager.register(cs.EmbeddingVersion("v2", dim=NEW, encoder=ours.as_encoder(models.Toy(NEW))))

    async def works(state):
        assert asks(store)
        assert await asyncio.to_thread(asks, store)
        (name,) = await store.aadd_texts([f"new in {state}"], [{"state": state}])
        (found,) = await store.asimilarity_search(f"new in {state}", k=1, filter={"state": state})
        assert (found.id, found.metadata) == (name, {"state": state})
        assert [one.id for one in await store.amax_marginal_relevance_search(f"new in {state}", k=1)] == [name]
        await store.adelete([name])

    await works("registered")
    manager.upgrade("v2", backfill=0.5)
    await works("half native")
    manager.upgrade("v2", backfill=1.0)
    await works("ready")
    manager.cutover("v2")
    await works("cut over")
    by_vector = store.similarity_search_by_vector(vector(TEXTS[3], OLD), k=1)  # the app's own model's, until it goes
    assert by_vector[0].page_content == TEXTS[3]
    manager.retire("v1")
    await works("v1 retired")
    assert manager.maintenance.verify().clean
