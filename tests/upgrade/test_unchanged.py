"""Upgrade, plan and cutover read what changed and nothing else: the files of what did not change may be gone."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import lance
import lancedb
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.storage.arrow_values import to_vectors

IDS = [f"m{n}" for n in range(300)]


@pytest.fixture
def upgraded(upgradable, tmp_path, vectors):
    """A gallery of two fragments that was upgraded, and its path; both fragments were looked at."""
    upgradable.add({"id": IDS, "vector": vectors(300)})
    upgradable.upgrade("v2")
    return upgradable, tmp_path / "gallery.lance"


@contextmanager
def without_data_files(path, but=0):
    """Whoever reads a fragment that is there now fails, but for the youngest."""
    files = sorted((path / "data").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    files = files[: len(files) - but]
    for file in files:
        file.rename(path / file.name)
    try:
        yield
    finally:
        for file in files:
            (path / file.name).rename(file)


def test_nothing_is_read_when_nothing_changed(upgraded):
    gallery, path = upgraded
    version = lance.dataset(str(path)).version
    with without_data_files(path):
        again = cs.Gallery.open(str(path))
        assert again.upgrade("v2").transformed == 0
        assert [step.name for step in again.plan("v2").steps] == ["cutover"]
        assert again.check_cutover("v2") == 0
        assert lance.dataset(str(path)).version == version
        assert again.cutover("v2").missing == 0
        assert again.upgrade("v2").missing == 0
    assert gallery.verify().clean


def test_only_what_came_is_read(upgraded, vectors):
    gallery, path = upgraded
    lance.dataset(str(path)).delete("id = 'm7'")
    with without_data_files(path):
        _append(path, vectors(1))
    assert gallery.plan("v2").steps[0].rows == 1, "a plan reads some rows to see how long they take"
    with without_data_files(path, but=1):
        assert gallery.upgrade("v2").transformed == 1
        assert gallery.cutover("v2").missing == 0
    assert gallery.vectors(["new"]).shape == (1, 6)
    assert gallery.verify().clean


def _append(path, given):
    """An item called "new", as a plain app writes it."""
    columns = {"id": pa.array(["new"]), "v1": to_vectors(given, 4, "float32"), "v1__origin": pa.array(["native"])}
    table = lance.dataset(str(path))
    fields = [table.schema.field(name) for name in columns]
    lance.write_dataset(pa.table(list(columns.values()), pa.schema(fields)), str(path), mode="append")


def test_a_changed_item_is_found_behind_our_back(tmp_path, linear, vectors):
    source, given = cs.EmbeddingVersion("v1", dim=4, metric="l2"), vectors(50)
    rows = pa.table({"key": [str(n) for n in range(50)], "vec": to_vectors(given, 4, "float32")})
    table = lancedb.connect(tmp_path).create_table("t", rows)
    gallery = cs.Gallery.adopt(table, source, vector="vec", id="key")
    gallery.register(cs.EmbeddingVersion("v2", dim=6, metric="l2"))
    gallery.link(linear())
    gallery.upgrade("v2")
    before = gallery.vectors(["7"], "v2")
    table.update(where="key = '7'", values={"vec": (given[7] + 1).tolist()})
    assert gallery.plan("v2").steps[0].rows == 1
    assert gallery.upgrade("v2").transformed == 1
    assert not np.allclose(gallery.vectors(["7"], "v2"), before)
    assert gallery.verify().clean


def test_another_transform_is_looked_for_again(upgraded, linear):
    gallery, path = upgraded
    gallery.retire("v2")
    assert not (path / "_compatstore" / "counts-v2.json").exists()
    other = gallery.link(linear(seed=5))
    assert gallery.upgrade("v2", via=other).transformed == 310
    assert gallery.upgrade("v2").transformed == 0
    assert Path(path / "_compatstore" / "counts-v2.json").exists()


def test_after_an_abort_everything_is_looked_at(upgraded):
    gallery, _ = upgraded
    gallery.abort("v2")
    assert gallery.upgrade("v2").transformed == 310
    assert gallery.cutover("v2").missing == 0


def test_a_share_that_is_reached_is_not_looked_for_again(upgradable, tmp_path, vectors):
    path = tmp_path / "gallery.lance"
    upgradable.add({"id": IDS, "vector": vectors(300)})
    natives = dict(zip([*"abcdefghij", *IDS], np.ones((310, 6), np.float32), strict=True))
    encoder = cs.encoders.Precomputed(natives)
    upgradable.register(cs.EmbeddingVersion("v3", dim=6, metric="l2", encoder=encoder))
    upgradable.upgrade("v3", backfill=1.0)
    upgradable.upgrade("v3")
    with without_data_files(path):
        again = cs.Gallery.open(str(path), encoders={"v3": encoder})
        assert again.upgrade("v3").backfilled == 0
        assert [step.name for step in again.plan("v3").steps] == ["cutover"]
