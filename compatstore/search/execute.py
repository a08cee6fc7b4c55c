"""Run a search plan: one Lance search a part, then the merge."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.encoders import FloatArray
from compatstore.errors import InvalidInput
from compatstore.search.plan import Part, SearchPlan
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import NATIVE

RANK_OFFSET = 60  # reciprocal rank fusion, Cormack et al. 2009


def execute(catalog: Catalog, snapshot: Any, plan: SearchPlan, queries: FloatArray, columns: Sequence[str]) -> Any:
    """Search.

    Args:
        catalog: The gallery.
        snapshot: The table version that the plan was made for.
        plan: From `plan_search`.
        queries: (q, dim) float32 in the plan's version.
        columns: Columns to return.

    Returns:
        Arrow table, nearest first: `columns`, `_distance`, `_version` (whose column the row was found in), `_origin`
        (native, or the artifact that made the vector), and `_query` (row of the query) for more than one query.

    Raises:
        InvalidInput: The condition is no valid SQL for this table.
    """
    forms = [_form(catalog, part, queries) for part in plan.parts]
    tables = []
    for row in range(len(queries)):
        found = _search_parts(snapshot, plan, [form[row] for form in forms], columns)
        merged = found[0] if len(found) == 1 else _merge(found, plan)
        if len(queries) > 1:
            merged = merged.append_column("_query", pa.array([row] * merged.num_rows, pa.int32()))
        tables.append(merged)
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def _search_parts(snapshot: Any, plan: SearchPlan, queries: Sequence[FloatArray], columns: Sequence[str]) -> list[Any]:
    """Search all parts, side by side where there are two: Lance works outside of Python's lock."""
    asked = list(zip(plan.parts, queries, strict=True))
    others = [_side_by_side().submit(_search_part, snapshot, *ask, plan, columns) for ask in asked[1:]]
    first = _search_part(snapshot, *asked[0], plan, columns)
    return [first, *(other.result() for other in others)]


@cache
def _side_by_side() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(thread_name_prefix="compatstore-search")


def _form(catalog: Catalog, part: Part, queries: FloatArray) -> FloatArray:
    """The queries as a part needs them: adapted, and with zeros behind where the column has them."""
    if part.artifact is not None:
        queries = catalog.artifact(part.artifact).apply(queries).vectors
    extra = part.columns.width - queries.shape[1]
    return np.pad(queries, ((0, 0), (0, extra))) if extra else queries


def _search_part(snapshot: Any, part: Part, query: FloatArray, plan: SearchPlan, columns: Sequence[str]) -> Any:
    origin = part.columns.origin
    wanted = list(dict.fromkeys([*columns, "_distance", *([origin] if origin else [])]))
    condition = " AND ".join(f"({c})" for c in (part.condition, plan.where) if c) or None
    nearest = {"column": part.columns.vector, "q": query, "k": plan.k, "metric": part.metric}
    try:
        table = snapshot.to_table(columns=wanted, nearest=nearest, filter=condition, prefilter=condition is not None)
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"search {part.version}" + (f" where {plan.where}" if plan.where else ""),
            expected="a condition in SQL on the gallery's columns",
            found=str(error).split(", /home/")[0],
        ) from error
    # One table made of the columns at once: appending and dropping them one by one costs more than the merge.
    n = table.num_rows
    found = dict(zip(table.schema.names, table.columns, strict=True))
    origins = found[origin] if origin else pa.repeat(NATIVE, n)
    names = [*columns, "_distance", "_version", "_origin"]
    arrays = [*(found[name] for name in names[:-2]), pa.repeat(part.version, n), origins]
    return pa.Table.from_arrays(arrays, names)


def _merge(tables: list[Any], plan: SearchPlan) -> Any:
    """One list of the k best of all parts."""
    everything = pa.concat_tables(tables)
    if plan.merge == "distance":
        order = pc.sort_indices(everything, [("_distance", "ascending")])
    else:
        ranks = np.concatenate([np.arange(table.num_rows) for table in tables])
        order = pa.array(np.argsort(-1.0 / (RANK_OFFSET + ranks), kind="stable"))
    return everything.take(order[: plan.k])
