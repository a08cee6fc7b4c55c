"""A table that was removed and made again, with as many versions, under an open handle."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import compatstore as cs


def made(path, ids, seed):
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=4, metric="l2"))
    gallery.add({"id": ids, "vector": np.random.default_rng(seed).normal(size=(len(ids), 4)).astype(np.float32)})
    return gallery


@pytest.mark.parametrize("waits", [False, True])
def test_every_handle_answers_with_what_is_there_now(tmp_path, waits, monkeypatch):
    path = str(tmp_path / "g.lance")
    gallery = made(path, ["a", "b", "c"], seed=0)
    if waits:  # the handle has looked long after the last commit, and relies on the folder's time
        monkeypatch.setattr("compatstore.storage.store.RECENT_NS", 0)
    cache = gallery.cache("v1")
    assert cache.search(np.zeros(4, np.float32), k=9).num_rows == len(gallery.scan()) == 3
    version = gallery.status().table_version
    shutil.rmtree(path)
    made(path, ["d", "e"], seed=1)
    assert len(gallery.scan()) == 2
    assert gallery.status().rows == 2
    assert gallery.status().table_version == version
    found = [gallery.search(np.zeros(4, np.float32), k=9), cache.search(np.zeros(4, np.float32), k=9)]
    assert [sorted(table["id"].to_pylist()) for table in found] == [["d", "e"]] * 2
    assert gallery.add({"id": ["f"], "vector": np.ones((1, 4), np.float32)}).rows == 1
    assert len(gallery.scan()) == 3
