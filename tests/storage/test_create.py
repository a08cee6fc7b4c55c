"""A creation that is killed at any moment leaves nothing, a gallery, or what the same call finishes."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest

import compatstore as cs

V1 = cs.EmbeddingVersion("v1", dim=3)
# Ends its process at the entrance of one step.
KILLED = """
import os, sys
import compatstore as cs
from compatstore.storage import create
from compatstore.storage.store import Store
owner = Store if sys.argv[1] == "tag" else create
setattr(owner, sys.argv[1], lambda *args, **options: os._exit(9))
cs.Gallery.create("made.lance", cs.EmbeddingVersion("v1", dim=3), metadata={"year": "int64"})
"""


def create(path, **options):
    return cs.Gallery.create(path, V1, metadata={"year": "int64"}, **options)


def ids_are_indexed(gallery):
    return any(index.field_names == ["id"] for index in lance.dataset(gallery).describe_indices())


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Leave in the working directory what a creation leaves that ends before a step."""
    monkeypatch.chdir(tmp_path)

    def leave(step):
        assert subprocess.run([sys.executable, "-c", KILLED, step], check=False).returncode == 9
        return "made.lance"

    return leave


@pytest.mark.full
@pytest.mark.parametrize("step", ["build_index", "start"])
def test_the_same_call_finishes_it(begun, step):
    left = begun(step)
    with pytest.raises(cs.errors.NotFound, match="creation was stopped"):
        cs.Gallery.open(left)
    with pytest.raises(cs.errors.AlreadyExists):
        cs.Gallery.create(left, V1)  # without the column
    create(left).add({"id": ["a"], "vector": [[1, 2, 3]], "year": [2024]})
    gallery = cs.Gallery.open(left)
    assert (len(gallery), gallery.maintenance.verify().findings) == (1, ())
    assert ids_are_indexed(left)


@pytest.mark.full
def test_after_its_registry_it_is_a_gallery(begun):
    left = begun("tag")
    with pytest.raises(cs.errors.AlreadyExists):
        create(left)
    [finding] = cs.Gallery.open(left).maintenance.verify().findings
    assert "tag" in finding.what
    assert ids_are_indexed(left)


@pytest.mark.parametrize("names", [(), ("_transactions",), ("_transactions", "_versions")])
def test_before_its_first_commit_there_is_nothing(tmp_path, names):
    for name in names:
        (tmp_path / "made.lance" / name).mkdir(parents=True)
    with pytest.raises(cs.errors.NotFound):
        cs.Gallery.open(tmp_path / "made.lance")
    assert len(create(tmp_path / "made.lance")) == 0


def test_an_app_s_empty_table_is_not_taken_for_one(tmp_path):
    empty = pa.schema([("id", pa.string()), ("vector", pa.list_(pa.float32(), 3))])
    lance.write_dataset(pa.Table.from_batches([], empty), tmp_path / "app.lance")
    with pytest.raises(cs.errors.StorageError, match="plain Lance table"):
        cs.Gallery.open(tmp_path / "app.lance")
    with pytest.raises(cs.errors.AlreadyExists):
        create(tmp_path / "app.lance")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "letter.txt").touch()
    with pytest.raises(cs.errors.AlreadyExists):
        create(tmp_path / "data")


@pytest.mark.full
def test_of_several_at_once_one_succeeds(begun):
    left = begun("build_index")

    def attempt(_):
        try:
            return create(left)
        except cs.errors.CompatStoreError as error:
            return error

    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(attempt, range(6)))
    assert sum(isinstance(one, cs.Gallery) for one in made) == 1
    assert cs.Gallery.open(left).maintenance.verify().findings == ()
