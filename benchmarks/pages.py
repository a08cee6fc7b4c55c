"""Tables and charts of docs/results and the README's table, made from the records in benchmarks/results.

A page holds blocks that are filled here:

    <!-- table: NAME/KEY -->
    <!-- /table -->

KEY is one of the benchmark's `TABLES`, or `measured`: command, machine, commit and date of the record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

from benchmarks.record import ROOT, Record, benchmark_names, load, record_of

FOLDER = ROOT / "docs" / "results"
README = ROOT / "README.md"
PICTURES = ROOT / "docs" / "pictures" / "results"
BLOCK = re.compile(r"(<!-- table: (\w+)/([\w-]+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def fill(text: str) -> str:
    """A page with its tables made from the records."""
    return BLOCK.sub(lambda block: f"{block[1]}{_table(block[2], block[3])}\n{block[4]}", text)


def write() -> Iterator[str]:
    """Write the tables of all pages and all charts; yields the files that changed."""
    from benchmarks import charts  # matplotlib, which only charts need

    for page in (README, *sorted(FOLDER.rglob("*.md"))):
        text = page.read_text()
        if (filled := fill(text)) != text:
            page.write_text(filled)
            yield str(page.relative_to(ROOT))
    for name in benchmark_names("chart"):
        path = PICTURES / f"{name}.svg"
        picture = charts.svg(load(name).chart(record_of(name)))
        if not path.exists() or path.read_text() != picture:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(picture)
            yield str(path.relative_to(ROOT))


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown; columns of numbers are to be written as strings with their digits."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join("" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def measured(record: Record) -> str:
    """Commands, machines, commits and days of a record's rows."""
    keys = ("command", "machine", "commit", "date")
    known = dict.fromkeys(tuple(row[key] for key in keys) for row in record.measured())
    return markdown(keys, [(f"`{command}`", *rest) for command, *rest in known])


@cache
def _tables(name: str) -> tuple[Record, dict[str, Callable[[Record], str]]]:
    return record_of(name), {"measured": measured} | getattr(load(name), "TABLES", {})


def _table(name: str, key: str) -> str:
    record, tables = _tables(name)
    if key not in tables:
        raise LookupError(f"no table {key} of {name}: it has {', '.join(tables)}")
    return tables[key](record)
