"""Tables in a document: each lies between `<!-- table: NAME -->` and `<!-- end -->`, and is filled by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(document: str, lines: Callable[[str], Iterable[str]]) -> str:
    """Return a document with its tables replaced by the lines that are given for each name."""

    def table(match: re.Match[str]) -> str:
        return match[1] + "".join(f"{line}\n" for line in lines(match[2])) + match[3]

    return _MARKED.sub(table, document)


def line(cells: Sequence[str]) -> str:
    """A line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
