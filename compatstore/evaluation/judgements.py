"""Judgements: which items are correct for which query, and the files (qrels) that hold them.

* TREC: lines of query id, iteration, item id and grade, without a header.
* BEIR: a header `query-id`, `corpus-id`, `score`, between tabs.
* A log: a header `query-id`, `item-id`, `count`, between tabs or commas; counts of one pair are added.

A grade above 0 is correct, and is the gain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compatstore.arrays import Doubles, Positions
from compatstore.boundary import array_of, checked_fields, shown
from compatstore.data_files import readable, require_file
from compatstore.errors import InvalidInput
from compatstore.evaluation.query_files import text_rows


@checked_fields
@dataclass(frozen=True, kw_only=True, eq=False)
class Judgements:
    """m pairs of a query and an item that is correct for it.

    Args:
        queries: (m,) intp, rows of the queries.
        items: (m,) intp, rows of the gallery.
        gains: (m,) float64, gain of each item for its query, finite and above 0: a grade, or a count of clicks.

    Raises:
        InvalidInput: Three lists of different lengths. A gain is not above 0, or not finite.

    Examples:
        >>> judged = cs.evaluation.Judgements(queries=[0, 0, 1], items=[4, 2, 4], gains=[2, 1, 1])
        >>> judged.counts(2).tolist()
        [2, 1]
    """

    queries: Positions
    items: Positions
    gains: Doubles

    def __post_init__(self) -> None:
        for name, kind in (("queries", np.intp), ("items", np.intp), ("gains", np.float64)):
            given = array_of(getattr(self, name), "read judgements", name, ndim=1)
            if given.size and given.dtype.kind not in ("iu" if kind is np.intp else "iuf"):
                expected = "whole numbers" if kind is np.intp else "numbers"
                raise InvalidInput("read judgements", expected=f"{name} that are {expected}", found=f"{given.dtype}")
            object.__setattr__(self, name, given.astype(kind))
        lengths = [len(values) for values in (self.queries, self.items, self.gains)]
        if len(set(lengths)) > 1:
            found = f"{lengths[1]} items and {lengths[2]} gains"
            raise InvalidInput("read judgements", expected=f"{lengths[0]} of each", found=found)
        if not (np.isfinite(self.gains).all() and (self.gains > 0).all()):
            raise InvalidInput("read judgements", expected="finite gains above 0", found="others")

    def __len__(self) -> int:
        return len(self.queries)

    def counts(self, queries: int) -> Positions:
        """(queries,) intp, correct items of each query."""
        return np.bincount(self.queries, minlength=queries)

    def require_within(self, queries: int, items: int) -> None:
        """Refuse rows that are not there.

        Raises:
            InvalidInput: A row of a query or of an item is out of range.
        """
        for rows, most, what in ((self.queries, queries, "queries"), (self.items, items, "items")):
            if len(rows) and not (rows.min() >= 0 and rows.max() < most):
                raise InvalidInput(
                    "read judgements", expected=f"rows of {most} {what}", found=f"{rows.min()} to {rows.max()}"
                )

    def of_queries(self, rows: Positions) -> Judgements:
        """Those of some queries, whose rows are then counted in the order of `rows`."""
        return self._renumbered(rows, None)

    def of_items(self, rows: Positions) -> Judgements:
        """Those of some items, whose rows are then counted in the order of `rows`."""
        return self._renumbered(None, rows)

    def _renumbered(self, queries: Positions | None, items: Positions | None) -> Judgements:
        queries = self.queries if queries is None else places_among(self.queries, queries)
        items = self.items if items is None else places_among(self.items, items)
        both = (queries >= 0) & (items >= 0)
        return Judgements(queries=queries[both], items=items[both], gains=self.gains[both])


def places_among(values: Positions, rows: Positions) -> Positions:
    """Position of each value among rows that differ, -1 for one that does not: (m,) intp."""
    if not len(rows):
        return np.full(len(values), -1)
    order = np.argsort(rows)
    at = np.minimum(np.searchsorted(rows, values, sorter=order), len(rows) - 1)
    places: Positions = np.where(rows[order[at]] == values, order[at], -1)
    return places


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
    file, operation = Path(path), f"read qrels from {path}"
    require_file(file, operation, ())
    with readable(file, operation):
        trec = _trec_lines(file)
        if trec is not None:
            return _collected(_trec(trec, operation), operation, counts=False)
        rows = text_rows(file, operation)
        if not rows:
            raise InvalidInput(operation, expected="at least one judgement", found="an empty file")
        return _from_header(rows, operation)


def qrels_of(judged: Mapping[Any, Any], operation: str = "read qrels") -> Qrels:
    """Check judgements that a caller holds: query id -> item id -> gain.

    Raises:
        InvalidInput: They are something else, or there are none.
    """

    def pairs() -> Iterator[tuple[str, str, float]]:
        for query, items in judged.items():
            if not isinstance(items, Mapping):
                raise InvalidInput(operation, expected="item id -> gain for each query", found=shown(items))
            for item, gain in items.items():
                yield str(query), str(item), _gain(gain, f"query {query}", operation)

    return _collected(pairs(), operation, counts=False)


def _collected(pairs: Iterator[tuple[str, str, float]], operation: str, *, counts: bool) -> Qrels:
    qrels: dict[str, dict[str, float]] = {}
    for query, item, gain in pairs:
        judged = qrels.setdefault(query, {})
        if item in judged and not counts:
            if judged[item] == gain:
                continue  # a repeated line, as in joined files
            found = f"query {query} and item {item} with grades {judged[item]:g} and {gain:g}"
            raise InvalidInput(operation, expected="one judgement of each pair", found=found)
        judged[item] = judged.get(item, 0.0) + gain
    if not qrels:
        raise InvalidInput(operation, expected="at least one judgement", found="none")
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


def _trec(lines: list[tuple[int, list[str]]], operation: str) -> Iterator[tuple[str, str, float]]:
    for number, fields in lines:
        if len(fields) != _TREC_FIELDS:
            found = f"{len(fields)} in line {number}"
            raise InvalidInput(operation, expected="query id, iteration, item id and grade", found=found)
        query, _, item, grade = fields
        yield query, item, _gain(grade, f"line {number}", operation)


def _from_header(rows: list[dict[str, Any]], operation: str) -> Qrels:
    names = list(rows[0])
    query, item = (next((name for name in known if name in names), None) for known in (QUERIES, ITEMS))
    gain = next((name for name in (*GRADES, *COUNTS) if name in names), None)
    if query is None or item is None or gain is None:
        raise InvalidInput(operation, expected=EXPECTED, found=", ".join(map(str, names)))

    def pairs() -> Iterator[tuple[str, str, float]]:
        for place, row in enumerate(rows, 1):
            values = [row.get(name) for name in (query, item)]
            if not all(isinstance(value, str | int) and str(value).strip() for value in values):
                raise InvalidInput(
                    operation, expected="ids of a query and an item", found=f"{shown(values)}, row {place}"
                )
            yield str(values[0]), str(values[1]), _gain(row.get(gain), f"row {place}", operation)

    return _collected(pairs(), operation, counts=gain in COUNTS)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _gain(value: Any, where: str, operation: str) -> float:
    known = isinstance(value, str | int | float) and not isinstance(value, bool)
    if not known or not _is_number(str(value)):
        raise InvalidInput(operation, expected="a finite number as grade or count", found=f"{shown(value)}, {where}")
    return float(value)
