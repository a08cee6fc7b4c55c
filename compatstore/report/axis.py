"""Axes of a chart: where a value lies in the drawing, and which round values are named."""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` on a line from `start` to `end`, in units of the drawing.

    Attributes:
        low: Least value.
        high: Greatest value, above it.
        start: Where the least lies.
        end: Where the greatest lies.
    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies; one outside lies at the end that it is beyond."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values on the axis, two or more and about `most` of them."""
        step = _round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(number * step, 12) for number in range(first, last + 1)]


def spanning(values: list[float], start: float, end: float, *, margin: float = 0.06) -> Axis:
    """An axis that holds values, with some room at both ends."""
    low, high = min(values), max(values)
    room = (high - low) * margin or abs(high) * 0.1 or 1.0
    return Axis(low - room, high + room, start, end)


def short(value: float) -> str:
    """A value at a tick: "12.5", "-3", "2e-05"."""
    return f"{value:.4g}"


def _round_step(least: float) -> float:
    scale = 10.0 ** math.floor(math.log10(least))
    return next(step * scale for step in _STEPS if step * scale >= least * (1 - 1e-9))
