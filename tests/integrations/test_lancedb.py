"""A LanceDB connection whose tables search as their upgrade is served; all else is LanceDB's own."""

from __future__ import annotations

import asyncio
import functools
from datetime import timedelta

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput
from compatstore.trainers import Pairs, Procrustes
from lazily import Lazy
from tiers import few

lancedb = Lazy("lancedb", "lancedb.embeddings", "lancedb.index", "lancedb.pydantic", "lancedb.query")
ours = Lazy("compatstore.integrations.lancedb")

WORDS = ("red", "green", "blue", "grey", "shirt", "coat", "hat", "scarf", "wool", "silk", "small", "large")
TEXTS = [f"{a} {b} {c}" for a in WORDS[:4] for b in WORDS[4:8] for c in WORDS[8:]]
DIM = 16


def embed(texts, seed):
    """Sums of a random vector for each word, of unit length."""
    table = np.random.default_rng(seed).standard_normal((len(WORDS), DIM)).astype(np.float32)
    rows = np.array([sum(table[WORDS.index(word)] for word in text.split() if word in WORDS) for text in texts])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@functools.cache
def notes():
    """The rows of an app whose texts LanceDB embeds."""

    @lancedb.register("words-of-the-app")
    class Words(lancedb.EmbeddingFunction):
        def ndims(self):
            return DIM

        def compute_source_embeddings(self, texts, *args, **kwargs):
            return list(embed(texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts), seed=1))

        def compute_query_embeddings(self, query, *args, **kwargs):
            return self.compute_source_embeddings([query])

    function = lancedb.get_registry().get("words-of-the-app").create()

    class Note(lancedb.LanceModel):
        key: str
        text: str = function.SourceField()
        vector: lancedb.Vector(DIM) = function.VectorField()
        number: int

    return Note


LATER = cs.encoders.Function(lambda texts: embed(texts, seed=2), DIM, fingerprint="later")
ENCODERS = {"v2": LATER}


@pytest.fixture
def database(tmp_path):
    """A database of an app whose texts LanceDB embeds, with a full-text index; not adopted yet."""
    table = lancedb.connect(tmp_path / "app").create_table("notes", schema=notes())
    table.add([{"key": f"n{n}", "text": text, "number": n} for n, text in enumerate(TEXTS)])
    table.create_index("text", config=lancedb.FTS())
    return tmp_path / "app"


def adopt(database, dtype="float32"):
    v1 = cs.EmbeddingVersion("v1", dim=DIM, metric="l2")
    gallery = cs.Gallery.adopt(f"{database}#notes", v1, vector="vector", id="key")
    v2 = cs.EmbeddingVersion("v2", dim=DIM, metric="l2", dtype=dtype, encoder=LATER)
    gallery.register(v2)
    source, target = embed(TEXTS, 1), embed(TEXTS, 2)
    v1 = gallery._catalog.recorded().record("v1").version()
    pairs = Pairs(source, target, source_version=v1, target_version=v2)
    gallery.artifacts.link(Procrustes().fit(pairs).amended(seen=np.array([], np.uint64)))
    return gallery


def nearest(table, query, **options):
    return table.search(query, **options).limit(1).to_list()[0]


def versions(table, query):
    return set(table.search(query).to_arrow()["_version"].to_pylist())


@pytest.mark.full
def test_a_text_is_answered_at_each_state_by_what_serves(database):
    table = ours.connect(database).open_table("notes", encoders=ENCODERS, trust_code=True)
    assert isinstance(table.search("red hat wool"), lancedb.LanceVectorQueryBuilder)
    assert nearest(table, "red hat wool")["text"] == "red hat wool"
    gallery = adopt(database)  # as another process would
    asked = "blue coat silk"
    answers = {}

    def ask(state):
        answers[state] = (nearest(table, asked)["text"], versions(table, asked))

    ask("adopted")
    gallery.upgrade("v2", backfill=1.0, progress=lambda progress: ask("upgrading"))
    ask("ready")
    gallery.evaluate("v2", weight=0.5, sample=60)
    ask("fused")
    as_one = table.gallery.search(asked, serving="fused", columns=["key"])
    assert table.search(asked).select(["key"]).to_arrow().equals(as_one)
    gallery.cutover("v2")
    ask("cut over, fused")
    assert table.search(asked).select(["key"]).to_arrow().equals(as_one)
    gallery.cutover("v2", serving="target")
    ask("cut over")
    gallery.retire("v1")
    ask("retired")
    assert {text for text, _ in answers.values()} == {asked}
    by = {state: names for state, (_, names) in answers.items()}
    assert by["adopted"] == by["upgrading"] == by["ready"] == {"v1"}
    assert by["cut over"] == by["retired"] == {"v2"}
    assert by["fused"] == by["cut over, fused"] == {"v2"}


