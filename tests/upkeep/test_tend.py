"""A gallery of our own stays small and fast by itself; an app's table and work under way are left alone."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import compatstore as cs
from compatstore.errors import StorageError
from compatstore.storage import compaction
from compatstore.storage.compaction import FEWEST, Group, Piece
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.records import Spent
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upkeep import optimize as upkeep
from lazily import Lazy

lancedb = Lazy("lancedb")

SINGLE = 120


def count(path, folder=""):
    return sum(1 for file in Path(path, folder).rglob("*") if file.is_file())


def keep_few(monkeypatch):
    monkeypatch.setattr(compaction, "KEPT", 16)
    monkeypatch.setattr(compaction, "MOST", 32)


@pytest.fixture
def single(tmp_path, vectors, monkeypatch):
    """A gallery to which items came one by one, and their vectors; it keeps few versions."""
    keep_few(monkeypatch)
    path, given = tmp_path / "single.lance", vectors(SINGLE)
    gallery = cs.Gallery.create(str(path), cs.EmbeddingVersion("v1", dim=4, metric="l2"))
    for n, vector in enumerate(given):
        gallery.add({"id": [str(n)], "vector": vector[None]})
    return path, gallery, given


@pytest.mark.full
def test_items_that_come_one_by_one_are_in_few_fragments_and_files(single):
    path, gallery, given = single
    assert len(lance.dataset(str(path)).get_fragments()) < FEWEST
    assert count(path, "_versions") <= compaction.MOST + upkeep.LOOK_EVERY
    assert count(path) <= 4 * (compaction.MOST + upkeep.LOOK_EVERY)
    assert len(gallery) == SINGLE
    found = [gallery.search(vector, k=1)["id"][0].as_py() for vector in given[::50]]
    assert found == [str(n) for n in range(0, SINGLE, 50)]
    assert gallery.maintenance.verify().clean
    assert "compatstore-v1" in lance.dataset(str(path)).tags.list()


@pytest.mark.full
def test_commits_that_add_no_fragment_are_cleaned_up_after_too(gallery, tmp_path, monkeypatch):
    keep_few(monkeypatch)
    path = tmp_path / "gallery.lance"
    for n in range(45):
        gallery.register(cs.EmbeddingVersion(f"w{n}", dim=4))
    assert count(path, "_versions") > 45, "registering is no write of items"
    rows = gallery.vectors(["b"])
    for _ in range(upkeep.LOOK_EVERY):
        gallery.add({"id": ["b"], "vector": rows}, upsert=True)
    assert count(path, "_versions") <= 32 + upkeep.LOOK_EVERY


def test_an_apps_table_is_left_alone(tmp_path, vectors):
    database = lancedb.connect(tmp_path)
    table = database.create_table("photos", [{"key": "p0", "vector": vectors(1)[0]}])
    gallery = cs.Gallery.adopt(table, cs.EmbeddingVersion("v1", dim=4), vector="vector", id="key")
    for n in range(1, 12):
        gallery.add({"id": [f"p{n}"], "vector": vectors(1, seed=n)})
    assert len(lance.dataset(str(tmp_path / "photos.lance")).get_fragments()) == 12


@pytest.mark.full
def test_nothing_is_merged_while_somebody_works(gallery, tmp_path, vectors):
    path = str(tmp_path / "gallery.lance")
    with hold_lease(gallery._catalog, "v2", "upgrade"):
        for n in range(2 * FEWEST):
            gallery.add({"id": [f"m{n}"], "vector": vectors(1, seed=n)})
        assert len(lance.dataset(path).get_fragments()) == 1 + 2 * FEWEST
    gallery.delete(["a"])
    assert len(lance.dataset(path).get_fragments()) == 1


def test_a_lease_that_cannot_be_read_stops_the_upkeep_and_not_the_add(gallery, tmp_path, vectors):
    table = LeaseTable(gallery._catalog.store.location)
    assert table.swap(0, "lease.v2", Spent())
    for n in range(FEWEST):
        gallery.add({"id": [f"m{n}"], "vector": vectors(1, seed=n)})
    assert len(lance.dataset(str(tmp_path / "gallery.lance")).get_fragments()) == 1 + FEWEST


def test_a_full_disk_fails_no_add_by_what_follows_it(gallery, tmp_path, vectors, monkeypatch):
    def full(*_):
        raise StorageError("merge", expected="room", found="none")

    monkeypatch.setattr(upkeep, "merge", full)
    for n in range(FEWEST):
        assert gallery.add({"id": [f"m{n}"], "vector": vectors(1, seed=n)}).rows == 1
    assert len(lance.dataset(str(tmp_path / "gallery.lance")).get_fragments()) == 1 + FEWEST


@pytest.mark.parametrize(("rows", "small", "merged"), [(1_000_000, 40, 0), (1_000_000, 60, 60), (50_000, 4, 4)])
def test_small_fragments_are_left_while_they_hardly_slow_a_search_down(rows, small, merged):
    large = Group((Piece(0, rows),), indexed_rows=rows)
    little = Group(tuple(Piece(number, 1_000) for number in range(1, small + 1)), indexed_rows=0)
    assert sum(map(len, upkeep._worth_merging([large, little]))) == merged
