"""Tables in a document: each lies between `<!-- table: NAME -->` and `<!-- end -->`, and is filled by its name."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(document: str, lines: Callable[[str], Iterable[str]]) -> str:
    """Return a document with its tables replaced by the lines that are given for each name."""

    def table(match: re.Match[str]) -> str:
        return match[1] + "".join(f"{line}\n" for line in lines(match[2])) + match[3]

    return _MARKED.sub(table, document)


def add_page(parser: argparse.ArgumentParser) -> None:
    """The option of commands whose journal makes one table."""
    parser.add_argument("--page", type=Path, help="a document whose table is filled from the whole journal")


def publish(lines: Iterable[str], page: Path | None) -> None:
    """Print a table, and fill a document's with it, if any is named."""
    table = list(lines)
    if page is not None:
        page.write_text(filled(page.read_text(), lambda _: table))
    print(*table, sep="\n")


def line(cells: Sequence[str]) -> str:
    """A line of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
