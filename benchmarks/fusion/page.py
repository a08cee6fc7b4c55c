"""The tables of `benchmarks.fusion`, from its journal, and whether fused search is below the status quo in any cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.fusion.strategies import CHOSEN, COLUMN, STATUS_QUO
from benchmarks.pairs.journal import Record
from compatstore.arrays import Doubles

BEGIN, END = "<!-- begin: benchmarks.fusion -->", "<!-- end: benchmarks.fusion -->"
METRICS = {"cmc1": "CMC-1", "map": "mAP"}
ERRORS = 2  # standard errors that a cell may be below the status quo by chance

Cells = Mapping[str, Sequence[Record]]  # records of all seeds by share


def tables(records: Sequence[Record]) -> str:
    """Markdown: a table for each set and setting, and one of what fused search gains."""
    cells = defaultdict[tuple[str, str], dict[str, list[Record]]](dict)
    for record in records:
        cells[record["set"], record["setting"]].setdefault(record["method"], []).append(record)
    parts = ["\n".join(_table(name, setting, found)) for (name, setting), found in cells.items()]
    return "\n\n".join([*parts, "\n".join(_gains(cells))])


def fill(page: Path, text: str) -> None:
    """Put the tables between the marks of a page."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def _table(name: str, setting: str, found: Cells) -> Iterator[str]:
    first = next(iter(found.values()))
    strategies = [strategy for strategy, value in first[0].items() if isinstance(value, dict)]
    yield f"**{name}**, classes {setting} by the pairs, {len(first)} seeds:\n"
    yield f"| CMC-1 / mAP | {' | '.join(found)} |"
    yield "|---" * (1 + len(found)) + "|"
    for strategy in strategies:
        means = [100 * _figures(records, strategy).mean(axis=0) for records in found.values()]
        yield f"| {strategy} | {' | '.join(f'{cmc:.1f} / {average:.1f}' for cmc, average in means)} |"
    weights = [", ".join(dict.fromkeys(record["chosen"] for record in records)) for records in found.values()]
    yield f"| w chosen | {' | '.join(weights)} |"


def _gains(cells: Mapping[tuple[str, str], Cells]) -> Iterator[str]:
    """What the chosen fusion gains over the status quo and over the target's column; worst cells last."""
    shares = list(dict.fromkeys(share for found in cells.values() for share in found))
    below = dict.fromkeys((STATUS_QUO, COLUMN), 0)
    counted = 0
    yield "Fused with the weight that was chosen, against the status quo and against the target's column; points, and"
    yield "in parentheses the standard error over seeds:\n"
    yield f"| set | classes | metric | against | {' | '.join(shares)} |"
    yield "|---" * (4 + len(shares)) + "|"
    for (name, setting), found in cells.items():
        for place, metric in enumerate(METRICS.values()):
            for other in below:
                row = []
                for share in shares:
                    gain, error = _gain(found[share], other)
                    below[other] += gain[place] < -ERRORS * error[place]
                    counted += 1
                    row.append(f"{gain[place]:+.1f} ({error[place]:.1f})")
                yield f"| {name} | {setting} | {metric} | {other} | {' | '.join(row)} |"
    each = counted // len(below)
    yield (
        f"\nBelow by more than {ERRORS} standard errors: the status quo in {below[STATUS_QUO]} of {each} cells, the "
        f"target's column in {below[COLUMN]} of {each}."
    )


def _gain(records: Sequence[Record], other: str) -> tuple[Doubles, Doubles]:
    """Gain of the chosen fusion in points and its standard error over seeds: (2,) float64 each, CMC-1 and mAP."""
    gains = 100 * (_figures(records, CHOSEN) - _figures(records, other))
    return gains.mean(axis=0), gains.std(axis=0) / np.sqrt(max(len(gains) - 1, 1))


def _figures(records: Sequence[Record], strategy: str) -> Doubles:
    """(seeds, 2) float64."""
    return np.array([[record[strategy][metric] for metric in METRICS] for record in records])
