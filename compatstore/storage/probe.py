"""Whether a table's place can be written to, found by writing a few bytes there and removing them."""

from __future__ import annotations

import uuid

from pyarrow import fs

from compatstore.errors import StorageError
from compatstore.storage.location import Location

WORDS = b"written by compatstore doctor to see whether it can be; safe to remove"


def probe(location: Location) -> float | None:
    """Write a small file into the table's folder and remove it; nothing is left.

    Returns:
        When the place's own clock says that it was written, in seconds since 1970; None where it does not say.

    Raises:
        StorageError: It cannot be written.
    """
    try:
        filesystem, path = location.resolve(f"probe-{uuid.uuid4().hex}")
        try:
            with filesystem.open_output_stream(path) as file:
                file.write(WORDS)
            written = filesystem.get_file_info(path).mtime
        finally:
            if filesystem.get_file_info(path).type == fs.FileType.File:
                filesystem.delete_file(path)
    except OSError as error:
        raise StorageError(
            f"write beside {location.name}",
            expected="a folder that can be written",
            found=str(error),
            fix="Check permissions and free space. Searches and other verbs that read work all the same.",
        ) from error
    return None if written is None else float(written.timestamp())
