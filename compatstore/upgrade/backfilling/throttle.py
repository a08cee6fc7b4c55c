"""Bounds of a backfill: sizes of batches, its pace, and retries and time limits of calls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from compatstore.encoders import meter
from compatstore.errors import CompatStoreError, SourceError
from compatstore.upgrade.requests.run_settings import RunSettings, read_latency

FIRST_ROWS, MOST_ROWS, GROWTH = 16, 1024, 4
SECONDS_A_BATCH, SECONDS_A_PACED_BATCH = 10.0, 1.0
SLOWEST = 1 / 64
RECOVERY = 1.25
LONGEST_REST = 60.0
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0  # seconds between tries

T = TypeVar("T")


class BatchSize:
    """Finds the number of items that the encoder embeds in a given time.

    A stop is answered after a batch, and a batch that is lost is embedded a second time, so a batch should be short.
    Each batch is a file or a commit, so it should not be small.

    Batches are short if a pace is held, so that it is held evenly.

    Args:
        settings: Size, pace and latency that were requested.
        most: Items of a batch at most, if no size was requested.
    """

    def __init__(self, settings: RunSettings, most: int = MOST_ROWS) -> None:
        self._fixed = settings.batch_rows
        held = settings.throttle is not None or settings.latency_bound is not None
        self._seconds = SECONDS_A_PACED_BATCH if held else SECONDS_A_BATCH
        paced = most if settings.throttle is None else int(settings.throttle * self._seconds)
        self._most = max(min(most, paced), 1)
        self._rows = min(FIRST_ROWS, self._most)
        self._rate: float | None = None

    @property
    def rows(self) -> int:
        """Items of the next batch, >= 1."""
        return self._fixed or self._rows

    def within(self, seconds: float | None) -> int:
        """Items of the next batch if `seconds` are left; None without a limit."""
        if seconds is None or self._rate is None:
            return self.rows
        return max(min(self.rows, int(self._rate * seconds)), 1)

    def learn(self, rows: int, seconds: float) -> None:
        """Note how long a batch took in the encoder; the size grows at most fourfold, as first batches mislead."""
        if not rows:
            return
        self._rate = rows / max(seconds, 1e-9)
        self._rows = max(min(int(self._rate * self._seconds), GROWTH * rows, self._most), 1)


class Pace:
    """Waits before the next batch.

    Two reasons to wait add no time to each other; the longer one counts.

    * A rate. After n items the next batch waits until n / rate seconds have passed since they began. Time that was not
      used is not saved up, so in any span of t seconds at most rate * t items and one batch are embedded.
    * The app's latency. Each batch that ends with a latency above the bound halves the share of the time in which the
      encoder works, down to 1/64; each other one raises it by a quarter, up to all of the time.

    While the latency is unknown, the share stays.

    Args:
        settings: Rate and latency to hold.
        clock: Seconds, monotonic.
    """

    def __init__(self, settings: RunSettings, clock: Callable[[], float] = time.monotonic) -> None:
        file = settings.latency_file
        self._latency = settings.latency if file is None else lambda: read_latency(file)
        self._throttle, self._bound, self._clock = settings.throttle, settings.latency_bound, clock
        self._free_at = self._began = clock()
        self.share = 1.0

    def delay(self) -> float:
        """Seconds to wait before the next batch."""
        return max(self._free_at - self._clock(), 0.0)

    def begin(self, rows: int = 0) -> None:
        """A batch of `rows` items begins now; another one may begin before it ends."""
        self._began = self._clock()
        if self._throttle:
            self._free_at = max(self._free_at, self._began + rows / self._throttle)

    def end(self, rows: int) -> None:
        """The batch that began has embedded `rows` items."""
        now = self._clock()
        due = self._began + rows / self._throttle if self._throttle else now
        self._free_at = max(due, now + self._rest(now - self._began))

    def _rest(self, busy: float) -> float:
        """Seconds of rest after `busy` seconds of work, by the app's latency now."""
        found = self._latency() if self._latency is not None and self._bound is not None else None
        if found is not None and self._bound is not None:
            self.share = max(self.share / 2, SLOWEST) if found > self._bound else min(self.share * RECOVERY, 1.0)
        return min(busy * (1 / self.share - 1), LONGEST_REST)


def backoff(retries: int, rng: random.Random) -> Iterator[float]:
    """Seconds to wait before each further try: doubling from half a second to a minute, each by half at random.

    The random part keeps many callers from coming back at once.
    """
    for step in range(retries):
        yield min(FIRST_WAIT * 2**step, LONGEST_WAIT) * rng.uniform(0.5, 1.0)


def may_pass(error: Exception) -> bool:
    """True if another try can help: not if compatstore itself refused, else the fault may have passed."""
    return isinstance(error, SourceError) or not isinstance(error, CompatStoreError)


def with_retries(call: Callable[[], T], delays: Iterator[float], rest: Callable[[float], None]) -> T:
    """Call until it succeeds or the delays are used up; then the last error is raised."""
    while True:
        try:
            return call()
        except Exception as error:
            delay = next(delays, None) if may_pass(error) else None
            if delay is None:
                raise
        rest(delay)


class Hangs(Exception):  # noqa: N818  (a signal to the caller, who names the call)
    """The call did not return in time."""


def within(seconds: float | None, call: Callable[[], T]) -> T:
    """Call, and wait for `seconds` at most; None waits for ever.

    A limited call runs in a thread of its own, because Python cannot end a call from outside. A call that does not
    return runs on in that thread until the process ends; the thread does not keep the process from ending. The time
    that the call rests for a rate limit is given to it in addition.

    Raises:
        Hangs: It did not return.
    """
    if seconds is None:
        return call()
    outcome: Future[T] = Future()
    surroundings, meter_of_call = copy_context(), meter()
    started, rested = time.monotonic(), meter_of_call.waited

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=surroundings.run, args=(work,), name="compatstore-encoder", daemon=True).start()
    while not outcome.done():
        left = started + seconds + meter_of_call.waited - rested - time.monotonic()
        if not wait([outcome], max(left, 0.0)).done and left <= 0:
            raise Hangs
    return outcome.result()
