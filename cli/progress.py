"""Progress bars on stderr: rows, rate and time left; nothing where stderr is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from compatstore.upgrade.progress import Progress as Step


class Bars:
    """One bar for each step, made when the step first reports.

    Args:
        progress: Where they are drawn.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._started: dict[str, float] = {}

    def update(self, step: str, done: int, total: int | None, note: str = "") -> None:
        """Set a step's bar.

        Args:
            step: Its name.
            done: Units done.
            total: Units in all, or None where nobody knows.
            note: What stands behind the bar; the rate by default.
        """
        if step not in self._tasks:
            self._tasks[step] = self._progress.add_task(step, total=total, note="")
            self._started[step] = time.monotonic()
        seconds = time.monotonic() - self._started[step]
        rate = f"{done / seconds:,.0f}/s" if seconds > 0 else ""
        self._progress.update(self._tasks[step], completed=done, total=total, note=note or rate)


def onto(bars: Bars) -> Callable[[Step], None]:
    """What an upgrade calls after each batch, drawn."""
    return lambda progress: bars.update(progress.step, progress.done, progress.total)


@contextmanager
def progress_bars() -> Iterator[Bars]:
    """Draw bars until the block ends."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Bars(progress)
