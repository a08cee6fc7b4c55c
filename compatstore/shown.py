"""Rendering of results: one view in lines and tables, which a terminal draws as text and a notebook as HTML."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from importlib import import_module
from importlib.util import find_spec
from textwrap import wrap
from typing import Any, ClassVar

from compatstore.html import Html, element, visible


@dataclass(frozen=True)
class Table:
    """Headings and cells, without control characters.

    Attributes:
        headings: One for each column.
        rows: Cells of each row.
        numeric: True for a column of numbers, which are aligned to the right; a cell may be empty.
        caption: Title of the table; "" if the line above it is the title.
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
            all(isinstance(row[position], int | float | None) for row in cells)
            and any(row[position] is not None for row in cells)
            for position in range(len(columns))
        ),
        caption=visible(caption),
    )


def cell(value: Any) -> str:
    """A value as text, on one line: numbers with four digits behind the point, mappings as name=value."""
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


SHORT = 24  # characters of a cell that is not folded
WIDTH = 80  # columns of a sentence
_SCROLLS = "overflow-x:auto;max-width:100%"
_NUMBER = re.compile(r"(?:[-+]?[0-9][0-9.,]*(?:e[-+]?[0-9]+)? ?%?(?: \([-+0-9.,% to]*\))?|-|)")


@singledispatch
def view(result: object) -> Iterator[str | Table]:
    """Lines and tables of a result, by its registered view: of its module, of `views_in`, or of `views.py` above it.

    Raises:
        TypeError: There is no view of such a thing.
    """
    package = type(result).__module__
    homes = [getattr(type(result), "views_in", "")]
    while package := package.rpartition(".")[0]:
        homes.append(f"{package}.views")
    for home in filter(None, homes):
        if home not in sys.modules and find_spec(home) is not None:
            import_module(home)
            return view(result)
    raise TypeError(f"no view of {type(result).__name__}")


def wrapped(text: str, margin: str = "") -> list[str]:
    """A sentence as lines of 80 columns at most; those after the first are indented. Not for commands to copy."""
    return wrap(margin + text, WIDTH, subsequent_indent=f"{margin}  ", break_long_words=False, break_on_hyphens=False)


class Shown:
    """A result that `print` and a notebook show as the command line does.

    In a notebook the last value of a cell is shown by `_repr_html_`.

    Attributes:
        views_in: Module with the view, if neither the result's own nor a package above it has it.
    """

    views_in: ClassVar[str] = ""

    def __str__(self) -> str:
        """The view as text."""
        return "\n".join(line for part in view(self) for line in text_lines(part))

    def _repr_html_(self) -> str:
        """The view as HTML."""
        return str(html_of(view(self)))


def text_lines(part: str | Table) -> Iterator[str]:
    """A line, or a table with two blanks between its columns."""
    if isinstance(part, str):
        yield part
        return
    widths = [max(map(len, column)) for column in zip(part.headings, *part.rows, strict=True)]
    for row in (part.headings, *part.rows):
        cells = zip(row, widths, part.numeric, strict=True)
        yield "  ".join(f"{cell:>{width}}" if right else f"{cell:<{width}}" for cell, width, right in cells).rstrip()


def html_of(parts: Iterable[str | Table]) -> Html:
    """Lines and tables as HTML without a style of its own: a notebook has one."""
    drawn = (
        _line(part) if isinstance(part, str) else element("div", html_table(part), style=_SCROLLS)
        for part in parts
        if part
    )
    return element("div", *drawn)


def html_table(table: Table) -> Html:
    """A table: headings have a scope, and short texts and numbers stay on one line."""
    columns = [[row[place] for row in table.rows] for place in range(len(table.headings))]
    right = [any(cells) and all(_NUMBER.fullmatch(content) for content in cells) for cells in columns]
    heads = [_cell("th", name, right=own, scope="col") for name, own in zip(table.headings, right, strict=True)]
    rows = []
    for row in table.rows:
        data = [_cell("td", content, right=own) for content, own in zip(row[1:], right[1:], strict=True)]
        rows.append(element("tr", _cell("th", row[0], right=right[0], scope="row"), *data))
    caption = element("caption", table.caption) if table.caption else None
    return element("table", caption, element("thead", element("tr", *heads)), element("tbody", *rows))


def _cell(tag: str, content: str, *, right: bool, scope: str | None = None) -> Html:
    """A cell with its own alignment, as a notebook's style would turn it."""
    # Long text is as wide as it is long, within limits: a note in a narrow column would be a tall row.
    narrow = (
        "white-space:nowrap" if right or len(content) <= SHORT else f"min-width:{min(max(len(content) // 5, 12), 36)}em"
    )
    return element(tag, content, scope=scope, style=f"text-align:{'right' if right else 'left'};{narrow}")


def _line(line: str) -> Html:
    margin = len(line) - len(line.lstrip())
    return element("p", line.strip(), style=f"margin:0.3em 0 0.3em {margin / 2:g}em")
