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
        more: Other cells of the row. Rows with the same `group` are one line on the page of all limits.
    """
    return {"what": what, "figure": round(figure, 4), "limit": limit, "unit": unit, "least": least, **more}


def bounds_of(rows: Iterable[Row]) -> list[Row]:
    """The rows that have a limit."""
    return [row for row in rows if "limit" in row]


def share(row: Row) -> float:
    """Figure over limit, or limit over figure if the figure is to be large: up to 1 holds."""
    if row["figure"] == row["limit"]:
        return 1.0 if row["limit"] else 0.0
    over, under = (row["limit"], row["figure"]) if row["least"] else (row["figure"], row["limit"])
    return float(over / under) if under else float("inf")


def verdict(row: Row) -> str:
    """True to the limit, in one word."""
    return "holds" if share(row) <= 1 else "**missed**"


def bounds_table(rows: Iterable[Row]) -> str:
    """A table of figures, limits and shares of the limits."""
    head = ("what", "figure", "limit", "of the limit", "")
    cells = [(row["what"], figure_of(row), limit_of(row), f"{share(row):.2f}", verdict(row)) for row in bounds_of(rows)]
    return markdown(head, cells)


def figure_of(row: Row) -> str:
    """The figure with its unit."""
    return number(row["figure"], row["unit"])


def limit_of(row: Row) -> str:
    """The limit with its unit and direction."""
    return f"{'≥' if row['least'] else '≤'} {number(row['limit'], row['unit'])}"


def number(value: float, unit: str = "") -> str:
    """A figure with its unit, in three significant digits, two decimals at least below 10; shares in per cent."""
    if unit == "%":
        return f"{number(100 * value)} %"
    whole = abs(value) >= 100 or (value == int(value) and (unit or abs(value) != 1))
    text = f"{value:,.0f}" if whole else max(f"{value:.3g}", f"{value:.2f}" if abs(value) < 10 else "", key=len)
    return f"{text} {unit}".rstrip()
