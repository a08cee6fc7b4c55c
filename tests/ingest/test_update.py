"""Metadata of items changes alone: vectors of all versions, their origins and the sources stay."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import compatstore as cs
from compatstore.errors import InvalidInput, NotFound


@pytest.fixture
def halfway(upgradable):
    """Both versions have vectors, those of v2 are transformed ones."""
    upgradable.upgrade("v2")
    return upgradable


def test_metadata_changes_and_nothing_else(halfway):
    columns = ["id", "source", "v1", "v2", "v2__origin", "v2__input_hash"]
    before = halfway.get(list("abcdefghij"), columns).to_pylist()
    assert halfway.update({"id": ["b", "a"], "number": [20, 10], "label": ["y", "x"]}) == 2
    assert halfway.get(list("abcdefghij"), columns).to_pylist() == before
    assert halfway.get(["a", "b", "c"], ["number", "label"]).to_pylist() == [
        {"number": 10, "label": "x"},
        {"number": 20, "label": "y"},
        {"number": 2, "label": None},
    ]
    assert halfway.cutover("v2").missing == 0
    assert halfway.maintenance.verify().clean


@pytest.mark.parametrize("extra", [{"vector": [[0.0] * 4]}, {"v2": [[0.0] * 6]}, {"source": ["x"]}])
def test_vectors_and_sources_are_refused(halfway, extra):
    with pytest.raises(InvalidInput, match="ids and metadata"):
        halfway.update({"id": ["a"], "number": [7], **extra})
    assert halfway.get(["a"], ["number"])["number"].to_pylist() == [0]


def test_wrong_ids(gallery):
    with pytest.raises(NotFound, match="lost"):
        gallery.update({"id": ["a", "lost"], "number": [7, 7], "new": [1, 2]})
    with pytest.raises(InvalidInput, match="repeated ids"):
        gallery.update({"id": ["a", "a"], "number": [7, 7]})
    assert gallery.update({"id": [], "number": []}) == 0
    assert gallery.columns.metadata.names == ["number"]
    assert gallery.get(["a"], ["number"])["number"].to_pylist() == [0]


def test_an_item_without_a_vector_keeps_none(gallery):
    gallery.add({"id": ["x"]}, unembedded="keep")
    gallery.update({"id": ["x"], "number": [5]})
    assert np.isnan(gallery.vectors(["x"])).all()


def test_two_writers_both_succeed(gallery):
    other = cs.Gallery.open(gallery._catalog.store.location.uri)
    writers = [
        threading.Thread(target=lambda g=g, i=i: [g.update({"id": [i], "number": [n]}) for n in range(5)])
        for g, i in ((gallery, "a"), (other, "b"))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert gallery.get(["a", "b"], ["number"])["number"].to_pylist() == [4, 4]
