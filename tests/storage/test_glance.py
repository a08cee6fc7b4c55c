"""A glance reads what Lance reads: columns, versions, artifacts and upgrades, and refuses what is no manifest."""

from __future__ import annotations

import os
from contextlib import suppress

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compatstore as cs
from compatstore.errors import StorageError
from compatstore.storage.glance import glance
from compatstore.storage.location import locate
from lazily import Lazy

lancedb = Lazy("lancedb")


@pytest.mark.full
def test_it_reads_the_names_of_a_gallery_at_each_state(upgradable):
    place = upgradable._catalog.store.location
    for act in (
        lambda: None,
        lambda: upgradable.upgrade("v2"),
        lambda: upgradable.add({"id": ["k"], "vector": [[1.0] * 4], "new": ["x"]}),
        lambda: upgradable.cutover("v2"),
        lambda: upgradable.retire("v1"),
        lambda: upgradable.maintenance.unregister("v1") if not upgradable.artifacts else None,
    ):
        act()
        found = glance(place)
        assert list(found.columns) == upgradable._catalog.store.snapshot().schema.names
        assert found.versions == tuple(upgradable.versions())
        assert found.active == upgradable.active
        assert found.artifacts == tuple(artifact.id for artifact in upgradable.artifacts)
    assert found.upgrades == ("v2",)


def test_it_reads_types_and_leaves_out_fields_within_fields(tmp_path):
    rows = pa.table(
        {
            "naïve «name»": pa.array(["a"]),
            "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
            "about": pa.array([{"year": 1, "tags": ["x"]}]),
            "views": pa.array([3], pa.int64()),
        }
    )
    lancedb.connect(tmp_path / "db").create_table("notes", rows)
    found = glance(locate(f"{tmp_path}/db#notes"))
    assert list(found.columns) == rows.schema.names
    assert found.columns["vector"] == "fixed_size_list:float:2"
    assert (found.columns["naïve «name»"], found.columns["views"]) == ("string", "int64")
    assert (found.versions, found.active, found.artifacts) == ((), "", ())


def test_it_reads_the_newest_of_many_versions_and_of_names_that_count_up(tmp_path):
    gallery = cs.Gallery.create(tmp_path / "g.lance", cs.EmbeddingVersion("v1", dim=2))
    for number in range(2, 14):
        gallery.register(cs.EmbeddingVersion(f"v{number}", dim=2, model=str(number)))
    place = locate(tmp_path / "g.lance")
    assert glance(place).versions == tuple(gallery.versions())
    folder = tmp_path / "g.lance" / "_versions"
    for path in folder.glob("*.manifest"):  # as early tables call them
        path.rename(folder / f"{2**64 - 1 - int(path.stem)}.manifest")
    assert glance(place).versions == tuple(gallery.versions())


@pytest.mark.parametrize("place", ["nothing.lance", "s3://bucket/g.lance", "file.lance", "empty.lance"])
def test_what_is_no_table_of_this_machine_is_one_error(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.lance").write_text("a file")
    os.makedirs(tmp_path / "empty.lance" / "_versions")
    with pytest.raises(StorageError, match="a table of Lance on this machine"):
        glance(locate(place))


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glance")
    lance.write_dataset(pa.table({"id": ["a"]}), folder / "t.lance")
    (path,) = (folder / "t.lance" / "_versions").glob("*.manifest")
    return path, path.read_bytes()


@pytest.mark.full
@given(cut=st.integers(0, 2000), flipped=st.integers(0, 2000), bits=st.integers(1, 255))
def test_a_damaged_manifest_is_one_error_or_names_and_never_ends_otherwise(manifest, cut, flipped, bits):
    path, content = manifest
    damaged = bytearray(content)
    damaged[flipped % len(damaged)] ^= bits
    path.write_bytes(bytes(damaged[cut % len(damaged) :]) if cut else bytes(damaged))
    with suppress(StorageError):
        assert isinstance(glance(locate(path.parents[1])).columns, dict)
