"""An index is built as it was asked for, the target's as the source's, and kept up to date."""

from __future__ import annotations

import shutil

import lance
import numpy as np
import pytest

import compatstore as cs
from compatstore.storage import indexes
from compatstore.storage.location import locate
from compatstore.storage.store import Store
from galleries import TARGET, make


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("index") / "gallery.lance")
    make(path, fragments=2, rows=600)
    return path


@pytest.mark.full
@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_HNSW_SQ", "IVF_FLAT"])
def test_the_target_is_indexed_as_the_source_was_and_brought_up_to_date_at_cutover(path, kind, tmp_path):
    copy = str(tmp_path / "copy.lance")
    shutil.copytree(path, copy)
    gallery = cs.Gallery.open(copy)
    built = gallery.maintenance.index().create(kind=kind, num_partitions=3)
    store = Store.open(locate(copy))
    found = indexes.describe(store, "v1")
    assert (found.kind, found.metric, found.num_partitions) == (built.kind, built.metric, built.cells)
    gallery.upgrade("v2")
    mirrored = indexes.describe(store, "v2")
    assert (mirrored.kind, mirrored.num_partitions, mirrored.metric) == (kind, 3, TARGET.metric)
    gallery.add({"id": ["late"], "vector": np.ones((1, 24), np.float32), "side": np.ones((1, 8), np.float32)})
    assert gallery.maintenance.index("v2").status().unindexed_rows == 1
    gallery.cutover("v2")
    assert gallery.maintenance.index("v2").status().unindexed_rows == 0
    query = gallery.vectors(["late"])[0]
    assert "late" in gallery.search(query, k=3)["id"].to_pylist()


def test_too_few_rows_and_an_unknown_kind_are_refused(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "small.lance"), cs.EmbeddingVersion("v1", dim=4))
    with pytest.raises(cs.errors.InvalidInput, match="at least 256 vectors; found 0"):
        gallery.maintenance.index().create()
    gallery.add({"id": ["a"], "vector": np.ones((1, 4), np.float32)})
    with pytest.raises(cs.errors.InvalidInput, match="at least 256"):
        gallery.maintenance.index().create()
    with pytest.raises(cs.errors.InvalidInput, match="IVF_PQ"):
        gallery.maintenance.index().create(kind="LSH")
    with pytest.raises(cs.errors.InvalidInput, match="num_partitions from 1"):
        gallery.maintenance.index().create(num_partitions=0)


@pytest.mark.parametrize(
    ("rows", "cells", "quantised"),
    [(0, 1, 1), (256, 16, 1), (10_000, 100, 39), (10**9, 4096, 4096)],
)
def test_cells_grow_with_the_square_root_up_to_a_limit(rows, cells, quantised):
    assert indexes.cells_for(rows, quantised=False) == cells
    assert indexes.cells_for(rows, quantised=True) == quantised


def test_what_a_report_raises_is_raised(path):
    store = Store.open(locate(path))
    seen = []

    def stop(stage):
        seen.append(stage)
        raise cs.errors.Interrupted("build")

    with pytest.raises(cs.errors.Interrupted):
        indexes.build(store, "v1", indexes.VectorIndex("IVF_FLAT", "l2", 3), stop)
    assert seen == ["build"]
    assert indexes.describe(store, "v1") is None


@pytest.mark.parametrize("verb", ["status", "search", "add", "delete", "verify", "optimize"])
def test_an_index_whose_column_was_dropped_meanwhile_bricks_no_gallery(tmp_path, verb):
    """A process builds an index on a column that a rival drops, commits it, and is killed before it looks again."""
    path = tmp_path / "g.lance"
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=4, metric="l2"), metadata={"n": "int64"})
    vectors = np.random.default_rng(0).normal(size=(600, 4)).astype(np.float32)
    gallery.add({"id": [f"i{n}" for n in range(600)], "vector": vectors, "n": list(range(600))})
    lance.dataset(str(path)).add_columns({"later": gallery.columns.vectors["v1"]})
    building = lance.dataset(str(path))
    lance.dataset(str(path)).drop_columns(["later"])
    building.create_index("later", "IVF_FLAT", num_partitions=4, metric="l2", name="late_idx")
    with pytest.raises(OSError, match="did not exist in the schema"):
        lance.dataset(str(path)).count_rows("n < 5")
    calls = {
        "status": lambda opened: opened.status().rows == 600,
        "search": lambda opened: opened.search(vectors[7], k=1, where="n > 3")["id"].to_pylist() == ["i7"],
        "add": lambda opened: opened.add({"id": ["new"], "vector": vectors[:1], "n": [0]}).rows == 1,
        "delete": lambda opened: opened.delete(["i3"]) == 1,
        "verify": lambda opened: {"status()" in one.repair for one in opened.maintenance.verify().findings} == {True},
        "optimize": lambda opened: opened.maintenance.optimize().after.fragments == 1,
    }
    assert calls[verb](cs.Gallery.open(path))
    cs.Gallery.open(path).status()  # as verify, which changes nothing, advises
    assert cs.Gallery.open(path).maintenance.verify().clean
    assert len(cs.Gallery.open(path)) == 600 + {"add": 1, "delete": -1}.get(verb, 0)
