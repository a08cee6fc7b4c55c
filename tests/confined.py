"""Run a program as one whom file modes and limits bind, also where root runs the tests."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

_DROP_FROM_BOUNDING_SET, _OVERRIDE_MODES = 24, 1  # prctl, capabilities


def run_confined(program, *words, file_size=None):
    """Run Python text in a process of its own.

    Args:
        program: The text.
        words: Its `sys.argv[1:]`.
        file_size: Bytes that a file of it may have at most; writing more fails as on a full disk.

    Returns:
        A `subprocess.CompletedProcess` with text.
    """
    limit = "" if file_size is None else str(file_size)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COMPATSTORE_FILE_SIZE": limit}
    command = [sys.executable, __file__, program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def read_only(folder):
    """Take away all rights to write below a folder, and the folder itself."""
    _set_modes(folder, 0o555, 0o444)


def writable(folder):
    """Give them back."""
    _set_modes(folder, 0o755, 0o644)


def _set_modes(folder, folders, files):
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            os.chmod(os.path.join(place, name), files)
        os.chmod(place, folders)


if __name__ == "__main__":
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, _OVERRIDE_MODES, 0, 0, 0):
        sys.exit("root may write everywhere here, and cannot be held back")
    allowed = os.environ.pop("COMPATSTORE_FILE_SIZE", "")
    if allowed:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(allowed), int(allowed)))
    os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
