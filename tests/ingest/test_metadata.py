"""The user's own columns: their names, that they come with their first rows or not at all, and how they go."""

from __future__ import annotations

import threading

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput, NotFound
from compatstore.storage.store import Store
from tiers import few

VECTORS = np.ones((2, 4), np.float32)
IDS = ["x", "y"]

# Tried in merges, filters, searches, deletes and compactions, with pylance and with lancedb.
HANDLED = [
    *(
        '"',
        "a'b",
        "a b",
        " ",
        "é",
        "e\u0301",
        "🖼",
        "\u200b",
        "a\\b",
        "a/b",
        "a;b",
        "a--b",
        "a(b",
        "a)b",
        "[x]",
        "%",
        "$a",
    ),
    *(
        "SELECT",
        "null",
        "true",
        "1",
        "Number",
        "ID",
        "SOURCE",
        "V1",
        "v1_",
        "count",
        "id ",
        "x" * 300,
        "a=b",
        "ray__id",
    ),
]
REFUSED = [
    *("a`b", "`", "``", "", "*", "a.b", ".", "id.x", "a\0b", "\0", "a\nb", "\x1b[31m", "\x85", "\ud800", "_x", "__x"),
    *("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version", "_distance"),
    *(
        "_score",
        "_relevance_score",
        "_version",
        "_origin",
        "_query",
        "v1__origin",
        "v1__input_hash",
        "v1__x",
        "v2",
        "v2__side",
    ),
]


def everything(gallery, name):
    """Add, upsert, filter, search, read and count with a column."""
    gallery.add({"id": IDS, "vector": VECTORS, name: [1, 2]})
    gallery.add({"id": ["y", "z"], "vector": VECTORS, name: [3, 4]}, upsert=True)
    gallery.add({"id": ["w"], "vector": VECTORS[:1]}, upsert=True)
    assert gallery.get(["x", "y", "z", "w"], [name])[name].to_pylist() == [1, 3, 4, None]
    found = gallery.search(VECTORS[0], 20, where=f"`{name}` > 1", columns=["id", name])
    assert dict(zip(found["id"].to_pylist(), found[name].to_pylist(), strict=True)) == {"y": 3, "z": 4}
    assert gallery.search(VECTORS[0], 20)[name].null_count == 11
    assert gallery.delete(["x", "y", "z", "w"]) == 4


@pytest.mark.parametrize("name", few(8, HANDLED), ids=ascii)
def test_a_name_that_is_taken_can_be_used_for_everything(gallery, name):
    everything(gallery, name)
    assert gallery.maintenance.verify().clean
    assert gallery.maintenance.drop_columns([name]) == ["number"]
    everything(gallery, name)


@pytest.mark.parametrize("name", REFUSED, ids=ascii)
def test_a_name_that_cannot_be_used_is_refused_before_anything_is_written(upgradable, tmp_path, files, name):
    before = files(tmp_path)
    with pytest.raises(InvalidInput, match="name"):
        upgradable.add({"id": IDS, "vector": VECTORS, name: [1, 2]})
    assert files(tmp_path) == before
    assert upgradable.add({"id": IDS, "vector": VECTORS}).rows == 2


UNKEPT = {
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([2], [5]),
    "lists of text of one length": pa.array([["a", "b"]] * 2, pa.list_(pa.string(), 2)),
    "lists of no values": pa.array([[], []], pa.list_(pa.int64(), 0)),
    "intervals": pa.array([(1, 2, 3)] * 2, pa.month_day_nano_interval()),
    "empty structs": pa.array([{}, {}]),
}


@pytest.mark.parametrize("values", UNKEPT.values(), ids=UNKEPT)
def test_values_that_lance_cannot_keep_are_refused_before_anything_is_written(gallery, tmp_path, files, values):
    before = files(tmp_path)
    with pytest.raises(InvalidInput, match=r"types that Lance can keep; found column 'odd' of type"):
        gallery.add({"id": IDS, "vector": VECTORS, "odd": values})
    assert files(tmp_path) == before


class Stop(Exception):  # noqa: N818
    pass


def fail(store, monkeypatch, first=lambda: None):
    """Let the commits of items through one handle fail; `first` runs before each."""
    real = Store.retry

    def retry(self, asked, commit):
        if self is not store or not asked.startswith("add 2 items"):
            return real(self, asked, commit)
        first()
        raise Stop

    monkeypatch.setattr(Store, "retry", retry)


@pytest.mark.parametrize("upsert", [False, True])
def test_an_add_that_fails_leaves_schema_and_rows_as_they_were(gallery, monkeypatch, upsert):
    before, rows = gallery._catalog.store.schema, len(gallery)
    item = {"id": IDS, "vector": VECTORS, "colour": ["red", "blue"], "size": [1, 2]}
    with monkeypatch.context() as patched:
        fail(gallery._catalog.store, patched)
        with pytest.raises(Stop):
            gallery.add(item, upsert=upsert)
    assert gallery._catalog.store.schema == before
    assert len(gallery) == rows
    assert gallery.add(item | {"size": ["S", "M"]}, upsert=upsert).rows == 2
    assert gallery.maintenance.verify().clean


