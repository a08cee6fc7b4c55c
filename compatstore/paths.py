"""Paths that users name: names that no file system takes, and permission errors with owner and mode."""

from __future__ import annotations

import errno
import getpass
import os
import stat
from os import PathLike
from pathlib import Path

from compatstore.errors import StorageError

_NO_NAME = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EBADF, errno.EINVAL}


def exists(path: str | PathLike[str]) -> bool:
    """True if a path exists.

    Raises:
        StorageError: This process may not look there.
    """
    return _mode(path) is not None


def is_file(path: str | PathLike[str]) -> bool:
    """True if a path is a file; errors as in `exists`."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_folder(path: str | PathLike[str]) -> bool:
    """True if a path is a folder; errors as in `exists`."""
    mode = _mode(path)
    return mode is not None and stat.S_ISDIR(mode)


def _mode(path: str | PathLike[str]) -> int | None:
    try:
        return os.stat(Path(path)).st_mode
    except ValueError:  # a byte of 0, or a half of a surrogate pair
        return None
    except PermissionError as error:
        raise refused(f"look at {os.fspath(path)}", path, error) from error
    except OSError as error:
        if error.errno in _NO_NAME:
            return None
        raise


_NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}


def refused(operation: str, path: str | PathLike[str], error: Exception) -> StorageError:
    """The error for a file or folder that this process may not, or cannot, read or write.

    Args:
        operation: The caller's operation.
        path: The file or folder.
        error: Error of the system, or of a library that hides it.
    """
    if isinstance(error, StorageError):  # converted already
        return error
    if not isinstance(error, OSError) or error.errno not in _NOT_PERMITTED:  # a full disk, a name that is too long
        return StorageError(
            operation,
            expected=f"a place that can be written at {path}",
            found=getattr(error, "strerror", None) or f"{error}",
            fix="Choose another path, or make room there.",
        )
    return StorageError(
        operation,
        expected=f"access to {path}",
        found=f"{error.strerror or error}{whose(path)}",
        fix="Give this process access with chmod or chown, or run it as the owner.",
    )


def whose(path: str | PathLike[str]) -> str:
    """Mode and owner of a path, or of the nearest readable folder above it; for a message."""
    for place in (Path(path), *Path(path).parents):
        try:
            known = place.stat()
        except OSError:
            continue
        return (
            f": {place} has mode {stat.S_IMODE(known.st_mode):04o}, owner {_name(known.st_uid)}; requested by {_me()}"
        )
    return ""


def user_name() -> str:
    """Name of the user who runs this process, "unknown" where the system has none for the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _name(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"uid {uid}"


def _me() -> str:
    try:
        return _name(os.geteuid())
    except AttributeError:  # no such thing as a uid on this system
        return user_name()
