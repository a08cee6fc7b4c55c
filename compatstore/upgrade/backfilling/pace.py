"""The pace of a backfill: items a second at most, and slower while the app's searches are slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

SLOWEST = 1 / 64
RECOVERY = 1.25
LONGEST_REST = 60.0

Latency = Callable[[], float | None]


class Pace:
    """Says how long to wait before the next batch.

    Two reasons to wait add no time to each other; the longer one counts.

    * A rate. After n items the next batch waits until n / rate seconds have passed since they began. Time that was not
      used is not saved up, so in any span of t seconds at most rate * t items and one batch are embedded.
    * The app's latency. Each batch that ends with a latency above the bound halves the share of the time in which the
      encoder works, down to 1/64; each other one raises it by a quarter, up to all of the time.

    Args:
        throttle: Items a second, > 0, or None.
        latency: Gives the app's search latency in milliseconds, or None when nobody knows it now: then the pace stays.
        bound: Milliseconds above which the backfill steps back, > 0, or None.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        throttle: float | None = None,
        latency: Latency | None = None,
        bound: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._throttle, self._latency, self._bound, self._clock = throttle, latency, bound, clock
        self._free_at = clock()
        self._began = clock()
        self.share = 1.0

    def delay(self) -> float:
        """Seconds to wait before the next batch."""
        return max(self._free_at - self._clock(), 0.0)

    def begin(self) -> None:
        """A batch begins now."""
        self._began = self._clock()

    def end(self, rows: int) -> None:
        """The batch that began has embedded so many items."""
        now = self._clock()
        due = self._began + rows / self._throttle if self._throttle else now
        self._free_at = max(due, now + self._rest(now - self._began))

    def _rest(self, busy: float) -> float:
        """Seconds of rest after so many of work, by the app's latency now."""
        found = self._latency() if self._latency is not None and self._bound is not None else None
        if found is not None and self._bound is not None:
            self.share = max(self.share / 2, SLOWEST) if found > self._bound else min(self.share * RECOVERY, 1.0)
        return min(busy * (1 / self.share - 1), LONGEST_REST)


def read_latency(path: str | Path) -> float | None:
    """The milliseconds that an app wrote into a file, or None while there is no number in it."""
    try:
        return float(Path(path).read_text())
    except (OSError, ValueError):
        return None
