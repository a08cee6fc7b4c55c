"""Relevance judgements (qrels) as files have them: of TREC, of BEIR, or a log of clicks with counts.

* TREC: lines of query id, iteration, item id and grade, without a header.
* BEIR: a header `query-id`, `corpus-id`, `score`, between tabs.
* A log: a header `query-id`, `item-id`, `count`, between tabs or commas; counts of one pair are added.

A grade above 0 is correct, and worth what it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.evaluation.query_files import readable, require_file, text_rows

Qrels = Mapping[str, Mapping[str, float]]  # query id -> item id -> gain
QUERIES = ("query-id", "query_id", "query", "qid")
ITEMS = ("item-id", "item_id", "item", "corpus-id", "corpus_id", "doc-id", "doc_id")
GRADES, COUNTS = ("score", "grade", "relevance", "gain"), ("count", "clicks")
EXPECTED = (
    "columns query-id, item-id (or corpus-id) and score, or count for a log of clicks; or the four of TREC without a "
    "header"
)
_TREC_FIELDS = 4


def read_qrels(path: str | Path) -> Qrels:
    """Read judgements from a file.

    Raises:
        NotFound: There is no such file.
        InvalidInput: The file cannot be read, is empty, or a line makes no sense. A pair is judged twice and
            differently, in a file that is no log.
    """
    file, asked = Path(path), f"read qrels from {path}"
    require_file(file, asked, ())
    with readable(file, asked):
        trec = _trec_lines(file)
        if trec is not None:
            return _collected(_trec(trec, asked), asked, counts=False)
        rows = text_rows(file, asked)
        if not rows:
            raise InvalidInput(asked, expected="at least one judgement", found="an empty file")
        return _from_header(rows, asked)


def qrels_of(judged: Mapping[Any, Any], asked: str = "read qrels") -> Qrels:
    """Check judgements that a caller holds: query id -> item id -> gain.

    Raises:
        InvalidInput: They are something else, or there are none.
    """

    def pairs() -> Iterator[tuple[str, str, float]]:
        for query, items in judged.items():
            if not isinstance(items, Mapping):
                raise InvalidInput(asked, expected="item id -> gain for each query", found=shown(items))
            for item, gain in items.items():
                yield str(query), str(item), _gain(gain, f"query {query}", asked)

    return _collected(pairs(), asked, counts=False)


def _collected(pairs: Iterator[tuple[str, str, float]], asked: str, *, counts: bool) -> Qrels:
    qrels: dict[str, dict[str, float]] = {}
    for query, item, gain in pairs:
        judged = qrels.setdefault(query, {})
        if item in judged and not counts:
            if judged[item] == gain:
                continue  # said twice, as files that were joined do
            found = f"query {query} and item {item} judged {judged[item]:g} and {gain:g}"
            raise InvalidInput(asked, expected="one judgement of each pair", found=found)
        judged[item] = judged.get(item, 0.0) + gain
    if not qrels:
        raise InvalidInput(asked, expected="at least one judgement", found="none")
    return qrels


def _trec_lines(file: Path) -> list[tuple[int, list[str]]] | None:
    """Numbered lines of fields, where the first line has those of TREC."""
    with file.open(encoding="utf-8-sig") as lines:
        split = ((number, _fields(line)) for number, line in enumerate(lines, 1) if line.strip())
        first = next(split, None)
        if first is None or len(first[1]) != _TREC_FIELDS or not _is_number(first[1][-1]):
            return None
        return [first, *split]


def _fields(line: str) -> list[str]:
    return line.rstrip("\r\n").split("\t") if "\t" in line else line.split()


def _trec(lines: list[tuple[int, list[str]]], asked: str) -> Iterator[tuple[str, str, float]]:
    for number, fields in lines:
        if len(fields) != _TREC_FIELDS:
            found = f"{len(fields)} in line {number}"
            raise InvalidInput(asked, expected="query id, iteration, item id and grade", found=found)
        query, _, item, grade = fields
        yield query, item, _gain(grade, f"line {number}", asked)


def _from_header(rows: list[dict[str, Any]], asked: str) -> Qrels:
    names = list(rows[0])
    query, item = (next((name for name in known if name in names), None) for known in (QUERIES, ITEMS))
    gain = next((name for name in (*GRADES, *COUNTS) if name in names), None)
    if query is None or item is None or gain is None:
        raise InvalidInput(asked, expected=EXPECTED, found=", ".join(map(str, names)))

    def pairs() -> Iterator[tuple[str, str, float]]:
        for place, row in enumerate(rows, 1):
            values = [row.get(name) for name in (query, item)]
            if not all(isinstance(value, str | int) and str(value).strip() for value in values):
                raise InvalidInput(asked, expected="ids of a query and an item", found=f"{shown(values)}, row {place}")
            yield str(values[0]), str(values[1]), _gain(row.get(gain), f"row {place}", asked)

    return _collected(pairs(), asked, counts=gain in COUNTS)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _gain(value: Any, where: str, asked: str) -> float:
    known = isinstance(value, str | int | float) and not isinstance(value, bool)
    if not known or not _is_number(str(value)):
        raise InvalidInput(asked, expected="a finite number as grade or count", found=f"{shown(value)}, {where}")
    return float(value)
