"""The table of FastFill's balance: what it chose, beside scales that are fixed and the methods that have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.pairs.cells import MEASURES, head, of_method, points, row, trials
from benchmarks.pairs.journal import Record
from benchmarks.pairs.methods import CHOSEN, FIXED_SCALES


def balance_table(records: Sequence[Record]) -> Iterator[str]:
    """Write the table of every set and setting."""
    for name, setting, found in trials(records):
        yield f"\n#### {name}, classes {setting}\n"
        none = of_method(found, "none")
        sizes = none[0]["sizes"]
        yield (
            f"{sizes['pairs']:,} pairs of {sizes['classes']} classes, {sizes['gallery']:,} items searched with "
            f"{sizes['queries']:,} queries, {len(none)} seeds.\n"
        )
        yield from head("method", "order", "hop CMC-1", "hop mAP", "area CMC-1", "area mAP", "chosen")
        for version in ("s/s", "t/t"):
            figures = [record["found"][version] for record in none]
            yield row(f"**{version}**", "", *(points([f[measure] for f in figures]) for measure in MEASURES), *[""] * 3)
        for method in (*CHOSEN, *FIXED_SCALES):
            for order in method.orders:
                # Rows of classes seen are older than the orders of the head.
                with_order = [record for record in of_method(found, method.name) if order in record["orders"]]
                yield from _measured(with_order, method.name, order)


def _measured(records: Sequence[Record], method: str, order: str) -> Iterator[str]:
    if not records:
        return
    hop = [points([r["found"]["t/h"][measure] for r in records]) for measure in MEASURES]
    area = [points([r["orders"][order]["area"][measure] for r in records]) for measure in MEASURES]
    yield row(method, order, *hop, *area, _chosen(records))


def _chosen(records: Sequence[Record]) -> str:
    """What was chosen, and by how many seeds: "scale 4, batch size 256: 3"."""
    said = [
        ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in record["chosen"].items())
        for record in records
        if "chosen" in record
    ]
    return "; ".join(f"{name}: {count}" for name, count in Counter(said).most_common())
