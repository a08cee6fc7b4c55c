"""Ctrl-C and SIGTERM: finish the batch at hand, then stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from compatstore.cli.exit_codes import STOPPED
from compatstore.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_META = "compatstore.stopped_by"


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether a stop was asked for.

    The first signal asks; a second one ends the program at once, as it would without this block. Nothing is lost then
    either: what is written is written in whole commits.
    """
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        restore()
        os.write(2, b"\nStopping when this batch is finished; once more to stop at once.\n")  # safe in a handler

    for number in SIGNALS:
        signal.signal(number, ask)
    try:
        yield lambda: bool(received)
    except Interrupted:
        if received:  # it may be another process that asked
            click.get_current_context().meta[_META] = STOPPED + received[0]
        raise
    finally:
        restore()


def stopped_code(context: click.Context, otherwise: int) -> int:
    """The exit code of the signal that stopped the command, or another one where none did."""
    return int(context.meta.get(_META, otherwise))
