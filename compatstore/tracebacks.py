"""Tracebacks of errors that are raised on purpose: the caller's own lines, without the frames of this package.

Set COMPATSTORE_TRACEBACK=full to see all frames.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

from compatstore.errors import CompatStoreError

VARIABLE, FULL = "COMPATSTORE_TRACEBACK", "full"
_PACKAGE = __name__.partition(".")[0]
_INSTALLED = ("site-packages", "dist-packages")


def cut(error: CompatStoreError) -> None:
    """Take the frames between the call of a public function and the place that raised from an error.

    Frames of the caller's own code within the call, as of an encoder that is a function, stay, and so do the frames of
    libraries that this code calls. The errors that led to this one are cut too; without a `__cause__` they are not
    printed.
    """
    if os.environ.get(VARIABLE) == FULL:
        return
    if error.__cause__ is None:
        error.__suppress_context__ = True
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        one.__traceback__ = _callers(one.__traceback__)
        one = one.__cause__ or one.__context__


def _callers(traceback: TracebackType | None) -> TracebackType | None:
    """The frames from the first one of the caller's code on, without those of this package."""
    frames: list[TracebackType] = []
    while traceback is not None:
        if _is_callers(traceback) or (frames and _module(traceback) != _PACKAGE):
            frames.append(traceback)
        traceback = traceback.tb_next
    below = None
    for each in reversed(frames):
        below = TracebackType(below, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return below


def _is_callers(traceback: TracebackType) -> bool:
    module, file = _module(traceback), traceback.tb_frame.f_code.co_filename
    known = module == _PACKAGE or module in sys.stdlib_module_names
    return not known and not any(folder in file for folder in _INSTALLED)


def _module(traceback: TracebackType) -> str:
    return str(traceback.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
