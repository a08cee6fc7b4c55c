"""The pace of a backfill against a clock that the test turns: no real time passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.upgrade.backfilling.throttle import LONGEST_REST, SLOWEST, Pace
from compatstore.upgrade.requests.run_settings import RunSettings, read_latency


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def embed(pace, clock, rows, seconds):
    """One batch: wait as long as the pace says, then work."""
    clock.now += pace.delay()
    began = clock.now
    pace.begin()
    clock.now += seconds
    pace.end(rows)
    return began


@given(st.floats(0.5, 500), st.lists(st.tuples(st.integers(0, 200), st.floats(0, 5)), min_size=2, max_size=40))
def test_no_span_of_time_sees_more_than_the_rate_and_one_batch(rate, batches):
    clock = Clock()
    pace = Pace(RunSettings(throttle=rate), clock)
    begun = [(embed(pace, clock, rows, seconds), rows) for rows, seconds in batches]
    for first, (start, _) in enumerate(begun):
        rows = 0
        for end, count in begun[first:]:
            assert rows <= rate * (end - start) + 1e-6 * (1 + rows)
            rows += count


def test_an_encoder_slower_than_the_rate_never_waits():
    clock = Clock()
    pace = Pace(RunSettings(throttle=10.0), clock)
    for _ in range(5):
        embed(pace, clock, 10, 2.0)
        assert pace.delay() == 0


def test_time_that_was_not_used_is_not_saved_up():
    clock = Clock()
    pace = Pace(RunSettings(throttle=10.0), clock)
    clock.now += 1000
    embed(pace, clock, 50, 1.0)
    assert pace.delay() == pytest.approx(4.0)


def test_slow_searches_halve_the_share_of_time_and_fast_ones_give_it_back():
    clock, latency = Clock(), [50.0]
    pace = Pace(RunSettings(latency=lambda: latency[0], latency_bound=20.0), clock)
    delays = []
    for _ in range(3):
        embed(pace, clock, 10, 1.0)
        delays.append(pace.delay())
    assert delays == pytest.approx([1.0, 3.0, 7.0])
    for _ in range(20):
        embed(pace, clock, 10, 1.0)
    assert pace.share == SLOWEST
    assert pace.delay() == LONGEST_REST, "it never stops for good"
    latency[0] = 5.0
    shares = []
    for _ in range(30):
        embed(pace, clock, 10, 1.0)
        shares.append(pace.share)
    assert shares == sorted(shares)
    assert (shares[-1], pace.delay()) == (1.0, 0.0)


def test_an_unknown_latency_leaves_the_pace_as_it_is():
    clock, latency = Clock(), [50.0]
    pace = Pace(RunSettings(latency=lambda: latency[0], latency_bound=20.0), clock)
    embed(pace, clock, 10, 1.0)
    latency[0] = None
    embed(pace, clock, 10, 1.0)
    assert pace.share == 0.5
    assert pace.delay() == pytest.approx(1.0)


def test_a_latency_is_read_from_a_file(tmp_path):
    path = tmp_path / "p99"
    assert read_latency(path) is None
    path.write_text("12.5\n")
    assert read_latency(path) == 12.5
    path.write_text("")
    assert read_latency(path) is None


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"throttle": 0.0}, "throttle > 0"),
        ({"batch_rows": 0}, "batch_rows > 0"),
        ({"retries": -1}, "retries >= 0"),
        ({"encoder_timeout": -1.0}, "encoder_timeout > 0"),
        ({"latency_bound": 20.0}, "latency_bound with one of"),
        ({"latency_file": "/nowhere/p99"}, "no bound and 1 sources"),
        ({"latency_bound": 20.0, "latency_file": "/nowhere/p99"}, "a number of milliseconds"),
        ({"latency_bound": 20.0, "latency_file": "/nowhere/p99", "latency": lambda: 1.0}, "2 sources"),
    ],
)
def test_settings_that_cannot_be(wrong, named):
    with pytest.raises(InvalidInput, match=named):
        RunSettings(**wrong)
