"""Progress reports of a long step, and requests to stop it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from compatstore import next_step
from compatstore.errors import Interrupted

LONGEST_NAP = 0.2  # seconds until a stop is noticed while waiting
# Step -> its display name and its unit, if these are not its own name and rows.
_COUNTED = {"learn": ("training round", "steps")}


@dataclass(frozen=True)
class Progress:
    """Progress of a step.

    Attributes:
        step: expand, hop, backfill, fold, learn, index; of a plan probe; of a measurement sample, search, rank, choose.
        done: Rows done by this process; of "learn" fits and measurements, of "rank" queries times ways to search.
        total: Total amount of work, in the same units, as far as known.
        seconds: Time since the step began.
        found: The last result and the next step, lines for people; "" before the first result.
        cost: Money that the backfill has used so far, over all calls; None if the step spends none.
    """

    step: str
    done: int
    total: int
    seconds: float
    found: str = ""
    cost: float | None = None

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta(self) -> float:
        """Seconds that are left at this rate; infinite before anything is done."""
        return (self.total - self.done) / self.rate if self.rate > 0 else float("inf")


OnProgress: TypeAlias = Callable[[Progress], None] | None


@dataclass(frozen=True)
class Observer:
    """The caller of a long operation.

    Attributes:
        progress: Called after each batch.
        should_stop: Called before each batch; true ends the operation with `Interrupted`.
    """

    progress: OnProgress = None
    should_stop: Callable[[], bool] | None = None

    def report(self, at: Progress) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(at)

    def stops(self) -> bool:
        """True if the operation is to end."""
        return self.should_stop is not None and self.should_stop()


UNOBSERVED = Observer()


class Monitor:
    """Reports the progress of one step and stops it between batches.

    Args:
        step: Name of the step.
        total: Rows to do.
        report: Called after each batch, or None.
        should_stop: Called before each batch; true ends the step with `Interrupted`.
        found: Result before the step, reported with its progress.

    Attributes:
        done: Rows done so far.
        cost: Money used so far, reported with the progress; None until it is set.
    """

    def __init__(
        self,
        step: str,
        total: int,
        report: OnProgress = None,
        should_stop: Callable[[], bool] | None = None,
        found: str = "",
    ) -> None:
        self._step, self._total, self._observer = step, total, Observer(report, should_stop)
        self._started, self._found = time.monotonic(), found
        self.done = 0
        self.cost: float | None = None

    @property
    def seconds(self) -> float:
        """Time since the step began."""
        return time.monotonic() - self._started

    def advance(self, rows: int) -> None:
        """Count rows that are done and report."""
        self.done += rows
        total = max(self._total, self.done)
        self._observer.report(Progress(self._step, self.done, total, self.seconds, self._found, self.cost))

    def begin(self) -> None:
        """Report that a step begins which says nothing until it ends."""
        self.advance(0)

    def reach(self, done: int, total: int) -> None:
        """Report where the step is, of as much as is known by now.

        Raises:
            Interrupted: A stop was requested.
        """
        self._total = total
        self.advance(done - self.done)
        self.check()

    def finish(self) -> None:
        """Report all rows as done."""
        self.advance(self._total - self.done)

    def rest(self, seconds: float) -> None:
        """Wait `seconds`, or until a stop is requested.

        Raises:
            Interrupted: It was.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, LONGEST_NAP))

    def check(self) -> None:
        """Stop here if a stop was requested.

        Raises:
            Interrupted: It was; all finished batches are in the table.
        """
        if self._observer.stops():
            step, counted = _COUNTED.get(self._step, (self._step, "rows"))
            fix = f"All finished batches are kept; {next_step.same()} goes on from here."
            raise Interrupted(f"run the {step}", found=f"a stop was requested after {self.done} {counted}", fix=fix)
