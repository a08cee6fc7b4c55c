"""The size of a batch follows the encoder's speed."""

from __future__ import annotations

import pytest

from compatstore.upgrade.backfilling.throttle import FIRST_ROWS, MOST_ROWS, BatchSize
from compatstore.upgrade.requests.run_settings import RunSettings


def found_size(size, rate, batches=20):
    for _ in range(batches):
        size.learn(size.rows, size.rows / rate)
    return size.rows


@pytest.mark.parametrize(("rate", "rows"), [(0.01, 1), (2.0, 20), (50.0, 500), (1e6, MOST_ROWS)])
def test_it_comes_to_ten_seconds_of_the_encoder_within_bounds(rate, rows):
    assert found_size(BatchSize(RunSettings()), rate) == rows


def test_it_starts_small_and_grows_step_by_step():
    size, seen = BatchSize(RunSettings()), []
    for _ in range(5):
        seen.append(size.rows)
        size.learn(size.rows, 1e-6)
    assert seen == [FIRST_ROWS, 4 * FIRST_ROWS, 16 * FIRST_ROWS, MOST_ROWS, MOST_ROWS]


def test_a_fixed_size_stays():
    assert found_size(BatchSize(RunSettings(batch_rows=7)), 1e6) == 7


def test_little_time_left_makes_a_small_batch():
    size = BatchSize(RunSettings())
    found_size(size, 50.0)
    assert size.within(2.0) == 100
    assert size.within(0.0) == 1
    assert size.within(None) == 500


def test_a_throttled_backfill_goes_in_batches_of_a_second():
    assert BatchSize(RunSettings(throttle=5.0)).rows == 5
    assert found_size(BatchSize(RunSettings(throttle=50.0)), 1e6) == 50
    assert found_size(BatchSize(RunSettings(latency_bound=9.0, latency=lambda: None)), 50.0) == 50
