"""Files beside the table, named by the SHA-256 of their content: weights, manifests, heads, encoders."""

from __future__ import annotations

import hashlib
import re

from compatstore import next_step
from compatstore.errors import CorruptArtifact, StorageError
from compatstore.paths import refused
from compatstore.storage.files import Files
from compatstore.storage.location import Location

FOLDER = "_compatstore"
_DIGEST = re.compile("[0-9a-f]{64}")


class Blobs:
    """Content-addressed files in `<table>/_compatstore/`.

    Lance's clean-up only looks at its own folders, and dropping the table drops these files with it.
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
        asked = f"store {len(data)} bytes beside {self._location.name}"
        try:
            if not self._intact(digest):
                self._files.write(digest, data)
        except PermissionError as error:
            raise refused(asked, self._files.address(digest), error) from error
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                asked,
                expected="a folder that can be written",
                found=str(error),
                fix="Check permissions and free space.",
            ) from error
        return digest

    def get(self, digest: str) -> bytes:
        """Read bytes back.

        Raises:
            CorruptArtifact: They are gone or are not what was stored.
            StorageError: They may not be read.
        """
        asked = f"read {digest[:12]} beside {self._location.name}"
        if not _DIGEST.fullmatch(digest):  # a path would lead elsewhere
            raise CorruptArtifact(asked, expected="a SHA-256 as the name of a file", found=repr(digest[:80]))
        try:
            data = self._files.read(digest)
        except PermissionError as error:
            raise refused(asked, self._files.address(digest), error) from error
        except OSError as error:
            raise CorruptArtifact(
                asked,
                expected="the file",
                found=str(error),
                fix=f"Link the artifact again: {next_step.call('link', next_step.ARTIFACT)}",
            ) from error
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            raise CorruptArtifact(
                asked,
                expected=f"SHA-256 {digest}",
                found=found,
                fix=f"The file was changed. Link the artifact again: {next_step.call('link', next_step.ARTIFACT)}",
            )
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
