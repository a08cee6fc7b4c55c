"""Where galleries of the harness lie: folders of a disk, or of a bucket that the environment leads to."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pyarrow.fs import FileSelector, FileSystem, FileType


@dataclass(frozen=True)
class BucketPath:
    """A bucket, a folder or an object of one, with those methods of `Path` that the harness uses.

    Args:
        path: Bucket and object: "galleries/life-1/items.lance".
    """

    path: PurePosixPath

    def __str__(self) -> str:
        return f"s3://{self.path}"

    def __truediv__(self, name: str) -> BucketPath:
        return BucketPath(self.path / name)

    @property
    def parent(self) -> BucketPath:
        """The folder that it is in."""
        return BucketPath(self.path.parent)

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return self.path.stem

    def exists(self) -> bool:
        """Whether there is such an object."""
        return self._files.get_file_info(str(self.path)).type is not FileType.NotFound

    def touch(self) -> None:
        """Make an empty object."""
        self._files.open_output_stream(str(self.path)).close()

    def read_bytes(self) -> bytes:
        """All of an object."""
        with self._files.open_input_stream(str(self.path)) as stream:
            return bytes(stream.read())

    def make_bucket(self) -> None:
        """Make the bucket, unless it is there."""
        FileSystem.from_uri(f"s3://{self.path.parts[0]}?allow_bucket_creation=true")[0].create_dir(self.path.parts[0])

    def copy(self, folder: BucketPath) -> None:
        """Copy all objects below."""
        for file in self._below():
            self._files.copy_file(file, str(folder.path / PurePosixPath(file).relative_to(self.path)))

    def remove(self) -> None:
        """Remove all objects below."""
        for file in self._below():
            self._files.delete_file(file)

    def _below(self) -> list[str]:
        selector = FileSelector(str(self.path), recursive=True, allow_not_found=True)
        return [file.path for file in self._files.get_file_info(selector) if file.type is FileType.File]

    @property
    def _files(self) -> FileSystem:
        return FileSystem.from_uri(f"s3://{self.path.parts[0]}")[0]


Place = Path | BucketPath


def place_of(text: str) -> Place:
    """The place that a text names: an address in a bucket, or a path."""
    return BucketPath(PurePosixPath(text.removeprefix("s3://"))) if text.startswith("s3://") else Path(text)


def make_folder(place: Place) -> None:
    """Make a folder; of a bucket there has to be the bucket."""
    if isinstance(place, BucketPath):
        place.make_bucket()
    else:
        place.mkdir(parents=True)


def copy_folder(source: Place, target: Place) -> None:
    """Copy a folder with all that is in it; both on a disk, or both in the bucket."""
    if isinstance(source, BucketPath) and isinstance(target, BucketPath):
        target.make_bucket()
        source.copy(target)
    else:
        shutil.copytree(str(source), str(target))


def remove_folder(place: Place) -> None:
    """Remove a folder with all that is in it."""
    if isinstance(place, BucketPath):
        place.remove()
    else:
        shutil.rmtree(place)
