"""Tables for people: in full where there is room, folded where there is little, as records where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compatstore.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

GAP = 2
READABLE = 24  # a column of text is not folded into less than that


@dataclass(frozen=True)
class Table:
    """Headings and cells, without control characters.

    Attributes:
        headings: One for each column.
        rows: Cells of each row.
        numeric: Whether a column holds numbers, which stand to the right.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]

    def fitted(self, width: int) -> RenderableType:
        """What rich draws on `width` columns of a terminal."""
        widths = self._widths(width)
        return self._records() if widths is None else self._grid(widths)

    def _widths(self, width: int) -> list[int] | None:
        """Width of each column; None where the table does not fit, even with its longest texts folded."""
        from rich.cells import cell_len

        natural = [max(map(cell_len, column)) for column in zip(self.headings, *self.rows, strict=True)]
        room = width - GAP * (len(natural) - 1)
        if sum(natural) <= room:
            return natural
        folded = [i for i, own in enumerate(natural) if own > READABLE and not self.numeric[i]]
        room -= sum(own for i, own in enumerate(natural) if i not in folded)
        if room < READABLE * max(len(folded), 1):
            return None
        for left, i in enumerate(sorted(folded, key=natural.__getitem__)):
            natural[i] = min(natural[i], room // (len(folded) - left))
            room -= natural[i]
        return natural

    def _grid(self, widths: Sequence[int]) -> RenderableType:
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid(box=None, pad_edge=False, header_style="bold")
        for name, width, numeric in zip(self.headings, widths, self.numeric, strict=True):
            grid.add_column(Text(name), justify="right" if numeric else "left", overflow="fold", width=width)
        for row in self.rows:
            grid.add_row(*map(Text, row))
        return grid

    def _records(self) -> RenderableType:
        """A line for each cell, behind its heading; an empty line between rows."""
        from rich.cells import cell_len
        from rich.console import Group
        from rich.text import Text

        margin = max(map(cell_len, self.headings)) + GAP
        records = [
            Text("\n").join(
                Text.assemble((name, "bold"), " " * (margin - cell_len(name)), cell)
                for name, cell in zip(self.headings, row, strict=True)
            )
            for row in self.rows
        ]
        return Group(*(part for record in records for part in (record, Text("")))) if records else self._grid_of_names()

    def _grid_of_names(self) -> RenderableType:
        from rich.text import Text

        return Text(", ".join(self.headings), style="bold")


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table without lines: numbers to the right, text to the left, nothing read as markup."""
    cells = [tuple(row) for row in rows]
    return Table(
        headings=tuple(visible(name) for name in columns),
        rows=tuple(tuple(cell(value) for value in row) for row in cells),
        numeric=tuple(
            bool(cells) and all(isinstance(row[position], int | float) for row in cells)
            for position in range(len(columns))
        ),
    )


def cell(value: Any) -> str:
    """A value as people read it, on one line: numbers with four digits behind the point, mappings as name=value."""
    if value is None:
        return ""
    if isinstance(value, float):
        return short(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(str(name))}={cell(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return visible(value.hex() if isinstance(value, bytes) else str(value))


def short(value: float) -> str:
    """Four digits behind the point, without zeros that say nothing; four significant ones of a small number."""
    rounded = f"{value:.4f}".rstrip("0").rstrip(".")
    return f"{value:.4g}" if value and rounded in ("0", "-0") else rounded


def figures(values: Mapping[str, Any]) -> Iterator[str | Table]:
    """Held-out figures of an artifact: of each network, and a table for each list of candidates."""
    rows = [(path[0], " ".join(path[1:]), value) for path, value in flat(values) if not _is_list(value)]
    if rows:
        yield ""
        yield table(("held out", "figure", "value"), rows)
    for _, value in flat(values):
        if _is_list(value):
            yield ""
            yield _records(value)


def flat(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Names from the outside to the inside, and the value, of mappings in mappings."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*path, name))
        else:
            yield (*path, name), value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)


def _records(items: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each item; a column for each value that one of them has."""
    rows = [{" ".join(path): value for path, value in flat(item)} for item in items]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if any(row.get(name) for row in rows)]
    return table(names, [[row.get(name) for name in names] for row in rows])
