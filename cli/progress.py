"""Progress on stderr: bars on a terminal; elsewhere a line at each change of step, and every ten seconds.

With `--log json` such a line is an event, on a terminal too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import click

from compatstore.cli.logs import Log
from compatstore.cli.output import Output, console
from compatstore.html import visible

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID

    from compatstore.upgrade.progress import Progress as Step

INTERVAL = 10.0  # seconds between two lines


class DrawnBars:
    """One bar for each step, made when the step first reports.

    Args:
        progress: Display of the bars.
        doing: Name of the activity before the first step reports.
    """

    def __init__(self, progress: Progress, doing: str) -> None:
        self._progress = progress
        self._before: TaskID | None = progress.add_task(doing, total=None, note="", count="")
        self._tasks: dict[str, Task] = {}

    def update(self, step: str, done: int, total: int | None, note: str = "", cost: float | None = None) -> None:
        """Set a step's bar: units done and in all (None if unknown), and a note, by default the rate."""
        if self._before is not None:
            self._progress.remove_task(self._before)
            self._before = None
        if step not in self._tasks:
            self._progress.add_task(step, total=total, note="", count="")
            self._tasks[step] = self._progress.tasks[-1]
        task = self._tasks[step]
        if done < task.completed:  # the next round has the name of the last
            self._progress.reset(task.id)
        known = f"{done or ''}" if total is None else f"{done:>{len(str(total))}}/{total}"  # never "0/?"
        self._progress.update(task.id, completed=done, total=total, count=known)
        self._progress.update(task.id, note=note or (f"{task.speed:,.0f}/s" if task.speed else ""))

    def say(self, line: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(visible(line), markup=False, highlight=False)


@dataclass(frozen=True)
class Reached:
    """Progress of a step; `cost` is the money used so far.

    `total` is None if unknown, and so is `cost`.
    """

    step: str
    done: int = 0
    total: int | None = None
    note: str = ""
    cost: float | None = None


class Lines:
    """A line when a step begins, one now and then, and one with its result.

    Args:
        write: Takes a line.
        doing: Name of the activity before the first step reports.
        clock: Seconds, monotonic.
        log: Makes each line an event; None for sentences.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        doing: str,
        clock: Callable[[], float] = time.monotonic,
        log: Log | None = None,
    ) -> None:
        self._write, self._clock, self._log = write, clock, log
        self._lock = threading.Lock()
        self._reached, self._began, self._first = Reached(doing), clock(), 0
        self._written: Reached | None = None

    def update(self, step: str, done: int, total: int | None, note: str = "", cost: float | None = None) -> None:
        """Record the state of a step; write it if the step has just begun, and not ended at once."""
        with self._lock:
            begins = step != self._reached.step or done < self._reached.done  # the next candidate's has the same name
            if begins:
                self._finish()
                self._began, self._first, self._written = self._clock(), done, None
            self._reached = Reached(step, done, total, note, cost)
            if begins and (total is None or done < total):
                self._say()

    def say(self, line: str) -> None:
        """Write a line of its own."""
        with self._lock:
            self._write(line if self._log is None else self._log.line("found", {"message": line}))

    def tick(self) -> None:
        """Write the current state, even without a report since."""
        with self._lock:
            self._say()

    def close(self) -> None:
        """Write the result of the last step."""
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        """Write a last line on a step whose latest progress was not written."""
        written, now = self._written, self._reached
        if written is not None and now.total is not None and (written.done, written.total) != (now.done, now.total):
            self._say()

    def _say(self) -> None:
        self._written = now = self._reached
        seconds, done = self._clock() - self._began, now.done - self._first
        rate = done / seconds if done > 0 and seconds > 0 else None
        eta = (now.total - now.done) / rate if now.total is not None and now.total > now.done and rate else None
        if self._log is None:
            self._write(_sentence(now, seconds, rate, eta))
            return
        numbers = {"seconds": seconds, "rate": rate, "eta": eta, "cost": now.cost}
        rounded = {name: None if value is None else round(value, 6) for name, value in numbers.items()}
        counts = {"state": now.step, "rows": now.done, "total": now.total}
        self._write(self._log.line("progress", {**counts, **rounded, "note": now.note or None}))


Bars: TypeAlias = DrawnBars | Lines


def _sentence(now: Reached, seconds: float, rate: float | None, eta: float | None) -> str:
    """Counts, rate and the time that is left."""
    so_far = f"{seconds:.0f} s so far"
    if now.total is None:
        return f"{now.step}: {so_far}"
    parts = [f"{now.step}: {now.done:,} of {now.total:,}", *([now.note] if now.note else [])]
    if rate is not None:
        parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
    if eta is not None:
        parts.append(f"{eta:,.0f} s left")
    return ", ".join([*parts, so_far])


def onto(bars: Bars) -> Callable[[Step], None]:
    """A function that shows the progress of a step, and its result once."""
    written = ""

    def show(progress: Step) -> None:
        nonlocal written
        if progress.found not in ("", written):
            written = progress.found
            for line in written.splitlines():
                bars.say(line)
        bars.update(progress.step, progress.done, progress.total or None, cost=progress.cost)

    return show


@contextmanager
def progress_bars(doing: str, interval: float = INTERVAL) -> Iterator[Bars]:
    """Show progress until the block ends.

    Args:
        doing: Name of the activity before the first step reports.
        interval: Seconds between two lines if stderr is no terminal.
    """
    context = click.get_current_context(silent=True)
    output = None if context is None else context.find_object(Output)
    drawn = console(stderr=True)
    log = None if output is None else output.log
    if log is None and drawn.is_terminal:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=drawn) as progress:
            yield DrawnBars(progress, doing)
        return
    over, lines = threading.Event(), Lines(_write, doing, log=log)

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
    with suppress(OSError):  # the reader is gone; the work goes on
        click.echo(visible(line), err=True)
