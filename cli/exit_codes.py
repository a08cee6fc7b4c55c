"""The end of a command: an exit code for each branch of the tree of errors, and a stop by Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from compatstore import errors
from compatstore.cli.output import Output

UNEXPECTED = 1
USAGE = 2
FOUND = 9
BUSY = 10
GATE_FAILED = 11
STOPPED = 128  # plus the number of the signal, as shells count

HANGUP = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # the terminal has gone; Windows has none
_META = "compatstore.stopped_by"

_CODES: dict[type[errors.CompatStoreError], int] = {
    errors.InvalidInput: USAGE,
    errors.NotFound: 3,
    errors.AlreadyExists: 4,
    errors.Incompatible: 4,
    errors.CorruptArtifact: 5,
    errors.StorageError: 6,
    errors.SourceError: 6,
    errors.UpgradeError: 7,
    errors.GateFailed: GATE_FAILED,
    errors.LeaseHeld: BUSY,
    errors.LeaseLost: BUSY,
    errors.MissingExtra: 8,
    errors.Interrupted: STOPPED + signal.SIGINT,
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
   11  the lower bound of the upgrade's estimate does not reach a gate
  130  stopped by Ctrl-C   143  stopped by SIGTERM   141  the reader of the output is gone"""


def exit_code(error: errors.CompatStoreError) -> int:
    """The code of the nearest class of the error that has one."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), UNEXPECTED)


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Give a function that returns True once a stop is requested.

    The first signal requests it; a second one ends the program at once, as it would without this block. Nothing is lost
    then either: every write is a whole commit.
    """
    output = click.get_current_context().find_object(Output)
    log = None if output is None else output.log
    received: list[int] = []
    before = _handlers()

    def request_stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        _answer(before)
        message = "Stopping when this batch is finished; once more to stop at once."
        line = f"\n{message}\n" if log is None else log.line("stopping", {"message": message, "signal": number}) + "\n"
        os.write(2, line.encode())  # safe in a handler

    _answer(dict.fromkeys(before, request_stop))
    try:
        yield lambda: bool(received)
    except errors.Interrupted:
        if received:  # else another process requested the stop
            click.get_current_context().meta[_META] = STOPPED + received[0]
        raise
    finally:
        _answer(before)


@contextmanager
def end_on_signals() -> Iterator[None]:
    """Let the first signal end the block by KeyboardInterrupt, and the program; later ones do not disturb cleanup."""
    meta, before = click.get_current_context().meta, _handlers()

    def stop(number: int, _frame: FrameType | None) -> None:
        _answer(dict.fromkeys(before, signal.SIG_IGN))
        meta[_META] = STOPPED + number
        raise KeyboardInterrupt

    _answer(dict.fromkeys(before, stop))
    try:
        yield
    finally:
        if _META not in meta:
            _answer(before)


def _handlers() -> dict[signal.Signals, Any]:
    """The handlers of the signals that end a command, without signals that are ignored, as SIGHUP is under `nohup`."""
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, *HANGUP)}
    return {number: handler for number, handler in found.items() if handler != signal.SIG_IGN}


def _answer(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def stopped_code(context: click.Context, otherwise: int) -> int:
    """The exit code of the signal that stopped the command, or another one if none did."""
    return int(context.meta.get(_META, otherwise))
