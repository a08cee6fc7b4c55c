"""The size of a batch follows the encoder's speed."""

from __future__ import annotations

import pytest

from compatstore.upgrade.backfilling.backfill_settings import BackfillSettings
from compatstore.upgrade.backfilling.batches import FIRST_ROWS, MOST_ROWS, BatchSize


def settle(size, rate, batches=20):
    for _ in range(batches):
        size.learn(size.rows, size.rows / rate)
    return size.rows


@pytest.mark.parametrize(("rate", "rows"), [(0.01, 1), (2.0, 20), (50.0, 500), (1e6, MOST_ROWS)])
def test_it_comes_to_ten_seconds_of_the_encoder_within_bounds(rate, rows):
    assert settle(BatchSize(), rate) == rows


def test_it_starts_small_and_grows_step_by_step():
    size, seen = BatchSize(), []
    for _ in range(5):
        seen.append(size.rows)
        size.learn(size.rows, 1e-6)
    assert seen == [FIRST_ROWS, 4 * FIRST_ROWS, 16 * FIRST_ROWS, MOST_ROWS, MOST_ROWS]


def test_a_fixed_size_stays():
    assert settle(BatchSize(7), 1e6) == 7


def test_little_time_left_makes_a_small_batch():
    size = BatchSize()
    settle(size, 50.0)
    assert size.within(2.0) == 100
    assert size.within(0.0) == 1
    assert size.within(None) == 500


def test_a_throttled_backfill_goes_in_batches_of_a_second():
    assert BackfillSettings(throttle=5.0).batch_size().rows == 5
    assert settle(BackfillSettings(throttle=50.0).batch_size(), 1e6) == 50
    assert settle(BackfillSettings(latency_bound=9.0, latency=lambda: None).batch_size(), 50.0) == 50
