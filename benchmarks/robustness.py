"""Kills, suspensions, comparisons and violations, of all harnesses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from benchmarks.pages import markdown
from benchmarks.record import Record, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF = ("lives",)
HARNESS = "random lives"  # of a record that names none


def totals(record: Record) -> str:
    """A line for each harness."""
    head = ("what was lived", "lives", "kills", "suspensions", "acknowledged writes", "searches", "violations")
    keys = ("lives", "kills", "suspensions", "writes", "searches", "violations")
    cells = [
        (row.get("harness", HARNESS), *(f"{row[key]:,}" if row.get(key) is not None else "" for key in keys))
        for row in record.rows
        if row.get("process") == "all"
    ]
    return markdown(head, cells)


def _hit(record: Record) -> Iterator[Row]:
    harnesses: dict[str, list[Row]] = {}
    for row in record.rows:
        if "process" in row and row["process"] != "all":
            harnesses.setdefault(row.get("harness", HARNESS), []).append(row)
    for rows in harnesses.values():
        yield from rows if len(rows) > 1 else []


def chart(record: Record) -> Figure:
    """Kills and suspensions by process and step."""
    from benchmarks.charts import SERIES, bars, panels

    rows = sorted(_hit(record), key=lambda row: row["kills"] + row["suspensions"], reverse=True)
    figure, (axes,) = panels(0.36 * len(rows) + 0.8)
    totals_of = [row["kills"] + row["suspensions"] for row in rows]
    bars(
        axes,
        [row["process"] for row in rows],
        totals_of,
        [f"{row['kills']} + {row['suspensions']}" for row in rows],
        SERIES[1],
    )
    axes.barh(range(len(rows)), [row["kills"] for row in rows], height=0.4, color=SERIES[0])
    axes.set_xlim(0, max(totals_of) * 1.18)
    axes.set_title("Kills (blue) + suspensions (orange), by process or step")
    return figure


TABLES = {"totals": totals}
