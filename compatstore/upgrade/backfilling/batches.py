"""How many items go through the encoder at once: so many that a batch takes some seconds, and no more."""

from __future__ import annotations

FIRST_ROWS = 16
MOST_ROWS = 1024
GROWTH = 4


class BatchSize:
    """Finds the number of items that the encoder embeds in a given time.

    A stop is answered after a batch, and a batch that is lost is embedded again: so it should not take long. Each
    batch is a file or a commit: so it should not be small.

    Args:
        fixed: Items of a batch, or None to find the number.
        seconds: Time that a batch should take in the encoder, > 0.
        most: Most items of a batch.
    """

    def __init__(self, fixed: int | None = None, *, seconds: float = 10.0, most: int = MOST_ROWS) -> None:
        self._fixed, self._seconds, self._most = fixed, seconds, max(most, 1)
        self._rows = min(FIRST_ROWS, self._most)
        self._rate: float | None = None

    @property
    def rows(self) -> int:
        """Items of the next batch, >= 1."""
        return self._fixed or self._rows

    def within(self, seconds: float | None) -> int:
        """Items of the next batch where only so much time is left; None is any time."""
        if seconds is None or self._rate is None:
            return self.rows
        return max(min(self.rows, int(self._rate * seconds)), 1)

    def learn(self, rows: int, seconds: float) -> None:
        """Take up how long a batch took in the encoder; the size grows at most fourfold, as first batches mislead."""
        if not rows:
            return
        self._rate = rows / max(seconds, 1e-9)
        self._rows = max(min(int(self._rate * self._seconds), GROWTH * rows, self._most), 1)
