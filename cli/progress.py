"""Progress on stderr: bars on a terminal; elsewhere a line at each change of step, and every ten seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

import click

from compatstore.cli.output import console
from compatstore.visible import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from compatstore.upgrade.progress import Progress as Step

INTERVAL = 10.0  # seconds between two lines


class Bars(Protocol):
    """What shows how far steps are."""

    def update(self, step: str, done: int, total: int | None, note: str = "") -> None:
        """Say where a step is.

        Args:
            step: Its name.
            done: Units done.
            total: Units in all, or None where nobody knows.
            note: What stands behind; the rate by default.
        """

    def say(self, line: str) -> None:
        """Say something that stays to be read."""


class DrawnBars:
    """One bar for each step, made when the step first reports.

    Args:
        progress: Where they are drawn.
        doing: What goes on before the first step reports.
    """

    def __init__(self, progress: Progress, doing: str) -> None:
        self._progress = progress
        self._before: TaskID | None = progress.add_task(doing, total=None, note="")
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}

    def update(self, step: str, done: int, total: int | None, note: str = "") -> None:
        """Set a step's bar."""
        if self._before is not None:
            self._progress.remove_task(self._before)
            self._before = None
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total, note="")
            self._started[step] = time.monotonic()
        seconds = time.monotonic() - self._started[step]
        rate = f"{done / seconds:,.0f}/s" if seconds > 0 else ""
        self._progress.update(self._tasks[step], completed=done, total=total, note=note or rate)

    def say(self, line: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(visible(line), markup=False, highlight=False)


class Lines:
    """A line when a step begins, one now and then, and one with what it came to.

    Args:
        write: Takes a line.
        doing: What goes on before the first step reports.
        clock: Seconds, monotonic.
    """

    def __init__(self, write: Callable[[str], None], doing: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._step, self._began, self._first = doing, clock(), 0
        self._done, self._note = 0, ""
        self._total: int | None = None
        self._said = ""

    def update(self, step: str, done: int, total: int | None, note: str = "") -> None:
        """Note where a step is; say so where it has just begun, and not ended at once."""
        with self._lock:
            begins = step != self._step or done < self._done  # another candidate's training has the name of the last
            if begins:
                self._finish()
                self._step, self._began, self._first, self._said = step, self._clock(), done, ""
            self._done, self._total, self._note = done, total, note
            if begins and (total is None or done < total):
                self._say(self._line())

    def say(self, line: str) -> None:
        """Write a line of its own."""
        with self._lock:
            self._write(line)

    def tick(self) -> None:
        """Say where things are, whether or not anything was reported since."""
        with self._lock:
            self._say(self._line())

    def close(self) -> None:
        """Say what the last step came to."""
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        """One more line on a step of which more was reported than said."""
        if self._said and self._total is not None and not self._said.startswith(self._counts()):
            self._say(self._line())

    def _counts(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        return f"{self._step}: {self._done:,}{of}"

    def _line(self) -> str:
        seconds = self._clock() - self._began
        if self._total is None:
            return f"{self._step}: {seconds:.0f} s so far"
        done = self._done - self._first
        rate = done / seconds if done > 0 and seconds > 0 else None
        parts = [self._counts(), *([self._note] if self._note else [])]
        if rate is not None:
            parts += [f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"]
            if self._done < self._total:
                parts += [f"{(self._total - self._done) / rate:,.0f} s left"]
        return ", ".join([*parts, f"{seconds:.0f} s so far"])

    def _say(self, line: str) -> None:
        self._said = line
        self._write(line)


def onto(bars: Bars) -> Callable[[Step], None]:
    """What an upgrade calls after each batch, shown: where its step is, and what it has found, once."""
    said = ""

    def show(progress: Step) -> None:
        nonlocal said
        if progress.found not in ("", said):
            said = progress.found
            bars.say(said)
        bars.update(progress.step, progress.done, progress.total or None)

    return show


@contextmanager
def progress_bars(doing: str, interval: float = INTERVAL) -> Iterator[Bars]:
    """Show progress until the block ends.

    Args:
        doing: What goes on before the first step reports.
        interval: Seconds between two lines where stderr is no terminal.
    """
    drawn = console(stderr=True)
    if not drawn.is_terminal:
        with _lines(doing, interval) as lines:
            yield lines
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=drawn) as progress:
        yield DrawnBars(progress, doing)


@contextmanager
def _lines(doing: str, interval: float) -> Iterator[Lines]:
    """Lines on stderr, with a thread that makes one when it is time."""
    over = threading.Event()
    lines = Lines(_write, doing)

    def tick() -> None:
        while not over.wait(interval):
            lines.tick()

    thread = threading.Thread(target=tick, name="progress", daemon=True)
    thread.start()
    try:
        yield lines
    finally:
        over.set()
        thread.join()
        lines.close()


def _write(line: str) -> None:
    with suppress(OSError):  # whoever read this has gone; what is worked on goes on
        click.echo(visible(line), err=True)
