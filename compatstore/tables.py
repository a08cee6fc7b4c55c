"""Tables for people: headings and cells as text, which a terminal, a notebook or a page draws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compatstore.visible import visible


@dataclass(frozen=True)
class Table:
    """Headings and cells, without control characters.

    Attributes:
        headings: One for each column.
        rows: Cells of each row.
        numeric: Whether a column holds numbers, which stand to the right.
        caption: What the table shows, where it does not stand below a line that says so.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    caption: str = ""


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> Table:
    """A table without lines: numbers to the right, text to the left, nothing read as markup."""
    cells = [tuple(row) for row in rows]
    return Table(
        headings=tuple(visible(name) for name in columns),
        rows=tuple(tuple(cell(value) for value in row) for row in cells),
        numeric=tuple(
            bool(cells) and all(isinstance(row[position], int | float) for row in cells)
            for position in range(len(columns))
        ),
        caption=visible(caption),
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
    rows = [(path[0], " ".join(path[1:]), _ends(value)) for path, value in flat(values) if not _is_list(value)]
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


def _ends(value: Any) -> Any:
    """A list of numbers by its first and last one; anything else as it is."""
    return f"{short(value[0])} ... {short(value[-1])}" if isinstance(value, list | tuple) and value else value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)


def _records(items: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each item; a column for each value that one of them has."""
    rows = [{" ".join(path): value for path, value in flat(item)} for item in items]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if any(row.get(name) for row in rows)]
    return table(names, [[row.get(name) for name in names] for row in rows])
