"""Errors of Lance, Arrow and the file system as one `StorageError`, and full disks, of which Lance reports none.

Lance raises OSError, ValueError, RuntimeError, KeyError, Arrow's errors for what happens within a scan, and for some
damaged files a panic, which is no `Exception`. Which of these mean the table, and not the caller's input, is decided
here: by the text that Lance gives its errors, by the frame that raised, and by the path that an OSError names.

Lance 14 writes local files through a buffer and loses the buffer's last error: where the disk gets full within the last
bytes of a file, the file is cut short and Lance reports success (seen with ENOSPC and with EFBIG). The rows of such a
file cannot be read after the commit. So each data file that this package writes is checked before its commit, and where
Lance writes and commits in one call, free space is required first.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isfunction
from pathlib import Path
from typing import Any, TypeVar

from compatstore import next_step
from compatstore.boundary import takes_no_wrapper
from compatstore.errors import CompatStoreError, StorageError
from compatstore.paths import whose
from compatstore.storage.files import FOLDER, Files
from compatstore.storage.location import Location

WRITABLE = "Check that the path exists, that its disk has room and that you may write there."
_OF_FILES = (
    "LanceError(IO)",
    "Permission denied",
    "Not found:",
    "not appear to be a Lance file",
    "/lance-file/",
    "/lance-encoding/",
)
# Messages of Lance about an index whose column is gone, for conditions and for statistics.
_OF_ORPHANS = ("Index referenced a field with id", "Could not find field ancestry")
_AT_PATH = re.compile(r"""(?:file |on |at path "|: ')(/[^:"']+)""")

Class = TypeVar("Class", bound=type)


def answers(verbs: Class) -> Class:
    """Make `answering` hold for every public method and property of a class of verbs, by its `_catalog`'s gallery."""
    for name, member in list(vars(verbs).items()):
        if (name.startswith("_") and name not in ("__len__", "__repr__")) or takes_no_wrapper(member):
            continue
        if isfunction(member):
            setattr(verbs, name, _answered(name, member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(verbs, name, property(_answered(name, member.fget), doc=member.__doc__))
    return verbs


def _answered(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        try:  # no `with`: it takes longer
            return method(self, *args, **options)
        except CompatStoreError as error:
            if not _freed_of_orphans(error, self._catalog):
                raise
        except BaseException as error:
            if _freed_of_orphans(error, self._catalog):
                return method(self, *args, **options)
            with answering(name.strip("_").replace("_", " "), self._catalog.store.location):
                raise error
        return method(self, *args, **options)

    return call


def of_orphans(error: BaseException) -> bool:
    """True if an error is that of an index whose column is gone."""
    return any(sign in f"{error} {error.__cause__}" for sign in _OF_ORPHANS)


def _freed_of_orphans(error: BaseException, catalog: Any) -> bool:
    """True if an index on a column that is gone made a verb fail, and is gone now.

    A process that is killed between the commit of an index and the check of its column leaves such an index, if another
    process has dropped the column meanwhile. Lance reads such a table by no condition, so nothing was written before.
    The other process may have dropped the index too by now: then there is none left to drop.
    """
    if not of_orphans(error):
        return False
    from compatstore.storage.indexes import drop_orphans

    try:
        catalog.store.retry("drop indexes without a column", lambda: drop_orphans(catalog.store.writer()))
    except Exception:  # the table cannot be written: the first error is more helpful
        return False
    return True


@contextmanager
def answering(verb: str, location: Location) -> Iterator[None]:
    """Turn an error that storage raises within a verb into a `CompatStoreError`.

    Args:
        verb: The caller's operation.
        location: The gallery.

    Raises:
        StorageError: The table, or a file beside it, cannot be read or written.
    """
    try:
        yield
    except CompatStoreError:
        raise
    except BaseException as error:
        ours = storage_failure(error, f"{verb} {location.name}", location)
        if ours is None:
            raise
        raise ours from error


def storage_failure(error: BaseException, operation: str, location: Location) -> StorageError | None:
    """The `CompatStoreError` for an error that storage raised; None for an error of something else."""
    if not (_by_lance(error) or _in_gallery(error, location)):
        return None
    found = text_of(error)
    if lost_race(error):
        return lost_to_others(operation, found)
    denied = denied_at(error, location)
    if denied:
        fix = "Give this process access with chmod or chown, or run it as the owner."
        return StorageError(operation, expected="files that this process may touch", found=found + denied, fix=fix)
    fix = f"Find the damage: {next_step.call('verify', at=location.uri)}"
    return StorageError(operation, expected="a table whose files are all there and whole", found=found, fix=fix)


def lost_to_others(
    operation: str, found: str, fix: str = "Nothing of this call was written; run it again."
) -> StorageError:
    """The error of an operation before which other writers committed again and again."""
    return StorageError(operation, expected="a moment without other writers", found=found, fix=fix)


def of_files(error: BaseException) -> bool:
    """True if an error is about the files of the table, and not about the caller's request."""
    text = str(error)
    return is_panic(error) or any(sign in text for sign in _OF_FILES)


def lost_race(error: BaseException) -> bool:
    """True if Lance refused a commit because another writer was faster."""
    text = str(error)
    named = type(error).__name__ == "CommitConflictError"
    return named or "Too many concurrent writers" in text or "ommit conflict" in text


def is_panic(error: BaseException) -> bool:
    """True if an error is a panic of Lance's Rust code, which is not an `Exception`."""
    return type(error).__name__ == "PanicException"


def is_failure(error: BaseException) -> bool:
    """True if an error is a failure, a panic of Lance included; False for an interrupt or an exit."""
    return isinstance(error, Exception) or is_panic(error)


def text_of(error: BaseException) -> str:
    """Text of an error without the positions in Lance's sources; a panic is named as such."""
    text = str(error).split(", /home/")[0].strip()
    return f"Lance cannot make sense of a file: {text}" if is_panic(error) else text or type(error).__name__


def denied_at(error: BaseException, location: Location | None) -> str:
    """Mode and owner of the file that this process may not access; "" for another error."""
    text = str(error)
    if not isinstance(error, PermissionError) and "Permission denied" not in text:
        return ""
    named = _AT_PATH.search(text)
    path = getattr(error, "filename", None) or (named[1] if named else None)
    return whose(path or (_forbidden(location) if location is not None else ""))


def _by_lance(error: BaseException) -> bool:
    text = str(error)
    if is_panic(error) or "LanceError" in text or "/lance/rust/" in text:  # Arrow passes Lance's text on
        return True
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    raised_in = "" if frame is None else str(frame.tb_frame.f_globals.get("__name__", ""))
    return isinstance(error, Exception) and raised_in.partition(".")[0] in ("lance", "lancedb")


def _in_gallery(error: BaseException, location: Location) -> bool:
    path = getattr(error, "filename", None)
    return isinstance(error, OSError) and path is not None and str(path).startswith(location.uri)


def _forbidden(location: Location) -> str:
    """The first file or folder of a local table that may not be read, else the table itself; Lance does not say."""
    for path in sorted(Path(location.uri).rglob("*")) if location.is_local else ():
        if FOLDER not in path.parts and not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
            return str(path)
    return location.uri


ROOM_TO_SPARE = 16 << 20  # bytes that a commit writes beside the data, at most
LAST_BYTES = b"LANC"  # of every Lance file


def require_room(location: Location, data_bytes: int, operation: str) -> None:
    """Refuse a write that would fill the disk.

    Args:
        location: The table.
        data_bytes: Bytes that will be written, about.
        operation: The caller's operation, for the message.

    Raises:
        StorageError: There is not enough room on its disk.
    """
    if not location.is_local:
        return
    free, needed = shutil.disk_usage(location.uri).free, 2 * data_bytes + ROOM_TO_SPARE
    if free < needed:
        found = f"{free / 2**20:.0f} MiB"
        raise StorageError(
            operation, expected=f"{needed / 2**20:.0f} MiB of room on its disk", found=found, fix=_make_room()
        )


def _make_room() -> str:
    return f"Make room on its disk; {next_step.same()} goes on from here."


def require_whole(location: Location, path: str) -> None:
    """Refuse a Lance file that was just written and cut short.

    Args:
        location: Storage of the file; object stores keep a file as a whole or not at all.
        path: Its path from the table's own folder.

    Raises:
        StorageError: Its end is missing.
    """
    if location.is_local and not ends_whole(Files(location), path):
        found = "a file that was cut short, as when the disk gets full"
        fix = f"Nothing of it was committed. {_make_room()}"
        raise StorageError(f"write a data file of {location.name}", expected="all of it on disk", found=found, fix=fix)


def ends_whole(files: Files, name: str, size: int | None = None) -> bool:
    """True if a Lance file is there to its end.

    Args:
        files: Its folder.
        name: Its name.
        size: Its bytes, if known.

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
