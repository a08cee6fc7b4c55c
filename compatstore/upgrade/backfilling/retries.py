"""Calls that may fail for a moment or never come back: tried again with growing waits, and given a time limit."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar

from compatstore.errors import CompatStoreError, SourceError

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Waits between tries: doubling, with a random part so that many callers do not come back at once.

    Args:
        retries: Tries after the first one.
        first: Seconds before the second try.
        longest: Seconds at most.
    """

    retries: int
    first: float = 0.5
    longest: float = 60.0

    def delays(self, rng: random.Random) -> Iterator[float]:
        """Seconds before each further try: each between half of its step and the whole."""
        for step in range(self.retries):
            yield min(self.first * 2**step, self.longest) * rng.uniform(0.5, 1.0)


def may_pass(error: Exception) -> bool:
    """Whether trying again can help: what we refuse ourselves stays refused, all else may have been a bad moment."""
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


class Hangs(Exception):  # noqa: N818  (a signal to the caller, who knows what it was that hangs)
    """The call did not come back in time."""


def within(seconds: float | None, call: Callable[[], T]) -> T:
    """Call, and wait for so many seconds at most; None waits for ever.

    A limited call runs in a thread of its own, because Python cannot end a call from outside. One that does not come
    back goes on there, unheard, until the process ends; it does not keep the process from ending.

    Raises:
        Hangs: It did not come back.
    """
    if seconds is None:
        return call()
    outcome: Future[T] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=work, name="compatstore-encoder", daemon=True).start()
    if not wait([outcome], seconds).done:
        raise Hangs
    return outcome.result()
