"""Whether a table's place can be written to, found by writing a few bytes there and removing them."""

from __future__ import annotations

import uuid

from compatstore.errors import StorageError
from compatstore.storage.files import Files
from compatstore.storage.location import Location

WORDS = b"written by compatstore doctor to see whether it can be; safe to remove"


def probe(location: Location) -> float | None:
    """Write a small file into the table's folder and remove it; nothing is left.

    Returns:
        When the place's own clock says that it was written, in seconds since 1970; None where it does not say.

    Raises:
        StorageError: It cannot be written.
    """
    files, name = Files(location), f"probe-{uuid.uuid4().hex}"
    try:
        try:
            files.write(name, WORDS)
            written = files.changed(name)
        finally:
            files.delete(name)
    except OSError as error:
        raise StorageError(
            f"write beside {location.name}",
            expected="a folder that can be written",
            found=str(error),
            fix="Check permissions and free space. Searches and other verbs that read work all the same.",
        ) from error
    return written
