"""Run a program as one whom file modes bind, also where root runs the tests."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

_DROP_FROM_BOUNDING_SET, _OVERRIDE_MODES, _READ_ANYTHING = 24, 1, 2  # prctl, capabilities


def run_confined(program, reads="", words=()):
    """Run Python text in a process of its own.

    Args:
        program: The text.
        reads: What it reads from stdin.
        words: Its `sys.argv[1:]`.

    Returns:
        A `subprocess.CompletedProcess` with text.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, program, *map(str, words)]
    return subprocess.run(command, input=reads, capture_output=True, text=True, env=environment)


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
    if os.geteuid() == 0:
        for capability in (_OVERRIDE_MODES, _READ_ANYTHING):
            if ctypes.CDLL(None).prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0):
                sys.exit("root may read and write everywhere here, and cannot be held back")
    os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])
