"""A disk that gets full is noticed: before a write that needs room, and in a file that was cut short."""

from __future__ import annotations

import shutil
from collections import namedtuple

import numpy as np
import pyarrow as pa
import pytest

from compatstore.errors import StorageError
from compatstore.storage.failures import answers, ends_whole, require_whole
from compatstore.storage.files import Files
from compatstore.storage.location import Location
from compatstore.storage.snapshot import LanceFileWriter
from confined import run_confined

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def file(tmp_path):
    """A Lance file of some thousand bytes."""
    path = tmp_path / "whole.lance"
    batch = pa.record_batch({"x": np.random.default_rng(0).normal(size=1000)})
    with LanceFileWriter(str(path), batch.schema) as writer:
        writer.write_batch(batch)
    return path


@pytest.mark.parametrize("lost", [1, 14, 100, 4000])
def test_a_file_that_was_cut_short_is_refused(file, tmp_path, lost):
    location = Location(str(tmp_path))
    require_whole(location, file.name)
    cut = tmp_path / "cut.lance"
    cut.write_bytes(file.read_bytes()[:-lost])
    with pytest.raises(StorageError, match=r"cut short.*Nothing of it was committed"):
        require_whole(location, cut.name)


def test_a_file_that_is_not_there_is_not_whole(tmp_path):
    files = Files(Location(str(tmp_path)))
    assert not ends_whole(files, "nothing.lance")
    (tmp_path / "empty.lance").touch()
    assert not ends_whole(files, "empty.lance")


def test_items_are_refused_before_the_disk_is_full(gallery, files, vectors, monkeypatch):
    path = gallery.status().gallery
    before = files(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9 - 1, 1))
    with pytest.raises(StorageError, match=r"16 MiB of room.*found 0 MiB"):
        gallery.add({"id": ["new"], "vector": vectors(1)})
    assert files(path) == before
    monkeypatch.undo()
    assert gallery.add({"id": ["new"], "vector": vectors(1)}).rows == 1


CUT = """
import resource, sys
import numpy as np
import compatstore as cs
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fragments import commit_columns, list_fragments, read_physical, write_columns
from compatstore.storage.location import Location
from compatstore.storage.store import Store

store = Store.open(Location(sys.argv[1]))
columns = cs.Gallery.open(sys.argv[1])._catalog.registry().columns("v1")
snapshot = store.snapshot()
(fragment,) = list_fragments(snapshot)


def rewrite():
    read = read_physical(snapshot, fragment, columns.names)
    parts = ({name: part[name] for name in columns.names} for part in read)
    commit_columns(store, [write_columns(store, snapshot, fragment, columns, parts)])


import glob, os
known = set(glob.glob(sys.argv[1] + "/data/*"))
rewrite()
(written,) = set(glob.glob(sys.argv[1] + "/data/*")) - known
snapshot = store.snapshot()
(fragment,) = list_fragments(snapshot)
version = snapshot.version
for lost in (1, 20, 60, 300, 2000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(written) - lost, resource.RLIM_INFINITY))
    try:
        rewrite()
    except OSError as error:
        print(lost, type(error).__name__)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert store.snapshot().version == version
"""


@pytest.mark.full
def test_wherever_a_file_is_cut_it_is_not_committed(tmp_path, vectors):
    import compatstore as cs

    path = str(tmp_path / "g.lance")
    gallery = cs.Gallery.create(path, cs.EmbeddingVersion("v1", dim=16))
    gallery.add({"id": [f"{number}" for number in range(200)], "vector": vectors(200, 16)})
    done = run_confined(CUT, words=(path,))
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["1", "20", "60", "300", "2000"]
    assert cs.Gallery.open(path).maintenance.verify().clean


@answers
class Verbs:
    """Verbs of which the first call meets an index whose column a rival has dropped."""

    def __init__(self, catalog, met):
        self._catalog, self.met, self.calls = catalog, met, 0

    def look(self):
        self.calls += 1
        if self.calls in self.met:
            raise OSError("LanceError(Index): Could not find field ancestry for id 12")
        return self.calls


def test_a_verb_goes_on_where_the_rival_has_dropped_the_index_as_well(gallery):
    catalog = gallery._catalog
    assert Verbs(catalog, met={1}).look() == 2
    always = Verbs(catalog, met={1, 2, 3})
    with pytest.raises(OSError, match="field ancestry"):
        always.look()
    assert always.calls == 2
