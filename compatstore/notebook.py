"""Progress of a call in a notebook, one table below the cell, and in an interactive interpreter, one line a step."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from compatstore.html import visible
from compatstore.shown import Shown, Table, table, view
from compatstore.upgrade.progress import Progress

INTERVAL = 0.5  # seconds between two drawings


class ShowProgress(Shown):
    """Progress display in a notebook, the `progress` argument of `upgrade`, `cutover` and other verbs.

    Without a notebook it writes to stderr: on a terminal one line a step, drawn again as the step goes on, elsewhere a
    line when a step begins and when it has ended. An interactive interpreter shows it by default.

    Args:
        interval: Seconds between two drawings.

    Examples:
        >>> shown = cs.ShowProgress()  # gallery.upgrade("v2", progress=shown)
        >>> shown.steps
        ()
    """

    def __init__(self, *, interval: float = INTERVAL) -> None:
        self._steps: dict[str, Progress] = {}
        self._interval, self._drawn_at = interval, 0.0
        self._draw: Callable[[], None] | None = None
        self._line = ""  # step whose line on a terminal is open

    @property
    def steps(self) -> tuple[Progress, ...]:
        """State of each step, in the order in which they began."""
        return tuple(self._steps.values())

    def __call__(self, progress: Progress) -> None:
        """Record the state of a step, and draw it if due."""
        known = self._steps.get(progress.step)
        turns = known is None or progress.done >= progress.total or progress.found != known.found
        self._steps[progress.step] = progress
        if turns or time.monotonic() - self._drawn_at >= self._interval:
            self._drawn_at = time.monotonic()
            if self._draw is None:  # below the cell that runs, or line by line on stderr
                display = _display()
                handle = None if display is None else display(self, display_id=True)
                self._draw = self._write if handle is None else lambda: handle.update(self)
            self._draw()

    def _write(self) -> None:
        last = next(reversed(self._steps.values()))
        said = visible(f"{last.step}: {last.done:,} of {last.total:,}")
        if not sys.stderr.isatty():
            sys.stderr.write(f"{said}\n")
            return
        begun = "\n" if self._line not in ("", last.step) else ""
        ended = last.done >= last.total
        self._line = "" if ended else last.step
        sys.stderr.write(f"{begun}\r\x1b[K{said}" + "\n" * ended)
        sys.stderr.flush()


@view.register
def _(result: ShowProgress) -> Iterator[str | Table]:
    """View of the steps."""
    yield table(
        ("step", "done", "of", "rows/s", "seconds left"),
        [
            (step.step, step.done, step.total, round(step.rate), round(step.eta) if step.rate > 0 else None)
            for step in result.steps
        ],
    )
    yield from (step.found for step in result.steps[-1:] if step.found)


def default_progress() -> ShowProgress | None:
    """The default progress of a call: shown on the terminal of an interactive interpreter."""
    return ShowProgress() if hasattr(sys, "ps1") and sys.stderr.isatty() else None


def _display() -> Callable[..., Any] | None:
    """Display function of the running cell; None outside of a notebook's kernel."""
    loaded = sys.modules.get("IPython")  # a kernel has loaded it
    shell = None if loaded is None else loaded.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    shows: Callable[..., Any] = display
    return shows
