"""What a verb reads is of one table version, whatever others do meanwhile."""

from __future__ import annotations

import inspect
from unittest.mock import Mock

import numpy as np
import pytest

import compatstore.gallery.items
import compatstore.ingest.write
from compatstore.gallery import Maintenance
from compatstore.gallery.versions import Artifacts
from compatstore.storage.store import Store
from galleries import items, make

READS = {
    "get": lambda gallery, ids: gallery.get(ids),
    "vectors": lambda gallery, ids: gallery.vectors(ids, "v2"),
    "side_information": lambda gallery, ids: gallery.vectors(ids, "v1", side=True),
}


@pytest.mark.full
@pytest.mark.parametrize("read", READS)
def test_columns_that_are_dropped_during_a_read_are_read(tmp_path, monkeypatch, read):
    """An upgrade is aborted when a read has looked which columns there are, and before the read has read them."""
    path = str(tmp_path / "gallery.lance")
    gallery = make(path, fragments=3, rows=200)
    gallery.upgrade("v2")
    ids = gallery.scan([gallery.columns.id], native=["v1"]).to_arrow()[gallery.columns.id].to_pylist()[:5]
    before, real = READS[read](gallery, ids), compatstore.gallery.items.read_ids

    def abort_first(*arguments):
        monkeypatch.undo()
        compatstore.Gallery.open(path).abort("v2")
        return real(*arguments)

    monkeypatch.setattr(compatstore.gallery.items, "read_ids", abort_first)
    np.testing.assert_equal(list(before), list(READS[read](gallery, ids)))
    assert "v2" not in gallery.get(ids).schema.names


WRITES = {
    "add": lambda gallery, given: gallery.add(given, upsert=True),
    "update": lambda gallery, given: gallery.update({"id": given["id"], "note": ["new"] * len(given["id"])}),
}


@pytest.mark.full
@pytest.mark.parametrize("late", [False, True], ids=["before its reads", "after its reads"])
@pytest.mark.parametrize("write", WRITES)
def test_columns_that_are_dropped_during_a_write_do_not_stop_it(tmp_path, monkeypatch, write, late):
    """A stopped abort goes on when a write knows which columns it keeps, before or after it has read them."""
    path = str(tmp_path / "gallery.lance")
    gallery = make(path, fragments=3, rows=200)
    gallery.add({**items(400, 5), "note": ["old"] * 5}, upsert=True)
    gallery.upgrade("v2")
    with monkeypatch.context() as stopped:
        stopped.setattr(Store, "drop_columns", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            gallery.abort("v2")
    real, aborted = compatstore.ingest.write.find, []

    def abort_beside(store, id_column, ids, columns, *snapshot):
        asked = not aborted and "v2" in columns
        if asked:
            aborted.append(columns)
        found = real(store, id_column, ids, columns, *snapshot) if late else None
        if asked:
            compatstore.Gallery.open(path).abort("v2")
        return found if late else real(store, id_column, ids, columns, *snapshot)

    monkeypatch.setattr(compatstore.ingest.write, "find", abort_beside)
    given = items(400, 5)
    WRITES[write](gallery, given)
    assert aborted, "the write keeps columns of the target"
    found = gallery.get(given["id"])
    assert "v2" not in found.schema.names
    assert found.column("note").to_pylist() == (["new"] if write == "update" else ["old"]) * 5
    assert gallery.maintenance.verify().clean


PLACES = {
    "Gallery": compatstore.Gallery,
    "Gallery.artifacts": Artifacts,
    "Gallery.maintenance": Maintenance,
}


def test_every_verb_is_checked_whatever_file_it_stands_in():
    found = 0
    for path, owner in PLACES.items():
        for name, member in inspect.getmembers_static(owner):
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if (name.startswith("_") and name not in ("__len__", "__repr__")) or name in (
                "aio",
                "artifacts",
                "maintenance",
            ):
                continue
            if name in ("__len__", "__repr__") and owner is not compatstore.Gallery:
                continue
            found += 1
            assert function.__qualname__ == f"{path}.{name}"
            assert hasattr(function, "__wrapped__"), f"{name} is in a class without @verbs"
    assert found > 35


def test_the_surface_stays_small():
    public = [name for name in dir(compatstore.Gallery) if not name.startswith("_")]
    assert len(public) <= 31, public


@pytest.mark.parametrize("name", ["plan", "fuse", "link", "verify", "search_async", "derive_async", "native_ids"])
def test_a_former_name_says_what_took_its_place(gallery, name):
    with pytest.raises(AttributeError, match=r"use |call gallery\.aio"):
        getattr(gallery, name)


def test_no_two_files_have_a_verb_of_one_name():
    parts = [part for part in compatstore.Gallery.__mro__ if part.__name__.endswith("Verbs")]
    names = [name for part in parts for name in vars(part) if not name.startswith("__")]
    assert len(parts) == 7
    assert len(names) == len(set(names))
