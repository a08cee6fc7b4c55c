"""What stands at a path that a user names: a name that no file system takes names nothing."""

from __future__ import annotations

import errno
import os
import stat
from os import PathLike
from pathlib import Path

from compatstore.permissions import refused

_NO_NAME = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EBADF, errno.EINVAL}


def exists(path: str | PathLike[str]) -> bool:
    """Whether anything stands at a path.

    Raises:
        StorageError: This process may not look there.
    """
    return _mode(path) is not None


def is_file(path: str | PathLike[str]) -> bool:
    """Whether a file stands at a path; errors as in `exists`."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def is_folder(path: str | PathLike[str]) -> bool:
    """Whether a folder stands at a path; errors as in `exists`."""
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
