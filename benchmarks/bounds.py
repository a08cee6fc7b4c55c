"""Rows of figures that have a limit, and their tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.pages import markdown
from benchmarks.record import Row


def bound(what: str, figure: float, limit: float, unit: str = "", *, least: bool = False, **more: Any) -> Row:
    """A figure beside its limit.

    Args:
        what: What is measured, in the words of the table.
        figure: The figure.
        limit: The largest that holds; with `least` the smallest.
        unit: Unit of both; "" for a ratio.
        least: True if the figure is to be large.
        more: Other cells of the row.
    """
    return {"what": what, "figure": round(figure, 4), "limit": limit, "unit": unit, "least": least, **more}


def bounds_of(rows: Iterable[Row]) -> list[Row]:
    """The rows that have a limit."""
    return [row for row in rows if "limit" in row]


def share(row: Row) -> float:
    """Figure over limit, or limit over figure if the figure is to be large: up to 1 holds."""
    pair = (row["limit"], row["figure"]) if row["least"] else (row["figure"], row["limit"])
    return float(pair[0] / pair[1]) if pair[1] else float(pair[0] > 0)


def bounds_table(rows: Iterable[Row]) -> str:
    """A table of figures, limits and shares of the limits."""
    return markdown(
        ("what", "figure", "limit", "of the limit", ""),
        [
            (
                row["what"],
                with_unit(row["figure"], row["unit"]),
                f"{'≥' if row['least'] else '≤'} {with_unit(row['limit'], row['unit'])}",
                f"{share(row):.2f}",
                "holds" if share(row) <= 1 else "**missed**",
            )
            for row in bounds_of(rows)
        ],
    )


def with_unit(value: float, unit: str) -> str:
    """A figure with its unit, in three significant digits or as a whole number."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()
