"""What newcomers type: databases for tables, names nearly right, percentages, vectors as numbers, names of models."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput, NotFound
from lazily import Lazy

lancedb = Lazy("lancedb")


@pytest.fixture
def database(tmp_path, monkeypatch):
    """A database app-db with the table notes, adopted, in the current folder."""
    monkeypatch.chdir(tmp_path)
    vectors = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    texts = {
        "key": [f"{n}" for n in range(30)],
        "kind": ["a", "b", "c"] * 10,
    }
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 4)
    lancedb.connect("app-db").create_table("notes", pa.table({**texts, "views": range(30), "embedding": column}))
    return cs.Gallery.adopt("app-db#notes", cs.EmbeddingVersion("v1", dim=4), vector="embedding", id="key")


@pytest.mark.parametrize("typed", ["app-db", "app-db/", "app-db/notes", "app-db#note", "app-db/notes.lanc"])
def test_a_database_and_a_path_name_the_table(database, run, typed):
    said = run("status", typed)
    assert said.code == 3
    assert ("app-db#notes" in said.err) == (typed != "app-db/notes.lanc")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["evaluate", "app-db#notes", "vv1"], "'v1'"),
        (["retire", "app-db#notes", "V1"], "'v1'"),
        (["search", "app-db#notes", "--vector", "1,0,0,0", "--columns", "kinds"], "'kind'"),
        (["search", "app-db#notes", "--vector", "1,0,0,0", "--where", "kinnd = 'a'"], "'kind'"),
        (["upgrade", "app-db#notes", "v2", "--encoder", "open-clip:x"], "'open_clip'"),
        (["adopt", "app-db#notes", "--vector", "embeding"], None),
    ],
)
def test_a_name_that_is_nearly_right_is_named(database, run, words, meant):
    said = run(*words)
    assert said.code != 0
    if meant:
        assert f"Did you mean {meant}" in said.err


@pytest.mark.parametrize("typed", ["1,0,0,0", "[1, 0, 0, 0]", "[1.0,0e0,-0.0,+0]", "1, 0, 0, 0"])
def test_a_vector_may_be_typed(database, run, typed):
    found = run("search", "app-db#notes", "--vector", typed, "-k", "3", "--json").json
    assert [row["key"] for row in found] == database.search([1.0, 0, 0, 0], k=3)["key"].to_pylist()


@pytest.mark.parametrize("typed", ["1,,2", "[1", "1,0", "--", "1,0,0,x.npz"])
def test_what_is_no_vector_is_refused(database, run, typed):
    assert run("search", "app-db#notes", "--vector", typed).code in (2, 3)


def test_a_share_may_be_a_percentage(database, run):
    vectors = {f"{n}": [float(n), 1.0, 2.0] for n in range(30)}
    np.savez("v2.npz", id=np.array(list(vectors)), vector=np.array(list(vectors.values()), np.float32))
    words = ["upgrade", "app-db#notes", "v2", "--encoder", "precomputed:v2.npz", "--set", "learn=none", "--json"]
    assert run(*words, "--backfill", "x%").code == 2
    assert run(*words, "--backfill", "120%").code == 2
    assert run(*words, "--backfill", "100%").json["backfilled"] == 30
    planned = run("upgrade", "app-db#notes", "v2", "--backfill", " 20 %", "--json", "--dry-run").json
    assert planned["backfill"] == 0.2


def test_labels_are_offered_among_columns_that_can_be_labels(database, run):
    database.register(
        cs.EmbeddingVersion("v2", dim=4, encoder=cs.encoders.Precomputed({f"{n}": [1.0] * 4 for n in range(30)}))
    )
    with pytest.raises(InvalidInput) as error:
        database.evaluate("v2", labels="kinds")
    assert "kind" in error.value.expected
    assert "embedding" not in error.value.expected
    assert "Did you mean 'kind'" in error.value.fix


def test_a_model_is_found_in_the_local_cache_by_its_name(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    from compatstore.encoders.model_files import require_folder

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(NotFound, match=r"hf download sentence-transformers/all-Mini"):
        require_folder("sentence-transformers", "all-Mini")
    place = tmp_path / "cache" / "models--sentence-transformers--all-Mini"
    (place / "snapshots" / ("0" * 40)).mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("0" * 40)
    (place / "snapshots" / ("0" * 40) / "config.json").write_text("{}")
    assert (require_folder("sentence-transformers", "all-Mini") / "config.json").exists()
    with pytest.raises(NotFound, match=r"expected a folder"):
        require_folder("transformers", "../nothing here")


@pytest.mark.parametrize(
    ("where", "refused"),
    [
        ("\"kind\" = 'a'", True),
        ("'kind' = 'a'", True),
        ("\"kind\" in ('a', 'b')", True),
        ("\"kind\" LIKE 'a%'", True),
        ('"views" > 3', True),
        ("views > 3 AND \"kind\" != 'a'", True),
        ('"kind" IS NOT NULL', True),
        ("kind = 'a'", False),
        ("`kind` = 'a'", False),
        ('kind = "a"', False),
        ("'a' = kind", False),
        ("kind IN ('a', 'b') AND views BETWEEN 1 AND 5", False),
        ("CAST('5' AS BIGINT) = views", False),
        ("strpos(kind, 'a') > 0 OR NOT (kind = 'b')", False),
        ("kind NOT IN ('a') AND kind NOT LIKE 'b%'", False),
    ],
)
def test_a_condition_that_compares_two_texts_is_refused(database, where, refused):
    if refused:
        with pytest.raises(InvalidInput, match="backticks"):
            database.search([1.0, 0, 0, 0], where=where)
    else:
        database.search([1.0, 0, 0, 0], where=where)
