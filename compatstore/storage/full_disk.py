"""Full disks: checks of free space before a write, and of the end of each written file before its commit.

Lance 14 writes local files through a buffer and loses the buffer's last error: where the disk gets full within the last
bytes of a file, the file is cut short and Lance reports success (seen with ENOSPC and with EFBIG). The rows of such a
file cannot be read after the commit. So each data file that this package writes is checked before its commit, and where
Lance writes and commits in one call, free space is required first.
"""

from __future__ import annotations

import shutil

from compatstore.errors import StorageError
from compatstore.storage.files import Files
from compatstore.storage.location import Location

ROOM_TO_SPARE = 16 << 20  # bytes, for what a commit writes beside the data
LAST_BYTES = b"LANC"  # of every Lance file
FIX = "Make room on its disk; the same command goes on from here."


def require_room(location: Location, data_bytes: int, asked: str) -> None:
    """Refuse to write where the disk would get full.

    Args:
        location: The table.
        data_bytes: Bytes that will be written, about.
        asked: What the caller wants, for the message.

    Raises:
        StorageError: There is not enough room on its disk.
    """
    if not location.is_local:
        return
    free, needed = shutil.disk_usage(location.uri).free, 2 * data_bytes + ROOM_TO_SPARE
    if free < needed:
        found = f"{free / 2**20:.0f} MiB"
        raise StorageError(asked, expected=f"{needed / 2**20:.0f} MiB of room on its disk", found=found, fix=FIX)


def require_whole(location: Location, path: str) -> None:
    """Refuse a Lance file that was just written and cut short.

    Args:
        location: Whose it is; object stores keep a file as a whole or not at all.
        path: Its path from the table's own folder.

    Raises:
        StorageError: Its end is missing.
    """
    if location.is_local and not ends_whole(Files(location), path):
        raise StorageError(
            f"write a data file of {location.name}",
            expected="all of it on disk",
            found="a file that was cut short, as when the disk gets full",
            fix=f"Nothing of it was committed. {FIX}",
        )


def ends_whole(files: Files, name: str, size: int | None = None) -> bool:
    """Whether a Lance file is there to its end.

    Args:
        files: Its folder.
        name: Its name.
        size: How many bytes it has, where that is known.

    Raises:
        PermissionError: It may not be read.
    """
    try:
        size = files.size(name) if size is None else size
        if size is None:
            return files.exists(name)
        return files.read_range(name, max(size - len(LAST_BYTES), 0), len(LAST_BYTES) + 1) == LAST_BYTES
    except PermissionError:
        raise
    except OSError:
        return False
