import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compatstore.demo.data import DemoDirectory
from compatstore.errors import AlreadyExists, StorageError


@pytest.mark.parametrize("name", ["new", "deep/er", "with a space"])
def test_a_new_folder_is_made(tmp_path: Path, name: str) -> None:
    place = DemoDirectory.prepare(tmp_path / name)
    assert place.root.is_dir()
    assert list(place.root.iterdir()) == [place.images]
    assert not list(place.images.iterdir())
    assert all(path.is_relative_to(place.root) for path in (*place.files, place.gallery, place.images, place.queries))


def test_an_empty_folder_is_taken_and_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert DemoDirectory.prepare(".").root == tmp_path


def test_of_demos_that_are_given_a_folder_at_once_one_has_it(tmp_path: Path) -> None:
    def prepare(_: int) -> type[Exception] | None:
        try:
            DemoDirectory.prepare(tmp_path / "demo")
        except AlreadyExists as error:
            return type(error)
        return None

    for _ in range(20):
        with ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(prepare, range(8)))
        assert outcomes.count(None) == 1
        shutil.rmtree(tmp_path / "demo")


def test_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    with pytest.raises(AlreadyExists, match=r"notes.txt.*found a file"):
        DemoDirectory.prepare(file)
    assert file.read_text() == "mine"


def test_a_folder_of_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(AlreadyExists, match="does not touch"):
        DemoDirectory.prepare(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/demo.*Choose another folder"):
        DemoDirectory.prepare(tmp_path / "file" / "demo")
