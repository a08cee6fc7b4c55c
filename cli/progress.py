"""Progress on stderr: bars on a terminal; elsewhere a line at each change of step, and every ten seconds.

With `--log json` such a line is an event, on a terminal too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import click

from compatstore.cli.logs import Log
from compatstore.cli.output import Output, console
from compatstore.html import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from compatstore.upgrade.progress import Progress as Step

INTERVAL = 10.0  # seconds between two lines


class Bars(Protocol):
    """What shows how far steps are."""

    def update(self, step: str, done: int, total: int | None, note: str = "", cost: float | None = None) -> None:
        """Say where a step is.

        Args:
            step: Its name.
            done: Units done.
            total: Units in all, or None where nobody knows.
            note: What stands behind; the rate by default.
            cost: Money used so far, or None.
        """

    def say(self, line: str) -> None:
        """Say something that stays to be read."""


class DrawnBars:
    """One bar for each step, made when the step first reports.

    Args:
        progress: Where they are drawn.
        doing: What goes on before the first step reports.
        clock: Seconds, monotonic.
    """

    def __init__(self, progress: Progress, doing: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._progress, self._clock = progress, clock
        self._before: TaskID | None = progress.add_task(doing, total=None, note="")
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, tuple[float, int, int]] = {}  # by step: when, what was done then, and what is done now

    def update(self, step: str, done: int, total: int | None, note: str = "", cost: float | None = None) -> None:
        """Set a step's bar."""
        if self._before is not None:
            self._progress.remove_task(self._before)
            self._before = None
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total, note="")
        now = self._clock()
        began, first, before = self._began.get(step, (now, done, done))
        if done < before:  # the next wave has the name of the last
            began, first = now, done
        self._began[step] = began, first, done
        rate = f"{(done - first) / (now - began):,.0f}/s" if done > first and now > began else ""
        self._progress.update(self._tasks[step], completed=done, total=total, note=note or rate)

    def say(self, line: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(visible(line), markup=False, highlight=False)


@dataclass(frozen=True)
class Reached:
    """Where a step is.

    Attributes:
        step: Its name.
        done: Units done.
        total: Units in all, or None where nobody knows.
        seconds: Since it began.
        rate: Units a second, or None before any is done.
        note: What its caller says of it.
        cost: Money used so far, or None.
    """

    step: str
    done: int
    total: int | None
    seconds: float
    rate: float | None
    note: str
    cost: float | None

    @property
    def eta(self) -> float | None:
        """Seconds that are left; None where nothing is, or nobody knows."""
        left = None if self.total is None else self.total - self.done
        return left / self.rate if left and left > 0 and self.rate else None

    @property
    def counts(self) -> tuple[str, int, int | None]:
        """What makes another line worth writing."""
        return self.step, self.done, self.total


class Wording(Protocol):
    """What the lines are."""

    def reached(self, reached: Reached) -> str:
        """Where a step is."""

    def said(self, line: str) -> str:
        """Something that stays to be read."""


class Sentences:
    """Lines for people."""

    def reached(self, reached: Reached) -> str:
        """Counts, rate and the time that is left."""
        so_far = f"{reached.seconds:.0f} s so far"
        if reached.total is None:
            return f"{reached.step}: {so_far}"
        parts = [f"{reached.step}: {reached.done:,} of {reached.total:,}", *([reached.note] if reached.note else [])]
        if reached.rate is not None:
            parts.append(f"{reached.rate:,.0f}/s" if reached.rate >= 10 else f"{reached.rate:.2g}/s")
        if reached.eta is not None:
            parts.append(f"{reached.eta:,.0f} s left")
        return ", ".join([*parts, so_far])

    def said(self, line: str) -> str:
        """The line itself."""
        return line


class Events:
    """Lines for machines: an event each.

    Args:
        log: Knows what all events have.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def reached(self, reached: Reached) -> str:
        """An event "progress"."""
        rounded = {"seconds": reached.seconds, "rate": reached.rate, "eta": reached.eta, "cost": reached.cost}
        fields = {
            "state": reached.step,
            "rows": reached.done,
            "total": reached.total,
            **{name: None if value is None else round(value, 6) for name, value in rounded.items()},
            "note": reached.note or None,
        }
        return self._log.line("progress", fields)

    def said(self, line: str) -> str:
        """An event "found"."""
        return self._log.line("found", {"message": line})


class Lines:
    """A line when a step begins, one now and then, and one with what it came to.

    Args:
        write: Takes a line.
        doing: What goes on before the first step reports.
        clock: Seconds, monotonic.
        wording: Makes the lines.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        doing: str,
        clock: Callable[[], float] = time.monotonic,
        wording: Wording | None = None,
    ) -> None:
        self._write, self._clock, self._wording = write, clock, wording or Sentences()
        self._lock = threading.Lock()
        self._step, self._began, self._first = doing, clock(), 0
        self._done, self._note = 0, ""
        self._total: int | None = None
        self._cost: float | None = None
        self._said: Reached | None = None

    def update(self, step: str, done: int, total: int | None, note: str = "", cost: float | None = None) -> None:
        """Note where a step is; say so where it has just begun, and not ended at once."""
        with self._lock:
            begins = step != self._step or done < self._done  # another candidate's training has the name of the last
            if begins:
                self._finish()
                self._step, self._began, self._first, self._said = step, self._clock(), done, None
            self._done, self._total, self._note, self._cost = done, total, note, cost
            if begins and (total is None or done < total):
                self._say(self._reached())

    def say(self, line: str) -> None:
        """Write a line of its own."""
        with self._lock:
            self._write(self._wording.said(line))

    def tick(self) -> None:
        """Say where things are, whether or not anything was reported since."""
        with self._lock:
            self._say(self._reached())

    def close(self) -> None:
        """Say what the last step came to."""
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        """One more line on a step of which more was reported than said."""
        reached = self._reached()
        if self._said is not None and self._total is not None and self._said.counts != reached.counts:
            self._say(reached)

    def _reached(self) -> Reached:
        seconds = self._clock() - self._began
        done = self._done - self._first
        rate = done / seconds if done > 0 and seconds > 0 else None
        return Reached(self._step, self._done, self._total, seconds, rate, self._note, self._cost)

    def _say(self, reached: Reached) -> None:
        self._said = reached
        self._write(self._wording.reached(reached))


def onto(bars: Bars) -> Callable[[Step], None]:
    """What an upgrade calls after each batch, shown: where its step is, and what it has found, once."""
    said = ""

    def show(progress: Step) -> None:
        nonlocal said
        if progress.found not in ("", said):
            said = progress.found
            for line in said.splitlines():
                bars.say(line)
        bars.update(progress.step, progress.done, progress.total or None, cost=progress.cost)

    return show


@contextmanager
def progress_bars(doing: str, interval: float = INTERVAL) -> Iterator[Bars]:
    """Show progress until the block ends.

    Args:
        doing: What goes on before the first step reports.
        interval: Seconds between two lines where stderr is no terminal.
    """
    context = click.get_current_context(silent=True)
    output = None if context is None else context.find_object(Output)
    drawn = console(stderr=True)
    if output is not None and output.log is not None:
        with _lines(doing, interval, Events(output.log)) as lines:
            yield lines
        return
    if not drawn.is_terminal:
        with _lines(doing, interval, Sentences()) as lines:
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
def _lines(doing: str, interval: float, wording: Wording) -> Iterator[Lines]:
    """Lines on stderr, with a thread that makes one when it is time."""
    over = threading.Event()
    lines = Lines(_write, doing, wording=wording)

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
