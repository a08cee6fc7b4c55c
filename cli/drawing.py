"""Tables on a terminal: in full where there is room, folded where there is little, as records where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compatstore.shown import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

GAP = 2
READABLE = 24  # a column of text is not folded into less than that


def fitted(table: Table, width: int) -> RenderableType:
    """What rich draws on `width` columns of a terminal."""
    widths = _widths(table, width)
    return _records(table) if widths is None else _grid(table, widths)


def natural_width(table: Table) -> int:
    """Columns that a table takes where nothing is folded."""
    widths = _natural(table)
    return sum(widths) + GAP * len(widths)


def _natural(table: Table) -> list[int]:
    from rich.cells import cell_len

    return [max(map(cell_len, column)) for column in zip(table.headings, *table.rows, strict=True)]


def _widths(table: Table, width: int) -> list[int] | None:
    """Width of each column; None where the table does not fit, even with its longest texts folded."""
    natural = _natural(table)
    room = width - GAP * (len(natural) - 1)
    if sum(natural) <= room:
        return natural
    folded = [i for i, own in enumerate(natural) if own > READABLE and not table.numeric[i]]
    room -= sum(own for i, own in enumerate(natural) if i not in folded)
    if room < READABLE * max(len(folded), 1):
        return None
    for left, i in enumerate(sorted(folded, key=natural.__getitem__)):
        natural[i] = min(natural[i], room // (len(folded) - left))
        room -= natural[i]
    return natural


def _grid(table: Table, widths: Sequence[int]) -> RenderableType:
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False, header_style="bold")
    for name, width, numeric in zip(table.headings, widths, table.numeric, strict=True):
        grid.add_column(Text(name), justify="right" if numeric else "left", overflow="fold", width=width)
    for row in table.rows:
        grid.add_row(*map(Text, row))
    return grid


def _records(table: Table) -> RenderableType:
    """A line for each cell, behind its heading; an empty line between rows."""
    from rich.cells import cell_len
    from rich.console import Group
    from rich.text import Text

    margin = max(map(cell_len, table.headings)) + GAP
    records = [
        Text("\n").join(
            Text.assemble((name, "bold"), " " * (margin - cell_len(name)), cell)
            for name, cell in zip(table.headings, row, strict=True)
        )
        for row in table.rows
    ]
    return Group(*(part for record in records for part in (record, Text("")))) if records else _names(table)


def _names(table: Table) -> RenderableType:
    from rich.text import Text

    return Text(", ".join(table.headings), style="bold")
