"""What the program's exit code says: one number for each branch of the tree of errors."""

from __future__ import annotations

import signal

from compatstore.errors import (
    AlreadyExists,
    CompatStoreError,
    CorruptArtifact,
    GateFailed,
    Incompatible,
    Interrupted,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    MissingExtra,
    NotFound,
    SourceError,
    StorageError,
    UpgradeError,
)

UNEXPECTED = 1
USAGE = 2
FOUND = 9
BUSY = 10
GATE_FAILED = 11
STOPPED = 128  # plus the number of the signal, as shells count

_CODES: dict[type[CompatStoreError], int] = {
    InvalidInput: USAGE,
    NotFound: 3,
    AlreadyExists: 4,
    Incompatible: 4,
    CorruptArtifact: 5,
    StorageError: 6,
    SourceError: 6,
    UpgradeError: 7,
    GateFailed: GATE_FAILED,
    LeaseHeld: BUSY,
    LeaseLost: BUSY,
    MissingExtra: 8,
    Interrupted: STOPPED + signal.SIGINT,
}

EXPLANATION = """\b
Exit codes:
    0  done
    1  an unexpected error, with a traceback
    2  a wrong option or unusable input
    3  a gallery, version, artifact, item or file does not exist
    4  it exists already, or two things do not belong together
    5  a file is truncated, edited or of an unknown format
    6  the table or some sources cannot be read or written
    7  the upgrade cannot take that step now (cutover --check: rows are missing)
    8  an optional dependency is not installed
    9  verify found errors or warnings, or doctor a problem
   10  another process works on the upgrade
   11  the estimate of the upgrade is not sure to pass a gate
  130  stopped by Ctrl-C   143  stopped by SIGTERM   141  nobody reads the output"""


def exit_code(error: CompatStoreError) -> int:
    """The code of the nearest class of the error that has one."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), UNEXPECTED)