def ask_in_all_ways(table):
    """All searches that an app may make of its own table, without and with the column named."""
    for options in (
        {},
        {"query_type": "vector"},
        {"query_type": "hybrid"},
        {"vector_column_name": "vector"},
        {"vector_column_name": "vector", "query_type": "hybrid"},
        {"query_type": "fts"},
    ):
        assert nearest(table, "red hat wool", **options)["text"] == "red hat wool"
    assert nearest(table, embed(["red hat wool"], 1)[0])["text"] == "red hat wool"


async def ask_beside_a_loop(database):
    """The same by LanceDB's asynchronous API, whose searches choose the column in Rust."""
    table = await (await lancedb.connect_async(database)).open_table("notes")
    for query in ("red hat wool", embed(["red hat wool"], 1)[0]):
        found = await (await table.search(query)).limit(1).to_list()
        assert found[0]["text"] == "red hat wool"
    found = await table.vector_search(embed(["red hat wool"], 1)[0]).limit(1).to_list()
    assert found[0]["text"] == "red hat wool"


def change_rows(table, number):
    """What an app writes; LanceDB embeds the new texts."""
    table.add([{"key": f"new{number}", "text": "small grey scarf silk", "number": number}])
    changed = notes()(key="n3", text="blue hat large", number=-number, vector=embed(["blue hat large"], 1)[0])
    table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute([changed])
    table.update(where="key = 'n4'", values={"number": number})
    table.delete(f"key = 'n{10 + number}'")
    table.optimize()
    assert nearest(table, "small grey scarf silk")["text"] == "small grey scarf silk"
    assert table.search("blue hat large").limit(1).to_pydantic(notes())[0].text == "blue hat large"
    assert table.search("wool").where("number > 3").limit(3).to_list()


@pytest.mark.parametrize("dtype", few(1, ["float32", "float16", "bits"]))
def test_the_plain_table_serves_its_app_before_during_and_after_an_upgrade(database, dtype):
    plain = lancedb.connect(database, read_consistency_interval=timedelta(0)).open_table("notes")
    ask_in_all_ways(plain)
    gallery, moments = adopt(database, dtype), iter(range(100))

    def at_work(progress=None):
        ask_in_all_ways(plain)
        asyncio.run(ask_beside_a_loop(database))
        change_rows(plain, next(moments))

    at_work()
    gallery.upgrade("v2", backfill=cs.Backfill(share=0.5), learn=None, progress=at_work)
    at_work()
    gallery.cutover("v2")
    at_work()
    gallery.retire("v1")
    at_work()
    assert next(moments) > 4


def test_a_process_is_told_once_of_a_cutover_by_another_one(database, caplog):
    gallery = adopt(database)
    table = ours.connect(database).open_table("notes", encoders={**ENCODERS, "v7": LATER}, trust_code=True)
    gallery.upgrade("v2")
    for _ in range(3):
        nearest(table, "red hat wool")
    assert caplog.messages == []
    gallery.cutover("v2")
    for _ in range(3):
        nearest(table, "red hat wool")
    assert [message.partition(": ")[2] for message in caplog.messages] == ["searches use v2 from now on, no longer v1"]


@pytest.mark.full
def test_vectors_of_the_app_never_meet_another_model(database):
    gallery = adopt(database)
    gallery.upgrade("v2", backfill=1.0)
    gallery.cutover("v2")
    earlier, later = (embed(["grey scarf large"], seed)[0] for seed in (1, 2))
    own = ours.connect(database).open_table("notes", encoders=ENCODERS, trust_code=True, queries_of="v1")
    assert nearest(own, earlier)["text"] == "grey scarf large"
    assert versions(own, earlier) == {"v1"}
    assert versions(own, "grey scarf large") == {"v2"}, "a text is embedded by what serves"
    active = ours.connect(database)["notes"]
    assert nearest(active, later)["text"] == "grey scarf large"
    assert versions(active, later) == {"v2"}
    assert nearest(own, {"v1": earlier, "v2": later})["text"] == "grey scarf large"
    with pytest.raises(cs.errors.NotFound, match="v9"):
        ours.connect(database).open_table("notes", queries_of="v9")


def test_settings_of_a_search_are_lancedbs(database):
    adopt(database)
    table = ours.connect(database).open_table("notes", trust_code=True)
    query = table.search("red hat wool").where("number >= 5").limit(3).select(["key", "number"])
    found = query.nprobes(4).refine_factor(2).to_list()
    assert len(found) == 3
    assert all(row["number"] >= 5 for row in found)
    assert {"key", "number", "_distance"} <= found[0].keys()
    assert [row["key"] for row in found] == query.to_pandas()["key"].tolist()
    assert table.search("red hat wool").limit(None).to_arrow().num_rows == 10
    read = table.search("red hat wool").limit(2).to_pydantic(notes())
    assert read[0].text == "red hat wool"
    assert np.allclose(read[0].vector, embed(["red hat wool"], 1)[0])


