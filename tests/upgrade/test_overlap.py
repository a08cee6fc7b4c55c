"""Reading ahead and writing behind, in the order that durability needs."""

from __future__ import annotations

from threading import Event

import pytest

from compatstore.upgrade.backfilling.backfill import overlap


def at_once(work):
    """What begins a batch, and works on it when it is asked for."""
    return lambda batch: lambda: work(batch)


GUARD = 600  # seconds; only what hangs waits so long


def counting(n):
    numbers = iter(range(n))
    return lambda: next(numbers, None)


def test_every_batch_goes_through_in_order():
    for n in range(6):
        assert list(overlap(counting(n), lambda i: 10 * i, at_once(lambda i: i + 1), str)) == [
            f"{10 * i + 1}" for i in range(n)
        ]


def test_the_next_is_read_and_the_one_before_written_while_one_is_worked_on():
    read, written = [Event() for _ in range(4)], [Event() for _ in range(4)]

    def reading(i):
        read[i].set()
        return i

    def work(i):
        if i < 3:
            assert read[i + 1].wait(GUARD), "the next batch is read meanwhile"
        if i > 0:
            assert written[i - 1].wait(GUARD), "the batch before is written meanwhile"
        return i

    def write(i):
        written[i].set()
        return i

    assert list(overlap(counting(4), reading, at_once(work), write)) == [0, 1, 2, 3]


def test_a_batch_is_written_before_the_one_after_the_next_is_worked_on():
    written = []

    def work(i):
        assert len(written) >= i - 1
        return i

    list(overlap(counting(20), lambda i: i, at_once(work), written.append))
    assert written == list(range(20))


def test_what_was_worked_on_is_written_although_the_next_fails():
    written = []

    def work(i):
        if i == 3:
            raise KeyError("three")
        return i

    with pytest.raises(KeyError):
        list(overlap(counting(9), lambda i: i, at_once(work), written.append))
    assert written == [0, 1, 2]


def test_what_was_worked_on_is_written_although_the_caller_stops():
    written = []
    for done in overlap(counting(9), lambda i: i, at_once(lambda i: i), lambda i: written.append(i) or i):
        if done == 1:
            break
    assert written == [0, 1, 2]


def test_an_error_of_the_writer_comes_before_more_is_made():
    worked = []

    def write(i):
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        list(overlap(counting(9), lambda i: i, at_once(lambda i: worked.append(i) or i), write))
    assert worked == [0, 1]


def test_an_error_of_the_reader_ends_it():
    written = []

    def read(i):
        if i == 2:
            raise LookupError("gone")
        return i

    with pytest.raises(LookupError):
        list(overlap(counting(9), read, at_once(lambda i: i), written.append))
    assert written == [0, 1]


def test_what_comes_up_while_the_last_batch_is_worked_on_is_taken_too():
    again = []

    def take():
        return again.pop() if again else None

    def work(i):
        if i < 3:
            again.append(i + 1)
        return i

    again.append(0)
    assert list(overlap(take, lambda i: i, at_once(work), lambda i: i)) == [0, 1, 2, 3]


@pytest.mark.parametrize("several", [2, 3])
def test_several_are_under_way_at_once_and_come_in_order(several):
    begun, finished = [], []

    def begin(i):
        begun.append(i)
        assert len(begun) - len(finished) <= several
        return lambda: finished.append(i) or i

    assert list(overlap(counting(9), lambda i: i, begin, lambda i: i, at_once=several)) == list(range(9))
    assert begun == finished == list(range(9))


def test_what_is_under_way_is_finished_and_written_where_no_more_may_begin():
    written = []

    def begin(i):
        if i == 4:
            raise KeyError("a stop was asked for")
        return lambda: i

    with pytest.raises(KeyError):
        list(overlap(counting(9), lambda i: i, begin, written.append, at_once=3))
    assert written == [0, 1, 2, 3]
