"""How fast a step goes lately."""

from __future__ import annotations

from collections import deque

BATCHES = 20


class RecentRate:
    """Rows per second over the last batches of a step; a step that begins anew starts from nothing."""

    def __init__(self) -> None:
        self._step = ""
        self._seen: deque[tuple[float, int]] = deque(maxlen=BATCHES + 1)

    def observe(self, step: str, done: int, seconds: float) -> float:
        """Count a batch.

        Args:
            step: The step that it belongs to.
            done: Rows that the step has done so far.
            seconds: Time since the step began.

        Returns:
            Rows per second over the last `BATCHES` batches, 0 before there is any.
        """
        if step != self._step or (self._seen and done < self._seen[-1][1]):
            self._step = step
            self._seen.clear()
            self._seen.append((0.0, 0))
        self._seen.append((seconds, done))
        (earlier, before), (now, after) = self._seen[0], self._seen[-1]
        return (after - before) / (now - earlier) if now > earlier else 0.0
