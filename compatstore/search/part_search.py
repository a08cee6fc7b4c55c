"""One Lance search: the nearest rows of one part of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from compatstore.arrays import FloatArray
from compatstore.errors import InvalidInput
from compatstore.search.plan import Part
from compatstore.storage.columns import NATIVE
from compatstore.storage.failures import of_files


@dataclass(frozen=True)
class PartResult:
    """The nearest rows of a part.

    Attributes:
        rows: Arrow table, nearest first: the caller's columns, `_distance`, `_version`, `_origin`.
        complete_below: Rows of the part that are nearer than this are all there; None where nothing is left to be
            found.
    """

    rows: Any
    complete_below: float | None


def search_part(
    snapshot: Any, part: Part, query: FloatArray, k: int, where: str | None, columns: Sequence[str], *, exactly: bool
) -> PartResult:
    """Search a part.

    Args:
        snapshot: The table version that the plan was made for.
        part: Of the plan.
        query: (dim,) float32, as the part needs it.
        k: Results wanted.
        where: The caller's own condition, or None.
        columns: Columns to return.
        exactly: Whether the k nearest rows of the part are found. Else k rows are, and those that belong to another
            part are left out: the condition costs Lance a look at every row's origin, and this a look at k.

    Raises:
        InvalidInput: The condition is no valid SQL for this table.
    """
    origin, excluded_column = part.columns.origin, part.excluded_column
    conditions = [condition for condition in (part.condition if exactly else None, where) if condition]
    condition = " AND ".join(f"({condition})" for condition in conditions) or None
    more = [column for column in (origin, None if exactly else excluded_column) if column]
    wanted = list(dict.fromkeys([*columns, "_distance", *more]))
    nearest = {"column": part.columns.vector, "q": query, "k": k, "metric": part.metric}
    try:
        table = snapshot.to_table(columns=wanted, nearest=nearest, filter=condition, prefilter=condition is not None)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: Lance panicked
        if where is None or of_files(error):
            raise
        raise InvalidInput(
            f"search {part.version}" + (f" where {where}" if where else ""),
            expected="a condition in SQL on the gallery's columns",
            found=str(error).split(", /home/")[0],
        ) from error
    complete_below = table["_distance"][-1].as_py() if table.num_rows == k else None
    if excluded_column and not exactly:
        table = table.filter(table[excluded_column].is_null())
    # One table made of the columns at once: appending and dropping them one by one costs more than the merge.
    n = table.num_rows
    found = dict(zip(table.schema.names, table.columns, strict=True))
    origins = found[origin] if origin else pa.repeat(NATIVE, n)
    names = [*columns, "_distance", "_version", "_origin"]
    arrays = [*(found[name] for name in names[:-2]), pa.repeat(part.version, n), origins]
    return PartResult(pa.Table.from_arrays(arrays, names), complete_below)
