"""The tables of `benchmarks.whole_life`, from its journal: what steps took, how that grows, and what it comes to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from benchmarks.pairs.journal import Record

# Quantity in a record -> its name in a table.
TOOK = {
    "wall_s": "wall, s",
    "cpu_s": "CPU, s",
    "before_mib": "before, MiB",
    "peak_mib": "peak, MiB",
    "read_mb": "read, MB",
    "written_mb": "written, MB",
    "grown_mb": "grown, MB",
    "others": "other programs, cores",
}
GROWS = {"wall_s": "wall", "cpu_s": "CPU", "peak_mib": "peak", "written_mb": "written"}
# A step, and what it is compared with: the machine's or Lance's own.
LIMITS = (
    ("add", "Lance, append"),
    ("add", "disk, write"),
    ("hop", "products"),
    ("hop", "disk, write"),
    ("index", "Lance, index"),
    ("verify", "disk, read"),
    ("search, exact", "disk, read"),
)
ALONE = ("disk, write", "disk, read", "products", "Lance, append", "Lance, index")
FAR = 10**9  # rows
CORES, DISK = 32, 1e3  # of the larger machine; MB/s
HOUR = 3600

Sizes = Mapping[int, Mapping[str, Record]]  # records by rows and step


def tables(records: Sequence[Record]) -> str:
    """Markdown: what each step took, slopes, ratios to the limits, searches, and an extrapolation."""
    sizes: dict[int, dict[str, Record]] = {}
    for record in sorted(records, key=lambda record: record["rows"]):
        sizes.setdefault(record["rows"], {})[record["step"]] = record
    parts = ["\n".join(_taken(sizes)), "\n".join(_limits(sizes)), "\n".join(_searches(sizes))]
    if len(sizes) > 1:
        parts += ["\n".join(_slopes(sizes)), "\n".join(_far(sizes))]
    return "\n\n".join(parts)


def _taken(sizes: Sizes) -> Iterator[str]:
    yield f"| step | rows | {' | '.join(TOOK.values())} |"
    yield "|---|---" + "|---:" * len(TOOK) + "|"
    for step in next(iter(sizes.values())):
        for rows, steps in sizes.items():
            if step in steps:
                name = step if _is_whole(steps[step]) else f"{step} (the rest of it)"
                yield f"| {name} | {rows:,} | {' | '.join(_number(steps[step][key]) for key in TOOK)} |"


def _limits(sizes: Sizes) -> Iterator[str]:
    """Ratios to what the machine or Lance does alone with as many rows, in the same run."""
    yield f"| ratio | {' | '.join(f'CPU, {rows:,}' for rows in sizes)} | {' | '.join(f'wall, {n:,}' for n in sizes)} |"
    yield "|---" + "|---:" * 2 * len(sizes) + "|"
    for step, alone in LIMITS:
        cells = [
            _number(steps[step][key] / steps[alone][key])
            if {step, alone} <= steps.keys() and _is_whole(steps[step])
            else ""
            for key in ("cpu_s", "wall_s")
            for steps in sizes.values()
        ]
        yield f"| {step} / {alone} | {' | '.join(cells)} |"


def _searches(sizes: Sizes) -> Iterator[str]:
    yield "| rows | cells | settings | p50, ms | Lance's own p50, ms | ratio | recall@10 |"
    yield "|---|---:|---|---:|---:|---:|---:|"
    for rows, steps in sizes.items():
        if {"index", "search", "search, exact"} <= steps.keys():
            search = steps["search"]
            times = f"{search['ours_ms']:.2f} | {search['lance_ms']:.2f} | {search['ours_ms'] / search['lance_ms']:.2f}"
            found = steps["search, exact"]["recall"]
            yield f"| {rows:,} | {steps['index']['cells']:,} | {search['settings']} | {times} | {found:.3f} |"


def _slopes(sizes: Sizes) -> Iterator[str]:
    """The exponent of each quantity between a size and the next: 1 where ten times the rows take ten times as much."""
    steps = list(pairwise(sizes))
    yield f"| exponent | {' | '.join(f'{name}, to {large:,}' for name in GROWS.values() for _, large in steps)} |"
    yield "|---" + "|---:" * len(GROWS) * len(steps) + "|"
    for step in next(iter(sizes.values())):
        cells = [_slope(sizes, step, key, small, large) for key in GROWS for small, large in steps]
        yield f"| {step} | {' | '.join('' if cell is None else f'{cell:.2f}' for cell in cells)} |"


def _slope(sizes: Sizes, step: str, key: str, small: int, large: int) -> float | None:
    records = [sizes[rows].get(step, {}) for rows in (small, large)]
    values = [record.get(key, 0) for record in records]
    if min(values) <= 0 or not all(map(_is_whole, records)):
        return None
    return math.log(values[1] / values[0]) / math.log(large / small)


def _is_whole(record: Record) -> bool:
    """Whether a step was measured from its beginning."""
    return "cut_off" not in record


def _far(sizes: Sizes) -> Iterator[str]:
    """What the last slope leads to: on these cores, and at best on more of them."""
    small, large = list(sizes)[-2:]
    yield (
        f"| {FAR:,} rows, by the slopes from {small:,} to {large:,} | CPU, core hours | hours of 2 cores | peak, GiB "
        f"| written, GB | at best, hours of {CORES} cores and a disk of {DISK / 1e3:g} GB/s |"
    )
    yield "|---" + "|---:" * 5 + "|"
    for step in sizes[large]:
        if step in ALONE or step.startswith("search") or not _is_whole(sizes[large][step]):
            continue
        reached = {}
        for key in GROWS:
            slope = _slope(sizes, step, key, small, large)
            reached[key] = sizes[large][step][key] * (FAR / large) ** slope if slope is not None else 0.0
        best = max(reached["cpu_s"] / CORES, reached["written_mb"] / DISK) / HOUR
        cells = [reached["cpu_s"] / HOUR, reached["cpu_s"] / 2 / HOUR, reached["peak_mib"] / 1024]
        yield f"| {step} | {' | '.join(map(_number, [*cells, reached['written_mb'] / 1e3, best]))} |"


def _number(value: float) -> str:
    """Three digits, no fewer before the point."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(digits, 4)}f}"