def test_a_column_that_others_filled_meanwhile_stays(gallery, monkeypatch):
    others = cs.Gallery.open(gallery._catalog.store.location)
    green = {"id": ["z"], "vector": VECTORS[:1], "colour": ["green"]}
    fail(gallery._catalog.store, monkeypatch, lambda: others.add(green))
    with pytest.raises(Stop):
        gallery.add({"id": IDS, "vector": VECTORS, "colour": ["red", "blue"], "size": [1, 2]})
    assert others.get(["z"], ["colour"])["colour"].to_pylist() == ["green"]
    assert "size" not in gallery._catalog.store.schema.names


def test_ids_that_are_known_already_bring_no_column(gallery, tmp_path, files):
    before = files(tmp_path)
    with pytest.raises(cs.errors.InvalidInput, match="already in the gallery"):
        gallery.add({"id": ["new", "a"], "vector": VECTORS, "colour": ["red", "blue"]})
    assert files(tmp_path) == before


def test_many_add_one_new_column_at_once(gallery):
    def add(number):
        gallery.add({"id": [f"n{number}"], "vector": VECTORS[:1], "colour": [str(number)]})

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [f"n{number}" for number in range(6)]
    assert gallery.get(ids, ["colour"])["colour"].to_pylist() == list("012345")


def test_dropped_columns_are_gone_and_can_come_again(gallery):
    gallery.add({"id": IDS, "vector": VECTORS, "colour": ["red", "blue"]})
    assert gallery.maintenance.drop_columns(["number"]) == ["colour"]
    assert gallery._catalog.store.schema.names[:3] == ["id", "source", "v1"]
    assert "number" not in gallery.search(VECTORS[0]).column_names
    assert gallery.maintenance.history()[-1].step == "drop columns"
    assert gallery.maintenance.history()[-1].note == "'number'"
    gallery.add({"id": ["z"], "vector": VECTORS[:1], "number": ["now a text"]})
    assert gallery.get(["a", "z"], ["number"])["number"].to_pylist() == [None, "now a text"]
    assert gallery.maintenance.drop_columns([]) == ["colour", "number"]
    assert gallery.maintenance.drop_columns(("colour", "number")) == []
    assert gallery.maintenance.verify().clean


@pytest.mark.parametrize(
    "names", [["id"], ["source"], ["v1"], ["v1__origin"], ["number", "v2__input_hash"], ["nothing"]]
)
def test_what_is_no_metadata_is_not_dropped(upgradable, tmp_path, files, names):
    upgradable.upgrade("v2")
    before = files(tmp_path)
    with pytest.raises(InvalidInput, match=r"metadata columns \(number\); found"):
        upgradable.maintenance.drop_columns(names)
    assert files(tmp_path) == before


def test_a_column_that_orders_a_backfill_is_not_dropped(upgradable):
    upgradable.upgrade("v2", backfill=cs.Backfill(order="column:number"))
    with pytest.raises(InvalidInput, match="orders the backfill of the upgrade to v2"):
        upgradable.maintenance.drop_columns(["number"])
    upgradable.abort("v2")
    assert upgradable.maintenance.drop_columns(["number"]) == []


def plain(folder, **columns):
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), 4)
    lance.write_dataset(pa.table({"key": IDS, "embedding": vectors} | columns), folder / "plain.lance")
    return str(folder / "plain.lance")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a`b", "Lance reads '`'"),
        ("", "does not read"),
        ("*", "does not read"),
        ("_distance", "results have a column of that name.*alter_columns"),
        ("_origin", "results have"),
        ("v1", "version v1's.*another name for the version"),
        ("v1__origin", "version v1's"),
    ],
)
def test_a_table_with_a_name_that_cannot_be_used_is_not_adopted(tmp_path, files, name, message):
    path = plain(tmp_path, **{name: [1, 2]})
    before = files(tmp_path)
    with pytest.raises(InvalidInput, match=message):
        cs.Gallery.adopt(path, cs.EmbeddingVersion("v1", dim=4), vector="embedding", id="key")
    assert files(tmp_path) == before


def test_an_apps_columns_are_the_apps(tmp_path):
    path = plain(tmp_path, _score=[0.5, 1.0], Key=[1, 2])
    adopted = cs.Gallery.adopt(path, cs.EmbeddingVersion("v1", dim=4), vector="embedding", id="key")
    assert adopted.search(VECTORS[0], columns=["key", "_score", "Key"]).num_rows == 2
    with pytest.raises(InvalidInput, match=r"an adopted table.*table.drop_columns"):
        adopted.maintenance.drop_columns(["Key"])
    with pytest.raises(NotFound, match="no item"):
        adopted.get(["z"])
