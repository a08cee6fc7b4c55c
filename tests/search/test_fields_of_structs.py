"""Fields of structs are columns of a result, as LanceDB has them: "meta.lang"."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import compatstore as cs
from compatstore.cli.app import app
from compatstore.errors import InvalidInput
from lazily import Lazy

lancedb = Lazy("lancedb")

ROWS = [
    {"id": name, "vector": [1.0, float(n)], "meta": {"lang": lang, "Of x": {"n": n}}}
    for n, (name, lang) in enumerate({"a": "de", "b": None, "c": "en"}.items())
]
FIELDS = ["meta.lang", "id", "meta.Of x.n"]
EXPECTED = [{"meta.lang": row["meta"]["lang"], "id": row["id"], "meta.Of x.n": n} for n, row in enumerate(ROWS)]


@pytest.fixture
def table(tmp_path):
    return lancedb.connect(tmp_path).create_table("t", ROWS)


@pytest.fixture
def gallery(table):
    return cs.Gallery.adopt(table, cs.EmbeddingVersion("v1", dim=2, metric="l2"), vector="vector", id="id")


def own(found):
    return found.select(FIELDS).to_pylist()


def test_searches_give_what_lancedb_gives(table, gallery):
    theirs = table.search([1.0, 0.0]).select(FIELDS).limit(3).to_arrow()
    found = gallery.search([1.0, 0.0], 3, columns=FIELDS)
    assert own(found) == own(theirs) == EXPECTED
    assert found.column_names == [*FIELDS, "_distance", "_version", "_origin"]
    both = gallery.search([1.0, 0.0], 1, columns=["meta", "meta.lang"], where="meta.lang = 'en'")
    assert both.select(["meta", "meta.lang"]).to_pylist() == [{"meta": ROWS[2]["meta"], "meta.lang": "en"}]


def test_searches_of_an_upgrade(gallery):
    new = {row["id"]: [float(n), 1.0] for n, row in enumerate(ROWS)}
    gallery.register(cs.EmbeddingVersion("v2", dim=2, metric="l2", encoder=cs.encoders.Precomputed(new)))
    gallery.upgrade("v2", backfill=0.4)  # so that a search reads both
    many = gallery.search([[1.0, 0.0], [1.0, 2.0]], 3, columns=FIELDS)
    assert own(many) == EXPECTED + EXPECTED[::-1]
    assert gallery.search([0.0, 1.0], 3, "v2", columns=FIELDS).select(FIELDS).num_rows


def test_get_scan_and_cache(gallery):
    assert gallery.get(["c", "a"], FIELDS).to_pylist() == [EXPECTED[2], EXPECTED[0]]
    assert gallery.scan(FIELDS).to_arrow().to_pylist() == EXPECTED
    cached = gallery.cache().search([1.0, 0.0], 3, columns=FIELDS)
    assert cached == gallery.search([1.0, 0.0], 3, columns=FIELDS)


@pytest.mark.parametrize("name", ["meta.land", "meta.", "met.lang", "meta.lang.x", "id.x", ".", "meta.Of x."])
def test_a_field_that_is_not_there(gallery, name):
    for read in (
        lambda: gallery.search([1.0, 0.0], columns=[name]),
        lambda: gallery.get(["a"], [name]),
        lambda: gallery.scan([name]),
    ):
        with pytest.raises(InvalidInput, match="read columns"):
            read()


def test_the_command_line(gallery, tmp_path):
    arguments = ["search", str(tmp_path / "t.lance"), "--id", "a", "--columns", ",".join(FIELDS), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert [{name: row[name] for name in FIELDS} for row in json.loads(done.stdout)] == EXPECTED
