"""Rows of a record over seeds: means, 95 % intervals (Student's t), and differences seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from scipy.stats import t

from benchmarks.record import Row

Figure = tuple[str, str]  # method, and its figure
MEASURES = ("cmc1", "map")


class Interval(NamedTuple):
    """A mean over seeds, and half of its 95 % interval; infinite of a single seed.

    Attributes:
        mean: The mean.
        half: Half of the width.
        seeds: Number of seeds.
    """

    mean: float
    half: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """The interval of values, one a seed."""
        n = len(values)
        half = t.ppf(0.975, n - 1) * statistics.stdev(values) / n**0.5 if n > 1 else float("inf")
        return cls(statistics.fmean(values), float(half), n)

    @property
    def is_above(self) -> bool:
        """True if the interval is above zero."""
        return self.mean - self.half > 0

    @property
    def is_below(self) -> bool:
        """True if the interval is below zero."""
        return self.mean + self.half < 0

    def __str__(self) -> str:
        """The figure as tables have it: "71.5 ± 0.8"."""
        return f"{self.mean:.1f}" + ("" if self.half == float("inf") else f" ± {self.half:.1f}")

    @property
    def signed(self) -> str:
        """A difference: bold above zero, in italics below it."""
        text = f"{self.mean:+.1f}" + ("" if self.half == float("inf") else f" ± {self.half:.1f}")
        return f"**{text}**" if self.is_above else f"*{text}*" if self.is_below else text


def where(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row.get(key) == value for key, value in values.items())]


def by_seed(rows: Iterable[Row], figure: str, **values: Any) -> dict[int, float]:
    """Seed -> figure, of the rows that have these values and this figure."""
    return {row["seed"]: row[figure] for row in where(rows, **values) if row.get(figure) is not None}


def mean(rows: Iterable[Row], figure: str, **values: Any) -> Interval | None:
    """A figure over the seeds; None if no row has it."""
    found = by_seed(rows, figure, **values)
    return Interval.of(list(found.values())) if found else None


def less(left: Mapping[int, float], right: Mapping[int, float]) -> Interval | None:
    """The difference seed by seed, of the seeds that both have; None if there are none."""
    seeds = sorted(left.keys() & right.keys())
    return Interval.of([left[seed] - right[seed] for seed in seeds]) if seeds else None


def cell(rows: Iterable[Row], figure: str, **values: Any) -> str:
    """Means of CMC-1 and mAP over seeds, "71.5 / 61.2"; "" if no row has them."""
    found = [mean(rows, f"{figure} {measure}", **values) for measure in MEASURES]
    return " / ".join(f"{one.mean:.1f}" for one in found if one)


def apart(rows: Iterable[Row], left: Figure, right: Figure) -> Interval | None:
    """How much one method's figure is above another's, seed by seed; None without a seed of both."""
    return less(*(by_seed(rows, figure, method=method) for method, figure in (left, right)))


def both(rows: Iterable[Row], left: Figure, right: Figure) -> list[Interval]:
    """The same in CMC-1 and in mAP, which the names of the figures lack; none without a seed of both."""
    found = [apart(rows, (left[0], f"{left[1]} {m}"), (right[0], f"{right[1]} {m}")) for m in MEASURES]
    return [one for one in found if one]


def signed(differences: Iterable[Interval | None]) -> str:
    """Differences in one cell, "" for none."""
    return ", ".join(one.signed for one in differences if one)


def cases(rows: Iterable[Row], *keys: str) -> dict[str, list[Row]]:
    """The rows by their values of some keys: "set, classes" -> rows, in the order of the rows."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(", ".join(str(row.get(key, "")) for key in keys), []).append(row)
    return found


def values_of(rows: Iterable[Row], key: str) -> list[Any]:
    """The values of a key, in the order of the rows."""
    return list(dict.fromkeys(row[key] for row in rows if key in row))
