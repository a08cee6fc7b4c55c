"""Small files in a table's folder, on a disk or in its object store; blobs are named by their SHA-256.

An object store is reached through Lance's own sessions, so that credentials and endpoint are those of the table.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from compatstore import next_step
from compatstore.errors import CorruptArtifact
from compatstore.paths import refused
from compatstore.storage.location import Location
from compatstore.storage.snapshot import LanceFileSession


class Files:
    """Files in one folder; all methods raise OSError if the place cannot be reached.

    Args:
        location: The table.
        folder: Names of the folders that lead there, from the table's own.
    """

    def __init__(self, location: Location, *folder: str) -> None:
        self._location = location
        self._uri = location.child(*folder) if folder else location.uri

    def address(self, name: str) -> str:
        """Path or URI of a file, for messages and for Lance."""
        return f"{self._uri}/{name}"

    def exists(self, name: str) -> bool:
        """True if there is such a file."""
        if self._location.is_local:
            return Path(self.address(name)).is_file()
        return bool(self._session.contains(name))

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        if self._location.is_local:
            return Path(self.address(name)).read_bytes()
        with _copy() as copy:
            self._session.download_file(name, str(copy))
            return copy.read_bytes()

    def read_range(self, name: str, start: int, size: int) -> bytes:
        """Some bytes of a file, fewer if it ends before."""
        if self._location.is_local:
            with Path(self.address(name)).open("rb") as file:
                file.seek(start)
                return file.read(size)
        return bytes(self._session.read_range(name, start, size))

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if unknown."""
        return Path(self.address(name)).stat().st_size if self._location.is_local else None

    def changed(self, name: str) -> float | None:
        """Time of the last write to a file by the clock of the storage, seconds since 1970; None if unknown."""
        return Path(self.address(name)).stat().st_mtime if self._location.is_local else None

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write or replace a file; durable, and there as a whole or not at all.

        Args:
            name: Of the file.
            data: Bytes, or a buffer of bytes.
        """
        if not self._location.is_local:
            with _copy() as copy:
                copy.write_bytes(data)
                self._session.upload_file(str(copy), name)
            return
        target = Path(self.address(name))
        target.parent.mkdir(exist_ok=True)
        # Not by `tempfile`, whose files only their owner may read: the umask decides who reads a gallery.
        temporary = target.with_name(f"tmp{uuid.uuid4().hex}")
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)

    def delete(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self._location.is_local:
            Path(self.address(name)).unlink(missing_ok=True)
        elif self.exists(name):
            self._session.delete_file(name)

    def delete_folder(self, name: str) -> None:
        """Remove a folder and all that is in it, if it is there."""
        if self._location.is_local:
            if Path(self.address(name)).is_dir():
                shutil.rmtree(self.address(name))
            return
        for path in self._session.list(name):
            self._session.delete_file(path)

    def names(self) -> list[str]:
        """Names of the files and folders that are there, in order."""
        if self._location.is_local:
            folder = Path(self._uri)
            return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        found = self._session.list_with_delimiter()
        return sorted(path.rstrip("/") for path in [*found.common_prefixes, *found.objects])

    @cached_property
    def _session(self) -> Any:
        return LanceFileSession(self._uri, storage_options=self._location.options)


@contextmanager
def _copy() -> Iterator[Path]:
    """Path of a temporary local file, as Lance's sessions copy from file to file; the file is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "copy")


FOLDER = "_compatstore"
_DIGEST = re.compile("[0-9a-f]{64}")
_BLOB = re.compile(r"[0-9a-f]{64}|tmp\w+|.+\.tmp")


def is_blob(name: str) -> bool:
    """True for the name of a blob beside the table, whole or half written."""
    return _BLOB.fullmatch(name) is not None


class Blobs:
    """Content-addressed files in `<table>/_compatstore/`.

    Lance's clean-up reads only its own folders, and dropping the table drops these files with it.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._files = Files(location, FOLDER)

    def put(self, data: bytes) -> str:
        """Store bytes and return their SHA-256; durable and atomic, a no-op when they are there and intact.

        Raises:
            StorageError: They cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        operation = f"store {len(data)} bytes beside {self._location.name}"
        try:
            if not self._intact(digest):
                self._files.write(digest, data)
        except OSError as error:
            raise refused(operation, self._files.address(digest), error) from error
        return digest

    def get(self, digest: str) -> bytes:
        """Read bytes back.

        Raises:
            CorruptArtifact: They are gone or were changed.
            StorageError: They may not be read.
        """
        operation = f"read {digest[:12]} beside {self._location.name}"
        if not _DIGEST.fullmatch(digest):  # a path would lead elsewhere
            raise CorruptArtifact(operation, expected="a SHA-256 as the name of a file", found=repr(digest[:80]))
        try:
            data = self._files.read(digest)
        except PermissionError as error:
            raise refused(operation, self._files.address(digest), error) from error
        except OSError as error:
            fix = f"Link the artifact again: {next_step.call('link', next_step.ARTIFACT)}"
            raise CorruptArtifact(operation, expected="the file", found=str(error), fix=fix) from error
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            fix = f"The file was changed. Link the artifact again: {next_step.call('link', next_step.ARTIFACT)}"
            raise CorruptArtifact(operation, expected=f"SHA-256 {digest}", found=found, fix=fix)
        return data

    def names(self) -> list[str]:
        """Names of all that lies beside the table, blobs or not."""
        return self._files.names()

    def _intact(self, digest: str) -> bool:
        if not self._files.exists(digest):
            return False
        try:
            self.get(digest)
        except CorruptArtifact:
            return False
        return True
