from __future__ import annotations

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


@pytest.mark.parametrize("kind", ["IVF_PQ", "IVF_HNSW_SQ", "IVF_FLAT"])
def test_the_target_is_indexed_as_the_source_was_and_again_at_cutover(path, kind, tmp_path):
    import shutil

    copy = str(tmp_path / "copy.lance")
    shutil.copytree(path, copy)
    gallery = cs.Gallery.open(copy)
    built = gallery.create_index(kind=kind, num_partitions=3)
    store = Store.open(locate(copy))
    assert indexes.describe(store, "v1") == built
    gallery.upgrade("v2")
    mirrored = indexes.describe(store, "v2")
    assert (mirrored.kind, mirrored.num_partitions, mirrored.metric) == (kind, 3, TARGET.metric)
    gallery.add({"id": ["late"], "vector": np.ones((1, 24), np.float32), "side": np.ones((1, 8), np.float32)})
    assert indexes.unindexed_rows(store, "v2") == 1
    gallery.cutover("v2")
    assert indexes.unindexed_rows(store, "v2") == 0
    query = gallery.vectors(["late"])[0]
    assert "late" in gallery.search(query, k=3)["id"].to_pylist()


def test_too_few_rows_and_an_unknown_kind_are_refused(tmp_path):
    gallery = cs.Gallery.create(str(tmp_path / "small.lance"), cs.EmbeddingVersion("v1", dim=4))
    gallery.add({"id": ["a"], "vector": np.ones((1, 4), np.float32)})
    with pytest.raises(cs.errors.InvalidInput, match="at least 256"):
        gallery.create_index()
    with pytest.raises(cs.errors.InvalidInput, match="IVF_PQ"):
        gallery.create_index(kind="LSH")
