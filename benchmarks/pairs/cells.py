"""What the tables share: the records of one trial, and a mean with its deviation over seeds, in points."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.pairs.journal import Record

MEASURES = ("cmc1", "map")


def trials(records: Sequence[Record]) -> Iterator[tuple[str, str, list[Record]]]:
    """Group records by set and setting: (set, setting, records), in the journal's order."""
    keys = dict.fromkeys((record["set"], record["setting"]) for record in records)
    for name, setting in keys:
        yield name, setting, [r for r in records if (r["set"], r["setting"]) == (name, setting)]


def of_method(records: Sequence[Record], method: str) -> list[Record]:
    """Return a method's records, one a seed."""
    return [record for record in records if record["method"] == method]


def points(shares: Sequence[float]) -> str:
    """Write shares of several seeds as points: "52.8 ± 0.4"; "" for none."""
    return _spread([100 * share for share in shares], 1)


def plain(values: Sequence[float | None]) -> str:
    """Write numbers of several seeds as they are: "0.52 ± 0.01"; "" for none."""
    return _spread([value for value in values if value is not None], 2)


def row(*cells: str) -> str:
    """Write one row of a table."""
    return f"| {' | '.join(cells)} |"


def head(*cells: str) -> Iterator[str]:
    """Write the first two rows of a table."""
    yield row(*cells)
    yield f"|{'---|' * len(cells)}"


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
