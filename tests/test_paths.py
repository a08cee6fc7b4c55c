"""Names that users give to files: what no file system takes is not there, what may not be looked at is refused."""

from __future__ import annotations

import os
import sys

import pytest

from compatstore.errors import StorageError
from compatstore.paths import exists, is_file, is_folder, refused


def test_files_folders_and_nothing(tmp_path):
    file = tmp_path / "a"
    file.write_text("")
    assert (exists(file), is_file(file), is_folder(file)) == (True, True, False)
    assert (exists(tmp_path), is_file(f"{tmp_path}"), is_folder(f"{tmp_path}")) == (True, False, True)
    assert (exists(""), is_file(""), is_folder("")) == (True, False, True), "where this process is, as of a Path"


@pytest.mark.parametrize("name", ["b", "x" * 300, "x/" * 3000, "a\0b", "\ud800", "a/b"])
def test_what_no_file_system_takes_is_nothing(tmp_path, name):
    (tmp_path / "a").write_text("")
    path = os.path.join(tmp_path, name)
    assert not exists(path)
    assert not is_file(path)
    assert not is_folder(path)


@pytest.mark.skipif(sys.platform == "win32", reason="links are made by anybody on Unix")
def test_a_link_to_itself_is_nothing(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert not exists(tmp_path / "loop")


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_may_not_be_looked_into_is_refused(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    try:
        with pytest.raises(StorageError, match="expected access to"):
            exists(tmp_path / "closed" / "a")
    finally:
        (tmp_path / "closed").chmod(0o700)


def test_what_is_said_already_is_not_said_again(tmp_path):
    error = StorageError("look at it", fix="Give this process access.")
    assert refused("save it", tmp_path, error) is error
