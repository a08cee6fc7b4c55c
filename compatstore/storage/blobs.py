"""Files beside the table, named by the SHA-256 of their content: weights, manifests, heads, encoders."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from pyarrow import fs

from compatstore.errors import CorruptArtifact, StorageError
from compatstore.storage.location import Location

FOLDER = "_compatstore"


class Blobs:
    """Content-addressed files in `<table>/_compatstore/`.

    Lance's clean-up only looks at its own folders, and dropping the table drops these files with it.
    """

    def __init__(self, location: Location) -> None:
        self._location = location

    def put(self, data: bytes) -> str:
        """Store bytes and return their SHA-256; durable and atomic, a no-op when they are there and intact.

        Raises:
            StorageError: They cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        if digest_exists(self._location, digest) and self._intact(digest):
            return digest
        try:
            self._write(digest, data)
        except OSError as error:
            raise StorageError(
                f"store {len(data)} bytes beside {self._location.name}",
                expected="a folder that can be written",
                found=str(error),
                fix="Check permissions and free space.",
            ) from error
        return digest

    def get(self, digest: str) -> bytes:
        """Read bytes back.

        Raises:
            CorruptArtifact: They are gone or are not what was stored.
        """
        asked = f"read {digest[:12]} beside {self._location.name}"
        try:
            filesystem, path = self._location.resolve(FOLDER, digest)
            with filesystem.open_input_file(path) as file:
                data = bytes(file.read())
        except OSError as error:
            raise CorruptArtifact(
                asked,
                expected="the file",
                found=str(error),
                fix="Link the artifact again: compatstore link GALLERY ARTIFACT",
            ) from error
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise CorruptArtifact(
                asked,
                expected=f"SHA-256 {digest}",
                found=found,
                fix="The file was changed. Link the artifact again: compatstore link GALLERY ARTIFACT",
            )
        return data

    def _intact(self, digest: str) -> bool:
        try:
            self.get(digest)
        except CorruptArtifact:
            return False
        return True

    def names(self) -> list[str]:
        """Names of all that lies beside the table, blobs or not."""
        filesystem, path = self._location.resolve(FOLDER)
        found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(str(info.base_name) for info in found)

    def _write(self, digest: str, data: bytes) -> None:
        if not self._location.is_local:
            filesystem, path = self._location.resolve(FOLDER, digest)
            with filesystem.open_output_stream(path) as file:
                file.write(data)
            return
        target = Path(self._location.child(FOLDER, digest))
        target.parent.mkdir(exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)


def digest_exists(location: Location, digest: str) -> bool:
    """Whether the file is there."""
    filesystem, path = location.resolve(FOLDER, digest)
    return bool(filesystem.get_file_info(path).type == fs.FileType.File)
