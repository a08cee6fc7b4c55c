"""What shows itself: one view in lines and tables, which a terminal draws as text and a notebook as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch

from compatstore.html import Html, element
from compatstore.tables import Table

SHORT = 24  # characters of a cell that is not folded
_SCROLLS = "overflow-x:auto;max-width:100%"
_NUMBER = re.compile(r"(?:[-+]?[0-9][0-9.,]*(?:e[-+]?[0-9]+)? ?%?(?: \([-+0-9.,% to]*\))?|-|)")


@singledispatch
def view(result: object) -> Iterator[str | Table]:
    """Lines and tables for people, of whatever a view is registered for.

    Raises:
        TypeError: There is no view of such a thing.
    """
    raise TypeError(f"no view of {type(result).__name__}")


class Shown:
    """A result that a notebook shows as the command line does, in HTML.

    In a notebook the last value of a cell is shown by `_repr_html_`.
    """

    def _repr_html_(self) -> str:
        """The view as HTML."""
        return str(html_of(view(self)))


def html_of(parts: Iterable[str | Table]) -> Html:
    """Lines and tables as HTML without a style of its own: a notebook has one."""
    return element("div", *(_line(part) if isinstance(part, str) else _scrolled(part) for part in parts if part))


def html_table(table: Table) -> Html:
    """A table: headings have a scope, and what is short or a number stays on one line."""
    right = [_is_numbers([row[place] for row in table.rows]) for place in range(len(table.headings))]
    heads = [_cell("th", name, right=own, scope="col") for name, own in zip(table.headings, right, strict=True)]
    rows = [
        element("tr", _cell("th", row[0], right=right[0], scope="row"), *map(_data, row[1:], right[1:]))
        for row in table.rows
    ]
    caption = element("caption", table.caption) if table.caption else None
    return element("table", caption, element("thead", element("tr", *heads)), element("tbody", *rows))


def _data(said: str, right: bool) -> Html:
    return _cell("td", said, right=right)


def _cell(tag: str, said: str, *, right: bool, scope: str | None = None) -> Html:
    """A cell with its own alignment, as a notebook's style would turn it."""
    # Long text is as wide as it is long, within limits: a note in a narrow column would be a tall row.
    narrow = "white-space:nowrap" if right or len(said) <= SHORT else f"min-width:{min(max(len(said) // 5, 12), 36)}em"
    return element(tag, said, scope=scope, style=f"text-align:{'right' if right else 'left'};{narrow}")


def _is_numbers(cells: Sequence[str]) -> bool:
    """Whether all cells of a column hold numbers, with intervals or without, or nothing."""
    return any(cells) and all(_NUMBER.fullmatch(said) for said in cells)


def _line(line: str) -> Html:
    margin = len(line) - len(line.lstrip())
    return element("p", line.strip(), style=f"margin:0.3em 0 0.3em {margin / 2:g}em")


def _scrolled(table: Table) -> Html:
    return element("div", html_table(table), style=_SCROLLS)
