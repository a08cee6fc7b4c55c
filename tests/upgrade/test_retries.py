"""Trying again, and not waiting for ever."""

from __future__ import annotations

import random
from threading import Event

import pytest

from compatstore.errors import InvalidInput, MissingExtra, SourceError
from compatstore.upgrade.backfilling.throttle import Hangs, backoff, may_pass, with_retries, within


def failing(times, error):
    calls = []

    def call():
        calls.append(1)
        if len(calls) <= times:
            raise error
        return len(calls)

    return call


def test_waits_double_up_to_a_limit_with_a_random_part():
    delays = list(backoff(9, random.Random(3)))
    steps = [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert all(step / 2 <= delay <= step for step, delay in zip(steps, delays, strict=True))
    assert len({delay / step for step, delay in zip(steps, delays, strict=True)}) == 9


def test_it_tries_as_often_as_there_are_delays_and_rests_between():
    rests = []
    assert with_retries(failing(2, ConnectionError()), iter([0.1, 0.2, 0.3]), rests.append) == 3
    assert rests == [0.1, 0.2]
    with pytest.raises(ConnectionError):
        with_retries(failing(9, ConnectionError()), iter([0.1, 0.2]), rests.append)


def test_what_cannot_pass_is_not_tried_again():
    rests = []
    with pytest.raises(MissingExtra):
        with_retries(failing(1, MissingExtra("torch", "train")), iter([1.0]), rests.append)
    assert rests == []
    assert not may_pass(InvalidInput("x"))
    assert may_pass(SourceError("x", {}))
    assert may_pass(ValueError())


def test_a_call_in_time_gives_its_result_or_its_error():
    assert within(None, lambda: 5) == 5
    assert within(10.0, lambda: 5) == 5
    with pytest.raises(TimeoutError, match="of its own"):
        within(10.0, failing(1, TimeoutError("of its own")))


def test_a_call_that_hangs_is_left_behind():
    release = Event()
    with pytest.raises(Hangs):
        within(0.05, release.wait)
    release.set()
