"""What a verb reads is of one table version, whatever others do meanwhile."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import compatstore.gallery.items
from galleries import make

READS = {
    "get": lambda gallery, ids: gallery.get(ids),
    "vectors": lambda gallery, ids: gallery.vectors(ids, "v2"),
    "side_information": lambda gallery, ids: gallery.side_information(ids, "v1"),
}


@pytest.mark.parametrize("read", READS)
def test_columns_that_are_dropped_during_a_read_are_read(tmp_path, monkeypatch, read):
    """An upgrade is aborted when a read has looked which columns there are, and before the read has read them."""
    path = str(tmp_path / "gallery.lance")
    gallery = make(path)
    gallery.upgrade("v2")
    ids = gallery.native_ids("v1")[:5]
    before, real = READS[read](gallery, ids), compatstore.gallery.items.read_ids

    def abort_first(*arguments):
        monkeypatch.undo()
        compatstore.Gallery.open(path).abort("v2")
        return real(*arguments)

    monkeypatch.setattr(compatstore.gallery.items, "read_ids", abort_first)
    np.testing.assert_equal(list(before), list(READS[read](gallery, ids)))
    assert "v2" not in gallery.get(ids).schema.names


def test_every_verb_is_checked_whatever_file_it_stands_in():
    found = 0
    for name, member in inspect.getmembers_static(compatstore.Gallery):
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if name.startswith("_") and name not in ("__init__", "__len__", "__repr__"):
            continue
        found += 1
        assert function.__qualname__ == f"Gallery.{name}"
        assert hasattr(function, "__wrapped__"), f"{name} is in a class without @verbs"
    assert found > 80


def test_no_two_files_have_a_verb_of_one_name():
    parts = compatstore.Gallery.__bases__
    names = [name for part in parts for name in vars(part) if not name.startswith("__")]
    assert len(parts) == 7
    assert len(names) == len(set(names))
