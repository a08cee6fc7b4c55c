"""The parts of a search: one Lance search for each part, and one ranked list of the rows that they return."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowTable, FloatArray
from compatstore.errors import InvalidInput, meant
from compatstore.search.plan import Part, PartMerge
from compatstore.storage.failures import of_files
from compatstore.storage.nearest import find_nearest, with_values
from compatstore.storage.snapshot import Snapshot


@dataclass(frozen=True)
class PartResult:
    """The nearest rows of a part.

    Attributes:
        rows: Arrow table, nearest first: the caller's columns, `_distance`, `_version`, `_origin`. If the part has a
            calibration, distances are mapped by it.
        complete_below: Distance below which `rows` holds every row of the part: that of the k-th row returned by Lance,
            mapped as those of the rows are, which leaves it a bound, as the function never descends. None if Lance
            returned fewer than k rows, so that `rows` holds the whole part.
    """

    rows: ArrowTable
    complete_below: float | None


def search_part(
    snapshot: Snapshot,
    part: Part,
    queries: FloatArray,
    k: int,
    where: str | None,
    columns: Sequence[str],
    *,
    exactly: bool,
) -> list[PartResult]:
    """Search a part, by as few Lance calls as there can be.

    Args:
        snapshot: The table version that the plan was made for.
        part: Of the plan.
        queries: (q, dim) float32, as the part needs them.
        k: Results wanted.
        where: The caller's own condition, or None.
        columns: Columns to return.
        exactly: True: Lance filters by the part's condition and returns the part's k nearest rows, which reads the
            excluded column of every row. False: Lance returns the k nearest rows of the column, and those that belong
            to another part are removed from them: of k = 10 rows, 4 with a native vector leave 6.

    Returns:
        q results.

    Raises:
        InvalidInput: The condition is no valid SQL for this table.
    """
    origin, excluded_column = part.columns.origin, part.excluded_column
    conditions = [condition for condition in (part.condition if exactly else None, where) if condition]
    condition = " AND ".join(f"({condition})" for condition in conditions) or None
    more = [column for column in (origin, None if exactly else excluded_column) if column]
    wanted = list(dict.fromkeys([*columns, "_distance", *more]))
    nearest: dict[str, str | int] = {
        "column": part.columns.vector,
        "k": k,
        "metric": part.metric,
        **part.settings.options,
    }
    with refused_condition(f"search {part.version}", where):
        tables = find_nearest(snapshot, nearest, queries, wanted, condition)
    return [_result(table, part, k, columns, exactly=exactly) for table in tables]


@contextmanager
def refused_condition(operation: str, where: str | None) -> Iterator[None]:
    """Turn an error of Lance about the caller's condition into our error.

    Raises:
        InvalidInput: The condition is no valid SQL for this table.
    """
    try:
        yield
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: Lance panicked
        if where is None or of_files(error):
            raise
        found, expected, fix = str(error).split(", /home/")[0], "a condition in SQL on the gallery's columns", ""
        unknown = re.search(r"No field named (.+?)\. Valid fields are (.+?)\.", found)
        if unknown:
            name = unknown[1].strip('"')
            names = [one for one in unknown[2].split(", ") if not one.startswith("_") and "__" not in one]
            found, expected = f"no column {name!r}", f"a condition in SQL on {', '.join(names)}"
            fix = meant(name, names)
        raise InvalidInput(f"{operation} where {where}", expected=expected, found=found, fix=fix) from error


def _result(table: ArrowTable, part: Part, k: int, columns: Sequence[str], *, exactly: bool) -> PartResult:
    """The part's own rows of a result of Lance for one query."""
    excluded_column = part.excluded_column
    if part.calibration is not None:  # mapped distances ascend as the distances did, rounded to float32 as well
        mapped = part.calibration.apply(table["_distance"].to_numpy().astype(np.float64))
        table = with_values(table, "_distance", mapped.astype(np.float32))
    complete_below = table["_distance"][-1].as_py() if table.num_rows == k else None
    if excluded_column and not exactly:
        table = table.filter(table[excluded_column].is_null())
    # One table made of the columns at once: appending and dropping them one by one costs more than the merge.
    names = [*columns, "_distance", "_version", "_origin"]
    computed = [pa.repeat(part.version, table.num_rows), part.columns.origins(table)]
    arrays = [*(table[name] for name in names[:-2]), *computed]
    return PartResult(pa.Table.from_arrays(arrays, names), complete_below)


def with_numbers(tables: Sequence[ArrowTable]) -> ArrowTable:
    """The results of all queries, with `_query`, the row of the query, if there are several."""
    if len(tables) == 1:
        return tables[0]
    numbers = [pa.repeat(pa.scalar(row, pa.int32()), table.num_rows) for row, table in enumerate(tables)]
    return pa.concat_tables(tables).append_column("_query", pa.chunked_array(numbers, pa.int32()))


def merged(parts: Sequence[PartResult], merge: PartMerge, k: int) -> tuple[ArrowTable, bool]:
    """Rank the rows of all parts together.

    Args:
        parts: The rows found in each part.
        merge: "distance" and "calibrated" rank by distance, which is mapped already for the latter; "reciprocal rank"
            (Cormack et al. 2009) ranks by the rank within the part, if the parts' distances cannot be compared. A
            row is in one part only, so its rank alone decides.
        k: Results wanted.

    Returns:
        The k best rows, and whether the list is complete: whether no row of a part that was not fetched can belong to
        it. Example with k = 2: distances [1, 9] of one part and [3] of the other, which is complete below 5, give
        [1, 3]; this is complete, as a missing row has a distance of 5 or more. Without the row at 3 they give [1, 9],
        which is not: a missing row may have a distance between 5 and 9.
    """
    tables = [part.rows for part in parts]
    everything = pa.concat_tables(tables)
    if merge != "reciprocal rank":
        order = pc.sort_indices(everything, [("_distance", "ascending")])[:k]
        last: Any = everything["_distance"][order[-1].as_py()].as_py() if len(order) else None
        bounds = [part.complete_below for part in parts]
    else:
        ranks = np.concatenate([np.arange(table.num_rows) for table in tables])
        order = pa.array(np.argsort(ranks, kind="stable")[:k])
        last = int(ranks[order.to_numpy()].max(initial=-1))
        bounds = [None if part.complete_below is None else part.rows.num_rows for part in parts]
    # A row that was not fetched is at its part's bound or behind it, so a last result at the bound is no worse.
    complete = len(order) == k and all(bound is None or last <= bound for bound in bounds)
    return everything.take(order), complete
