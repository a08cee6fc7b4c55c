"""What shows itself: one view in lines and tables, which a terminal draws as text and a notebook as HTML."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from compatstore.html import Html, element
from compatstore.tables import Table

_SCROLLS = "overflow-x:auto;max-width:100%"


class Shown:
    """Something that people look at.

    In a notebook the last value of a cell is shown by `_repr_html_`; the command line shows the same view.
    """

    @abstractmethod
    def view(self) -> Iterator[str | Table]:
        """Lines and tables for people."""

    def _repr_html_(self) -> str:
        """The view as HTML, for notebooks."""
        return str(html_of(self.view()))


def html_of(parts: Iterable[str | Table]) -> Html:
    """Lines and tables as HTML without a style of its own: a notebook has one."""
    return element("div", *(_line(part) if isinstance(part, str) else _scrolled(part) for part in parts if part))


def html_table(table: Table) -> Html:
    """A table: headings have a scope, numbers a class."""
    kinds = ["number" if numeric else None for numeric in table.numeric]
    heads = [
        element("th", name, scope="col", class_=kind, style=_aside(kind))
        for name, kind in zip(table.headings, kinds, strict=True)
    ]
    rows = [
        element(
            "tr",
            *(
                element("td", cell, class_=kind, style=_aside(kind))
                if number
                else element("th", cell, scope="row", class_=kind, style=_aside(kind))
                for number, (cell, kind) in enumerate(zip(row, kinds, strict=True))
            ),
        )
        for row in table.rows
    ]
    caption = element("caption", table.caption) if table.caption else None
    return element("table", caption, element("thead", element("tr", *heads)), element("tbody", *rows))


def _line(line: str) -> Html:
    margin = len(line) - len(line.lstrip())
    return element("p", line.strip(), style=f"margin:0.3em 0 0.3em {margin / 2:g}em")


def _scrolled(table: Table) -> Html:
    return element("div", html_table(table), style=_SCROLLS)


def _aside(kind: str | None) -> str:
    """Numbers stand to the right, text to the left, whatever the style around."""
    return "text-align:right" if kind else "text-align:left"
