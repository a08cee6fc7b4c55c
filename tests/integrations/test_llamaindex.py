"""The LlamaIndex store: nodes come back as they were, all operators filter, and it serves through an upgrade."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.errors import Incompatible, InvalidInput
from compatstore.trainers import Pairs, Procrustes
from lazily import Lazy
from properties import examples

llama_index = Lazy("llama_index.core", "llama_index.core.schema", "llama_index.core.vector_stores.types")
models = Lazy("llamaindex_models")
ours = Lazy("compatstore.integrations.llamaindex")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "nodes.lance")


@pytest.fixture
def store(path):
    return ours.LlamaIndexVectorStore(models.OLD, path)


def node(name, text="a text", **metadata):
    return llama_index.TextNode(id_=name, text=text, metadata=metadata)


def ids(nodes):
    return [one.node_id for one in nodes]


def asked(store, text=None, **settings):
    return store.query(llama_index.VectorStoreQuery(query_str=text, **settings))


# ---- nodes


def full_node():
    return llama_index.TextNode(
        id_="n1",
        text="zwei\nZeilen \U0001f600 with \"quotes\" and 'others'",
        metadata={
            "page": 3,
            "share": 0.25,
            "tags": ["a", "b"],
            "deep": {"x": [1, {"y": None}]},
            "none": None,
            "o'k": True,
        },
        excluded_embed_metadata_keys=["page"],
        excluded_llm_metadata_keys=["share"],
        metadata_template="{key} is {value}",
        text_template="{metadata_str} / {content}",
        start_char_idx=2,
        end_char_idx=30,
        relationships={
            llama_index.NodeRelationship.SOURCE: llama_index.RelatedNodeInfo(node_id="d1", metadata={"title": "t"}),
            llama_index.NodeRelationship.NEXT: llama_index.RelatedNodeInfo(node_id="n2"),
            llama_index.NodeRelationship.CHILD: [
                llama_index.RelatedNodeInfo(node_id="n3"),
                llama_index.RelatedNodeInfo(node_id="n4"),
            ],
        },
    )


NODES = {
    "full": full_node,
    "bare": lambda: llama_index.TextNode(id_="bare", text="only a text"),
    "no text": lambda: llama_index.TextNode(id_="no-text", text="", metadata={"a": 1}),
    "index": lambda: llama_index.IndexNode(id_="i", text="an index", index_id="other", metadata={"a": 1}),
    "image": lambda: llama_index.ImageNode(
        id_="im", text="a picture", image_url="http://host/x.png", metadata={"a": 1}
    ),
    "document": lambda: llama_index.Document(id_="d", text="a document", metadata={"a": 1}),
    "odd names": lambda: llama_index.TextNode(
        id_="odd", text="x", metadata={"a.b": 1, "text": "t", "id": 3, "llama_index": [], "": "e"}
    ),
}


@pytest.mark.parametrize("made", NODES.values(), ids=NODES)
def test_a_node_comes_back_as_it_was(store, made):
    original = made()
    assert store.add([original]) == [original.node_id]
    (found,) = store.get_nodes([original.node_id])
    assert type(found) is type(original)
    assert found.model_dump() == {**original.model_dump(), "embedding": None}
    assert found.hash == original.hash
    assert found.get_content(llama_index.MetadataMode.EMBED) == original.get_content(llama_index.MetadataMode.EMBED)


@pytest.mark.full
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(str.strip),
    metadata=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**63 - 1)
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=2),
            max_leaves=5,
        ),
        max_size=4,
    ),
)
def test_any_metadata_comes_back(store, text, metadata):
    original = llama_index.TextNode(id_="n", text=text, metadata=metadata)
    store.add([original])
    (found,) = store.get_nodes(["n"])
    assert (found.text, found.metadata) == (original.text, original.metadata)


def test_the_source_is_what_the_model_embeds(store):
    original = node("n", "a red shirt", colour="red")
    store.add([original])
    gallery = store.client
    assert gallery.get("n")["source"].to_pylist() == ["colour: red\n\na red shirt"]
    own = models.OLD.get_text_embedding(original.get_content(llama_index.MetadataMode.EMBED))
    assert np.allclose(gallery.vectors("n")[0], own, atol=1e-5)


def test_a_node_that_is_there_is_replaced_and_of_equal_ids_the_last_counts(store):
    store.add([node("n", "one", a=1)])
    store.add([node("n", "two", b=2), node("n", "three", c=3)])
    (found,) = store.get_nodes()
    assert (found.text, found.metadata) == ("three", {"c": 3})


def test_the_items_of_a_gallery_that_others_made_are_nodes_too(path):
    encoder = ours.as_encoder(models.OLD)
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("first", dim=16, metric="cosine", encoder=encoder))
    gallery.add({"id": ["x"], "source": ["a red shirt"], "price": [3]})
    store = ours.LlamaIndexVectorStore(models.OLD, path)
    (found,) = asked(store, "red shirt").nodes
    assert (found.node_id, found.text, found.metadata) == ("x", "a red shirt", {"price": 3})
    store.delete("no such document")
    store.add([node("y", "a blue coat", price=4)])
    assert sorted(ids(store.get_nodes())) == ["x", "y"]
    assert store.get_nodes(["y"])[0].metadata == {"price": 4}


def test_metadata_that_the_gallery_changed_are_the_nodes(path):
    store = ours.LlamaIndexVectorStore(models.OLD, path, metadata={"price": "int64"})
    store.add([node("n", "a shirt", price=3, colour="red")])
    store.client.add({"id": ["n"], "source": ["a shirt"], "price": [4]}, upsert=True)
    assert store.get_nodes(["n"])[0].metadata == {"price": 4, "colour": "red"}


# ---- finding, deleting


@pytest.mark.full
def test_an_index_writes_and_retrieves_through_it(store):
    texts = ["a red shirt of wool", "a blue coat of silk", "a green hat of linen"]
    documents = [llama_index.Document(text=text, id_=f"d{n}", metadata={"n": n}) for n, text in enumerate(texts)]
    context = llama_index.StorageContext.from_defaults(vector_store=store)
    index = llama_index.VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=models.OLD)
    (found,) = index.as_retriever(similarity_top_k=1).retrieve("blue coat")
    assert isinstance(found, llama_index.NodeWithScore)
    assert found.node.text == texts[1]
    assert found.node.ref_doc_id == "d1"
    assert 0 < found.score < 1
    again = llama_index.VectorStoreIndex.from_vector_store(store, embed_model=models.OLD)
    assert again.as_retriever(similarity_top_k=1).retrieve("green hat")[0].node.text == texts[2]
    again.delete_ref_doc("d2")
    assert {one.ref_doc_id for one in store.get_nodes()} == {"d0", "d1"}
    again.insert(llama_index.Document(text="a grey scarf", id_="d3"))
    assert asked(store, "grey scarf").nodes[0].ref_doc_id == "d3"


def test_similarities_are_cosines_or_fall_with_the_distance(tmp_path):
    for metric in ("cosine", "l2", "dot"):
        store = ours.LlamaIndexVectorStore(models.OLD, str(tmp_path / f"{metric}.lance"), metric=metric)
        store.add([node("a", "red shirt"), node("b", "blue coat"), node("c", "red coat")])
        found = asked(store, "red shirt", similarity_top_k=3)
        assert found.ids[0] == "a"
        assert found.similarities == sorted(found.similarities, reverse=True)
        first, last = (np.array(models.OLD.get_query_embedding(one.text)) for one in (found.nodes[0], found.nodes[-1]))
        cosine = first @ last / np.linalg.norm(first) / np.linalg.norm(last)
        expected = {"cosine": cosine, "l2": 1 / (1 + ((first - last) ** 2).sum()), "dot": first @ last}
        assert found.similarities[-1] == pytest.approx(expected[metric], rel=1e-4)


def test_a_query_keeps_to_documents_and_nodes(store):
    of = {n: {llama_index.NodeRelationship.SOURCE: llama_index.RelatedNodeInfo(node_id=f"d{n % 2}")} for n in range(4)}
    store.add([llama_index.TextNode(id_=f"n{n}", text="same text", relationships=of[n]) for n in range(4)])
    assert sorted(asked(store, "same", similarity_top_k=9, doc_ids=["d1"]).ids) == ["n1", "n3"]
    assert sorted(asked(store, "same", similarity_top_k=9, node_ids=["n0", "n1"], doc_ids=["d1"]).ids) == ["n1"]
    by_key = llama_index.MetadataFilters(filters=[llama_index.MetadataFilter(key="ref_doc_id", value="d0")])
    assert sorted(ids(store.get_nodes(filters=by_key))) == ["n0", "n2"]
    store.delete("d0")
    assert sorted(ids(store.get_nodes())) == ["n1", "n3"]


def test_a_document_whose_id_is_a_date_is_not_deleted_with_another_one(store):
    names = ["2024-05-01", "2024-05-01T00:00:00Z"]
    for name in names:
        relation = {llama_index.NodeRelationship.SOURCE: llama_index.RelatedNodeInfo(node_id=name)}
        store.add([llama_index.TextNode(id_=f"of {name}", text="x", relationships=relation)])
    store.delete(names[0])
    assert ids(store.get_nodes()) == [f"of {names[1]}"]


def test_nodes_are_got_and_deleted_by_ids_and_filters(store):
    store.add([node(f"n{n}", f"text {n}", n=n) for n in range(6)])
    small = llama_index.MetadataFilters(
        filters=[llama_index.MetadataFilter(key="n", value=3, operator=llama_index.FilterOperator.LT)]
    )
    assert ids(store.get_nodes(["n5", "no such", "n1"])) == ["n5", "n1"]
    assert sorted(ids(store.get_nodes(["n1", "n5"], small))) == ["n1"]
    assert store.get_nodes([]) == []
    store.delete_nodes()
    store.delete_nodes([])
    assert len(store.get_nodes()) == 6
    store.delete_nodes(["n1", "n5"], small)
    store.delete_nodes(["n0", "no such"])
    assert sorted(ids(store.get_nodes())) == ["n2", "n3", "n4", "n5"]
    store.delete_nodes(filters=small)
    assert sorted(ids(store.get_nodes())) == ["n3", "n4", "n5"]
    store.clear()
    assert store.get_nodes() == []
    store.add([node("again")])
    assert ids(store.get_nodes()) == ["again"]


def test_it_is_the_same_beside_an_event_loop(store):
    async def run():
        assert await store.async_add([node("a", "red shirt"), node("b", "blue coat"), node("c")]) == ["a", "b", "c"]
        found = await store.aquery(llama_index.VectorStoreQuery(query_str="red shirt"))
        assert found.ids == ["a"]
        assert ids(await store.aget_nodes(["b"])) == ["b"]
        await store.adelete_nodes(["b"])
        await store.adelete("no such document")
        left = ids(await store.aget_nodes())
        await store.aclear()
        return left, await store.aget_nodes()

    left, cleared = asyncio.run(run())
    assert sorted(left) == ["a", "c"]
    assert cleared == []


def test_results_that_differ_from_each_other(store):
    store.add([node("a", "red shirt wool"), node("b", "red shirt wool"), node("c", "red hat"), node("d", "grey silk")])
    plain = asked(store, "red shirt wool", similarity_top_k=2)
    mixed = store.query(
        llama_index.VectorStoreQuery(
            query_str="red shirt wool", similarity_top_k=2, mode=llama_index.VectorStoreQueryMode.MMR, mmr_threshold=0.3
        ),
        mmr_prefetch_k=4,
    )
    assert set(plain.ids) == {"a", "b"}
    assert len({one.text for one in mixed.nodes}) == 2
    vector = llama_index.VectorStoreQuery(
        query_embedding=models.OLD.get_query_embedding("red hat"),
        similarity_top_k=1,
        mode=llama_index.VectorStoreQueryMode.MMR,
    )
    assert store.query(vector).ids == ["c"]


def test_other_modes_are_refused(store):
    others = [mode for mode in llama_index.VectorStoreQueryMode if mode.value not in ("default", "mmr")]
    assert others
    for mode in others:
        with pytest.raises(InvalidInput, match=rf"expected the mode default or mmr; found {mode.value}"):
            asked(store, "x", mode=mode)


def test_wrong_calls_are_refused(store):
    for wrong in (
        lambda: asked(store),
        lambda: asked(store, "x", similarity_top_k=0),
        lambda: store.query(llama_index.VectorStoreQuery(query_embedding=[[1.0]])),
        lambda: store.query(llama_index.VectorStoreQuery(query_embedding=[1.0])),
        lambda: store.query(llama_index.VectorStoreQuery(query_str="x"), wrong=1),
        lambda: store.add([node("n")], wrong=1),
        lambda: store.add([llama_index.TextNode(id_="n", text="x", embedding=[1.0])]),
        lambda: store.add([node("n", when=object())]),
        lambda: store.get_nodes(filters="x"),
        lambda: ours.LlamaIndexVectorStore("no model", store.client.status().gallery),
        lambda: ours.model_of(models.OLD, " "),
    ):
        with pytest.raises(cs.CompatStoreError):
            wrong()
    assert store.get_nodes() == []


# ---- filters

VALUES = {
    "a": {"n": 1, "text": "Red Shirt", "tags": ["x", "y"], "flag": True, "day": "2024-05-01"},
    "b": {"n": 2, "text": "red coat", "tags": ["y"], "flag": False, "day": "2025-01-01"},
    "c": {"n": 2.5, "text": "", "tags": []},
    "d": {"n": "2", "text": "O'Brien %_\\"},
    "e": {},
}
TRIED = [
    ("n", "==", 2, "b"),
    ("n", "==", "2", "d"),
    ("n", "!=", 2, "acde"),
    ("n", ">", 1, "bc"),
    ("n", ">=", 2, "bc"),
    ("n", "<", 2, "a"),
    ("n", "<=", 2.5, "abc"),
    ("day", ">", "2024-12-31", "b"),
    ("n", "in", [1, 2], "ab"),
    ("text", "in", ["red coat", ""], "bc"),
    ("n", "nin", [1, 2], "cde"),
    ("tags", "any", ["x", "z"], "a"),
    ("tags", "any", ["y", "x"], "ab"),
    ("tags", "all", ["x", "y"], "a"),
    ("tags", "all", ["y"], "ab"),
    ("tags", "contains", "y", "ab"),
    ("text", "contains", "coat", "b"),
    ("text", "text_match", "Red", "a"),
    ("text", "text_match", "%", "d"),
    ("text", "text_match_insensitive", "RED", "ab"),
    ("text", "is_empty", None, "ce"),
    ("tags", "is_empty", None, "cde"),
    ("text", "==", "O'Brien %_\\", "d"),
    ("nothing", "==", 1, ""),
    ("nothing", "!=", 1, "abcde"),
]


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    store = ours.LlamaIndexVectorStore(models.OLD, str(tmp_path_factory.mktemp("filters") / "nodes.lance"))
    store.add([llama_index.TextNode(id_=name, text="same", metadata=values) for name, values in VALUES.items()])
    return store


def names(store, filters):
    """Nodes by a filter, as `get_nodes` and `query` both give them."""
    got = sorted(ids(store.get_nodes(filters=filters)))
    assert sorted(asked(store, "same", similarity_top_k=9, filters=filters).ids) == got
    return "".join(got)


def test_every_operator_is_tried():
    assert {operator for _, operator, _, _ in TRIED} == {operator.value for operator in llama_index.FilterOperator}


@pytest.mark.parametrize(("key", "operator", "value", "expected"), TRIED)
def test_an_operator_filters(filtered, key, operator, value, expected):
    one = llama_index.MetadataFilter(key=key, operator=operator, value=value)
    assert names(filtered, llama_index.MetadataFilters(filters=[one])) == expected
    negated = llama_index.MetadataFilters(filters=[one], condition=llama_index.FilterCondition.NOT)
    assert names(filtered, negated) == "".join(sorted(set(VALUES) - set(expected)))


@pytest.mark.parametrize("seed", range(8))
def test_filters_nest(filtered, seed):
    """Against the sets that the parts give."""
    draw = np.random.default_rng(seed)

    def some(depth):
        if depth == 0 or draw.random() < 0.3:
            key, operator, value, expected = TRIED[draw.integers(len(TRIED))]
            return llama_index.MetadataFilter(key=key, operator=operator, value=value), set(expected)
        parts = [some(depth - 1) for _ in range(draw.integers(1, 4))]
        condition = [llama_index.FilterCondition.AND, llama_index.FilterCondition.OR, llama_index.FilterCondition.NOT][
            draw.integers(3)
        ]
        sets = [found for _, found in parts]
        joined = set.intersection(*sets) if condition is llama_index.FilterCondition.AND else set.union(*sets)
        joined = set(VALUES) - joined if condition is llama_index.FilterCondition.NOT else joined
        return llama_index.MetadataFilters(filters=[part for part, _ in parts], condition=condition), joined

    made, expected = some(3)
    whole = made if isinstance(made, llama_index.MetadataFilters) else llama_index.MetadataFilters(filters=[made])
    assert names(filtered, whole) == "".join(sorted(expected))


@pytest.mark.parametrize("text", ["' OR 1=1 --", "x'); DROP TABLE t; --", '"', "\\", "`", "%", "\0", "$.n", "a" * 3000])
def test_no_value_and_no_key_becomes_sql(filtered, text):
    for key, value in ((text, "x"), ("text", text)):
        for operator in ("==", "contains", "text_match", "text_match_insensitive"):
            filters = llama_index.MetadataFilters(
                filters=[llama_index.MetadataFilter(key=key, operator=operator, value=value)]
            )
            expected = (
                "d"
                if (text, operator) in itertools.product("\\%", llama_index.FilterOperator) and operator != "=="
                else ""
            )
            assert names(filtered, filters) == (expected if key == "text" else "")
    filters = llama_index.MetadataFilters(filters=[llama_index.MetadataFilter(key=text, operator="!=", value="x")])
    assert names(filtered, filters) == "abcde"


@pytest.mark.parametrize(
    ("operator", "value"), [("in", "text"), ("any", 3), ("text_match", 3), (">", None), ("==", float("nan"))]
)
def test_values_that_do_not_fit_their_operator_are_refused(filtered, operator, value):
    filters = llama_index.MetadataFilters(filters=[llama_index.MetadataFilter(key="n", operator=operator, value=value)])
    with pytest.raises(InvalidInput):
        filtered.get_nodes(filters=filters)


# ---- models and upgrades

WORDS = ("red green blue grey", "wool silk linen cotton", "shirt coat hat scarf", "small large")
TEXTS = [" ".join(words) for words in itertools.product(*(group.split() for group in WORDS))]


def upgradable(path):
    gallery = cs.Gallery.open(path, encoders={"v1": ours.as_encoder(models.OLD)})
    gallery.register(cs.EmbeddingVersion("v2", dim=24, encoder=ours.as_encoder(models.NEW)))
    return gallery


def test_a_changed_model_is_refused_with_the_command_that_upgrades(path, store):
    store.add([node("n")])
    with pytest.raises(Incompatible, match=r"gallery\.upgrade"):
        ours.LlamaIndexVectorStore(models.NEW, path)
    with pytest.raises(Incompatible, match=r"gallery\.upgrade"):
        ours.LlamaIndexVectorStore(models.HashedWords(size=16, salt=1), path)
    ours.LlamaIndexVectorStore(models.HashedWords(size=16, embed_batch_size=3), path)


def test_an_index_with_another_model_of_equal_length_is_refused(store):
    other = models.HashedWords(size=16, salt=1)
    index = llama_index.VectorStoreIndex.from_vector_store(store, embed_model=other)
    with pytest.raises(Incompatible, match="embed_model"):
        index.insert(llama_index.Document(text="a red shirt"))
    assert store.get_nodes() == []


def test_a_vector_of_zeros_does_not_vouch_for_the_model_of_later_ones(path):
    store = ours.LlamaIndexVectorStore(models.OLD, path, metric="l2")
    zeros = node("zeros")
    zeros.embedding = [0.0] * models.OLD.size
    store.add([zeros])
    other = node("other")
    other.embedding = models.HashedWords(size=16, salt=1).get_text_embedding(other.text)
    with pytest.raises(Incompatible, match="embed_model"):
        store.add([other])
    assert ids(store.get_nodes()) == ["zeros"]


def test_a_declared_identity_is_the_models(path):
    ours.LlamaIndexVectorStore(ours.model_of(models.OLD, "words@1"), path).add([node("n")])
    ours.LlamaIndexVectorStore(ours.model_of(models.HashedWords(size=16), "words@1"), path)
    with pytest.raises(Incompatible, match=r"model|fingerprint"):
        ours.LlamaIndexVectorStore(ours.model_of(models.OLD, "words@2"), path)


@pytest.mark.full
def test_it_goes_on_through_a_whole_upgrade(path, caplog):
    store = ours.LlamaIndexVectorStore(models.OLD, path, models=[models.NEW])
    index = llama_index.VectorStoreIndex.from_vector_store(store, embed_model=models.OLD)
    index.insert_nodes([node(f"n{n}", text) for n, text in enumerate(TEXTS)])
    retriever = index.as_retriever(similarity_top_k=1)
    state = {}

    def ask(name):
        found = [retriever.retrieve(text)[0] for text in TEXTS[::5]]
        assert [one.node.text for one in found] == TEXTS[::5], name
        assert all(0 <= one.score <= 1.0001 for one in found)
        plan = store.client.explain("x", 1)
        state[name] = "fused" if plan.merge == "fused" else plan.version

    ask("before")
    gallery = upgradable(path)
    source, target = (np.array(model.get_text_embedding_batch(TEXTS), np.float32) for model in (models.OLD, models.NEW))
    v1 = gallery.version("v1", encoders=False)
    pairs = Pairs(source, target, source_version=v1, target_version=gallery.version("v2"))
    gallery.artifacts.link(Procrustes().fit(pairs).amended(seen=np.array([], np.uint64)))
    gallery.upgrade("v2", backfill=1.0, progress=lambda progress: ask("while it runs"))
    ask("ready")
    index.insert_nodes([node("late", "yellow velvet gloves")])
    gallery.evaluate("v2", weight=0.5, sample=100)
    ask("fused")
    assert gallery.upgrade("v2", backfill=1.0).backfilled == 1, "the late one"
    ask("fused, all native")
    gallery.cutover("v2", serving="target")
    assert caplog.messages == []
    ask("cut over")
    index.insert_nodes([node("later", "purple velvet gloves")])
    assert retriever.retrieve("purple velvet gloves")[0].node.node_id == "later"
    assert len([message for message in caplog.messages if "v2" in message]) == 1
    gallery.retire("v1")
    ask("retired")
    index.insert_nodes([node("last", "orange velvet gloves")])
    assert retriever.retrieve("orange velvet gloves")[0].node.node_id == "last"
    assert retriever.retrieve("yellow velvet gloves")[0].node.node_id == "late"
    assert gallery.status().missing == 0
    assert state == {
        "before": "v1",
        "while it runs": "v1",
        "ready": "v1",
        "fused": "fused",
        "fused, all native": "fused",
        "cut over": "v2",
        "retired": "v2",
    }


@pytest.mark.full
def test_vectors_of_the_app_are_searched_in_their_own_version(path):
    store = ours.LlamaIndexVectorStore(models.OLD, path, models=[models.NEW], is_embedding_query=True)
    index = llama_index.VectorStoreIndex.from_vector_store(store, embed_model=models.OLD)
    index.insert_nodes([node(f"n{n}", text) for n, text in enumerate(TEXTS)])
    gallery = upgradable(path)
    gallery.upgrade("v2", backfill=1.0, learn=None)
    gallery.cutover("v2")
    assert index.as_retriever(similarity_top_k=1).retrieve(TEXTS[9])[0].node.text == TEXTS[9]
    gallery.retire("v1")
    with pytest.raises(cs.CompatStoreError, match="v1"):
        index.as_retriever().retrieve(TEXTS[9])


@pytest.mark.full
def test_a_process_without_the_later_model_goes_on_until_its_own_is_retired(path, caplog):
    store = ours.LlamaIndexVectorStore(models.OLD, path)
    store.add([node(f"n{n}", text) for n, text in enumerate(TEXTS)])
    gallery = upgradable(path)
    gallery.upgrade("v2", backfill=1.0, learn=None)
    gallery.cutover("v2")
    for text in TEXTS[:4]:
        assert asked(store, text).nodes[0].text == text
    assert len(caplog.messages) == 1
    assert "models=[...]" in caplog.messages[0]
    gallery.retire("v1")
    with pytest.raises(Incompatible, match=r"models=\[\.\.\.\]"):
        asked(store, TEXTS[0])


@pytest.mark.full
def test_without_llamaindex_the_extra_is_named():
    import subprocess
    import sys

    program = """
import sys
sys.modules["llama_index"] = None
from compatstore.errors import MissingExtra
try:
    import compatstore.integrations.llamaindex
except MissingExtra as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert 'pip install "compatstore[llamaindex]"' in said
