"""Upgrade, plan and cutover read what changed and nothing else: the files of what did not change may be gone."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import compatstore as cs
from compatstore.storage.vector_form import to_vectors
from compatstore.upgrade.backfilling.policy_inputs import TableRows
from compatstore.upgrade.requests.run_settings import RunSettings
from lazily import Lazy

pytestmark = pytest.mark.full

lancedb = Lazy("lancedb")

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
        assert [step.name for step in again.upgrade("v2", dry_run=True).steps] == ["cutover"]
        assert again.cutover("v2", dry_run=True).missing == 0
        assert [(found.native, found.transformed) for found in again.status().versions] == [(310, 0), (0, 310)]
        assert lance.dataset(str(path)).version == version
        assert again.cutover("v2").missing == 0
        assert again.upgrade("v2").missing == 0
    assert gallery.maintenance.verify().clean


def test_only_what_came_is_read(upgraded, vectors):
    gallery, path = upgraded
    lance.dataset(str(path)).delete("id = 'm7'")
    with without_data_files(path):
        _append(path, vectors(1))
    assert gallery.upgrade("v2", dry_run=True).steps[0].rows == 1, "a plan reads some rows to see how long they take"
    with without_data_files(path, but=1):
        assert gallery.upgrade("v2").transformed == 1
        assert gallery.cutover("v2").missing == 0
    assert gallery.vectors(["new"]).shape == (1, 6)
    assert gallery.maintenance.verify().clean


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
    gallery.artifacts.link(linear())
    gallery.upgrade("v2")
    before = gallery.vectors(["7"], "v2")
    table.update(where="key = '7'", values={"vec": (given[7] + 1).tolist()})
    assert gallery.upgrade("v2", dry_run=True).steps[0].rows == 1
    assert gallery.upgrade("v2").transformed == 1
    assert not np.allclose(gallery.vectors(["7"], "v2"), before)
    assert gallery.maintenance.verify().clean


def test_another_transform_is_looked_for_again(upgraded, linear):
    gallery, path = upgraded
    gallery.retire("v2")
    assert not (path / "_compatstore" / "counts-v2.json").exists()
    other = gallery.artifacts.link(linear(seed=5))
    assert gallery.upgrade("v2", transform=other).transformed == 310
    assert gallery.upgrade("v2").transformed == 0
    assert Path(path / "_compatstore" / "counts-v2.json").exists()


def test_after_an_abort_everything_is_looked_at(upgraded):
    gallery, _ = upgraded
    gallery.abort("v2")
    assert gallery.upgrade("v2").transformed == 310
    assert gallery.cutover("v2").missing == 0


def encoder(but=""):
    """Knows all items, but for one."""
    known = [item for item in [*"abcdefghij", *IDS] if item != but]
    return cs.encoders.Precomputed(dict(zip(known, np.ones((len(known), 6), np.float32), strict=True)))


def nothing_is_read(path, **asked):
    """Whether nothing of the table is read where nothing changed, with the same request again."""
    with without_data_files(path):
        again = cs.Gallery.open(str(path), encoders={"v3": encoder()})
        found = again.upgrade("v3", **asked)
        assert (found.transformed, found.backfilled) == (0, 0)
        assert [step.name for step in again.upgrade("v3", **asked, dry_run=True).steps] == ["cutover"]
        assert again.cutover("v3", dry_run=True).missing == 0
        return again.status(), again.cutover("v3").missing == 0


@pytest.mark.parametrize("mode", ["move_rows", "rewrite_columns"])
@pytest.mark.parametrize(
    ("asked", "natives"),
    [
        (cs.Backfill(share=0.3, order="random"), 93),
        (cs.Backfill(share=1.0, max_rows=100, order="random"), 100),
    ],
)
def test_a_backfill_that_is_over_is_not_looked_for_again(upgradable, linear, tmp_path, vectors, mode, asked, natives):
    """It moves rows into small fragments, and these are merged: the next call reads them once."""
    path, asked = tmp_path / "gallery.lance", replace(asked, write_mode=mode)
    upgradable.add({"id": IDS, "vector": vectors(300)})
    version = cs.EmbeddingVersion("v3", dim=6, metric="l2", encoder=encoder())
    upgradable.register(version)
    upgradable.artifacts.link(linear(target=version))
    upgradable.upgrade("v3", backfill=asked, run=RunSettings(batch_rows=16, retries=0))
    upgradable.upgrade("v3", backfill=asked)
    status, complete = nothing_is_read(path, backfill=asked)
    assert status.versions[-1].native == natives
    assert complete
    assert len(lance.dataset(str(path)).get_fragments()) == 2, "what was moved is merged"
    assert upgradable.maintenance.verify().clean


def test_where_all_the_rest_was_tried_in_vain_no_row_is_looked_at_to_choose_from(
    upgradable, linear, vectors, monkeypatch
):
    upgradable.add({"id": IDS, "vector": vectors(300)})
    version = cs.EmbeddingVersion("v3", dim=6, metric="l2", encoder=encoder(but="m7"))
    upgradable.register(version)
    upgradable.artifacts.link(linear(target=version))
    run = RunSettings(batch_rows=100, retries=0)
    first = upgradable.upgrade("v3", backfill=1.0, run=run)
    assert (first.backfilled, first.num_unbackfillable, first.ended_by) == (309, 1, "")
    monkeypatch.delattr(TableRows, "native")
    again = upgradable.upgrade("v3", run=run)
    assert (again.backfilled, again.num_unbackfillable, again.ended_by) == (0, 1, "")
    with pytest.raises(AttributeError, match="native"):
        upgradable.upgrade("v3", run=replace(run, retry_unbackfillable=True))


def test_what_optimize_has_written_again_is_read_once(upgraded):
    gallery, path = upgraded
    lance.dataset(str(path)).delete("id = 'm7' OR id = 'm8'")
    gallery.upgrade("v2")
    gallery.maintenance.optimize(grace=0)
    assert len(lance.dataset(str(path)).get_fragments()) == 1
    assert gallery.upgrade("v2").transformed == 0
    with without_data_files(path):
        again = cs.Gallery.open(str(path))
        assert again.upgrade("v2").transformed == 0
        assert [(found.native, found.transformed) for found in again.status().versions] == [(308, 0), (0, 308)]
        assert again.cutover("v2").missing == 0
    assert gallery.maintenance.verify().clean


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
        assert [step.name for step in again.upgrade("v3", dry_run=True).steps] == ["cutover"]
