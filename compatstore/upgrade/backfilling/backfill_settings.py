"""How a backfill goes about its work: batches, retries, time limits and pace. What it may spend is its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compatstore.boundary import require_fields
from compatstore.errors import InvalidInput
from compatstore.upgrade.backfilling.batches import MOST_ROWS, BatchSize
from compatstore.upgrade.backfilling.pace import Pace, read_latency
from compatstore.upgrade.backfilling.retries import Backoff

SECONDS_A_BATCH = 10.0
SECONDS_A_PACED_BATCH = 1.0


@dataclass(frozen=True, kw_only=True)
class BackfillSettings:
    """Batches, retries, time limits and pace of a backfill; none of them changes which items it embeds.

    Args:
        batch_rows: Items that go through the encoder at once; by default as many as take about 10 s, 1024 at most
            (1 s where the pace is held).
        retries: Further tries after the encoder raised, with growing waits; then the batch is taken apart to find
            the items that are at fault.
        encoder_timeout: Seconds that the encoder may take for a batch before the run ends with an error.
        failures_in_a_row: Items that may fail with none embedded in between before the run ends with an error.
        retry_unbackfillable: Try again what could not be embedded before.
        throttle: Items a second at most.
        latency_bound: Milliseconds of the app's search latency above which the backfill slows down.
        latency_file: File into which the app writes its search latency in milliseconds.
        latency: Function that gives the latency in milliseconds, or None when it is not known.

    Raises:
        InvalidInput: A setting is out of its range, or a bound has no latency to look at.
    """

    batch_rows: int | None = None
    retries: int = 3
    encoder_timeout: float | None = None
    failures_in_a_row: int = 500
    retry_unbackfillable: bool = False
    throttle: float | None = None
    latency_bound: float | None = None
    latency_file: str | None = None
    latency: Callable[[], float | None] | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        for name in ("batch_rows", "encoder_timeout", "throttle", "latency_bound", "failures_in_a_row"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise InvalidInput("set up a backfill", expected=f"{name} > 0", found=f"{value}")
        if self.retries < 0:
            raise InvalidInput("set up a backfill", expected="retries >= 0", found=f"{self.retries}")
        given = [source for source in (self.latency, self.latency_file) if source is not None]
        if len(given) != (self.latency_bound is not None):
            raise InvalidInput(
                "slow a backfill down by latency",
                expected="latency_bound with one of latency and latency_file",
                found=f"{'a' if self.latency_bound else 'no'} bound and {len(given)} sources of the latency",
            )
        if self.latency_file is not None and read_latency(self.latency_file) is None:
            raise InvalidInput(
                "slow a backfill down by latency",
                expected="a file that holds a number of milliseconds",
                found=self.latency_file,
                fix="Let the app write one before the upgrade starts.",
            )

    def pace(self) -> Pace:
        """A pace that begins now."""
        file = self.latency_file
        latency = self.latency if file is None else lambda: read_latency(file)
        return Pace(self.throttle, latency, self.latency_bound)

    def batch_size(self) -> BatchSize:
        """A batch size that is yet to be found; short batches where the pace is held, so that it is held evenly."""
        held = self.throttle is not None or self.latency_bound is not None
        seconds = SECONDS_A_PACED_BATCH if held else SECONDS_A_BATCH
        most = MOST_ROWS if self.throttle is None else min(MOST_ROWS, int(self.throttle * seconds))
        return BatchSize(self.batch_rows, seconds=seconds, most=most)

    def backoff(self) -> Backoff:
        """Waits between tries."""
        return Backoff(retries=self.retries)