WRONG = {
    "filter afterwards": lambda query: query.where("number > 1", prefilter=False),
    "metric": lambda query: query.distance_type("cosine"),
    "rerank": lambda query: query.rerank(None),
    "computed column": lambda query: query.select({"n": "number + 1"}),
    "one column as a text": lambda query: query.select("key"),
    "no results": lambda query: query.limit(0).to_list(),
    "no condition": lambda query: query.where("number >").to_list(),
    "no column": lambda query: query.select(["nothing"]).to_list(),
    "no cells": lambda query: query.nprobes(0),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_a_gallery_does_not_do_is_refused(database, wrong):
    adopt(database)
    with pytest.raises(InvalidInput):
        wrong(ours.connect(database).open_table("notes", trust_code=True).search("red hat wool"))


def test_lancedb_alone_is_asked_where_it_is_meant(database):
    adopt(database).upgrade("v2")
    table = ours.connect(database).open_table("notes", encoders=ENCODERS, trust_code=True)
    assert isinstance(table.search("red", vector_column_name="vector"), lancedb.LanceVectorQueryBuilder)
    assert isinstance(table.search("red", query_type="fts"), lancedb.LanceFtsQueryBuilder)
    assert isinstance(table.search("red", "vector", "hybrid"), lancedb.LanceHybridQueryBuilder)
    assert isinstance(table.search(lancedb.MatchQuery("red", "text")), lancedb.LanceFtsQueryBuilder)
    assert len(table.search().limit(3).to_list()) == 3
    assert isinstance(table.search("red"), ours.ServingQuery)
    with pytest.raises(InvalidInput, match=r"table\.plain\.search"):
        table.search("red", fast_search=True)


def test_a_text_without_a_model_is_a_full_text_query(tmp_path):
    table = lancedb.connect(tmp_path).create_table(
        "notes",
        [
            {"key": f"n{n}", "text": text, "vector": row}
            for n, (text, row) in enumerate(zip(TEXTS, embed(TEXTS, 1), strict=True))
        ],
    )
    table.create_index("text", config=lancedb.FTS())
    gallery = cs.Gallery.adopt(table, cs.EmbeddingVersion("v1", dim=DIM, metric="l2"), vector="vector", id="key")
    gallery.register("v2", metric="cosine", normalised=True)
    gallery.upgrade("v2")
    found = nearest(ours.connect(tmp_path)["notes"], "scarf")
    assert "scarf" in found["text"]
    assert "_score" in found
    assert nearest(ours.connect(tmp_path)["notes"], embed(["red hat wool"], 1)[0])["text"] == "red hat wool"


def test_a_model_of_the_table_is_built_only_where_it_is_trusted(database):
    adopt(database)
    with pytest.raises(cs.errors.Incompatible, match="trust_code=True"):
        ours.connect(database)["notes"].search("red hat wool").to_list()


def test_all_else_is_lancedbs_and_sees_what_an_upgrade_committed(database):
    connection = ours.connect(database)
    table = connection.open_table("notes", trust_code=True)
    assert connection.list_tables().tables == ["notes"]
    assert "notes" in repr(table)
    assert len(table) == table.count_rows() == len(TEXTS)
    gallery = adopt(database)
    gallery.upgrade("v2")
    table.optimize()  # a plain handle that never looks for other commits is refused here
    table.add([{"key": "new", "text": "green coat small", "number": 99}])
    assert gallery.upgrade("v2").transformed == 1
    assert table.search("green coat small").where("number = 99").to_list()[0]["key"] == "new"
    with pytest.raises(AttributeError):
        table.no_such_method  # noqa: B018
    with pytest.raises(AttributeError):
        connection.no_such_method  # noqa: B018
    assert not hasattr(table.search("red"), "distance_range")


STALE = ("optimize", "add_columns", "drop_columns", "alter_columns")


@pytest.mark.parametrize("name", STALE)
def test_a_plain_handle_that_has_not_looked_is_refused_and_may_look_and_try_again(database, name):
    plain = lancedb.connect(database).open_table("notes")
    plain.count_rows()
    for number in (70, 71):
        plain.add([{"key": f"n{number}", "text": "red hat wool", "number": number}])
    act = {
        "optimize": lambda: plain.optimize(),
        "add_columns": lambda: plain.add_columns({"twice": "number * 2"}),
        "drop_columns": lambda: plain.drop_columns(["number"]),
        "alter_columns": lambda: plain.alter_columns({"path": "number", "rename": "place"}),
    }[name]
    adopt(database).upgrade("v2")
    with pytest.raises(RuntimeError, match="commit conflict"):
        act()
    plain.checkout_latest()
    act()
