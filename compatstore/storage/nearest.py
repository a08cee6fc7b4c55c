"""The nearest rows of several queries, by as few calls of Lance as there can be."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compatstore.arrays import ArrowTable, FloatArray, pack
from compatstore.storage.snapshot import Snapshot

HAMMING = "hamming"  # Lance's metric of bytes
QUERY = "query_index"  # Lance's column of the query that a row was found by
AT_ONCE = 256  # queries of one call, which opens a file for each: 8,192 were more than a process may open
# Of the vectors that are compared with one query at once, without an index. Lance's 8,192 rows are many bytes if the
# vectors are wide: those of 1,536 values took half as long again. Several queries gain nothing by fewer rows.
BATCH_BYTES, MOST_ROWS = 2 << 20, 8_192


def find_nearest(
    snapshot: Snapshot,
    nearest: Mapping[str, str | int],
    queries: FloatArray,
    columns: Sequence[str],
    condition: str | None = None,
    *,
    with_row_id: bool = False,
) -> list[ArrowTable]:
    """Search a column.

    Args:
        snapshot: The table version.
        nearest: Lance's options of the search: `column`, `k`, `metric`, `nprobes`, `refine_factor`, `use_index`.
        queries: (q, dim) float32; of a column of bits their signs count.
        columns: Columns to return, `_distance` among them if it is wanted.
        condition: SQL condition that the rows fulfil, or None.
        with_row_id: True if to return `_rowid` too.

    Returns:
        q Arrow tables, nearest row first.

    Raises:
        OSError: Whatever Lance raises, of that type or ValueError or RuntimeError.
    """
    column, metric, dim = str(nearest["column"]), str(nearest["metric"]), queries.shape[1]
    bits = pa.types.is_uint8(snapshot.schema.field(column).type.value_type)
    if bits:  # Lance compares bytes by the bits that differ, and by nothing else
        queries, nearest = pack(queries), {**nearest, "metric": HAMMING}  # type: ignore[assignment]

    at_once = max(min(BATCH_BYTES // (4 * dim), MOST_ROWS), 1)

    def call(block: FloatArray) -> list[ArrowTable]:
        table = snapshot.to_table(
            columns=list(columns),
            nearest={**nearest, "q": block if len(block) > 1 else block[0]},
            filter=condition,
            prefilter=condition is not None,
            with_row_id=with_row_id,
            batch_size=at_once if len(block) == 1 else None,
        )
        if bits:
            table = _as_distances(table, metric, dim)
        return _by_query(table, len(block)) if len(block) > 1 else [table]

    # Lance refuses several queries at once if the table has a column of that name itself.
    together = 1 if len(queries) > 1 and QUERY in snapshot.schema.names else AT_ONCE
    blocks = [queries[start : start + together] for start in range(0, len(queries), together)]
    calls = map(call, blocks) if len(blocks) == 1 else _calls_at_once().map(call, blocks)
    return [table for found in calls for table in found]


def _as_distances(table: ArrowTable, metric: str, dim: int) -> ArrowTable:
    """The rows with the distances between vectors of -1 and 1, of which Lance gives how many values differ."""
    if "_distance" not in table.schema.names:
        return table
    differ = table["_distance"].to_numpy()
    distances = {"l2": 4 * differ, "cosine": 2 * differ / dim, "dot": 1 - dim + 2 * differ}[metric]
    return with_values(table, "_distance", distances.astype(np.float32))


def with_values(table: ArrowTable, name: str, values: npt.NDArray[np.generic]) -> ArrowTable:
    """The table with (n,) other values in one of its columns."""
    return table.set_column(table.schema.get_field_index(name), name, pa.chunked_array([values]))


def _by_query(table: ArrowTable, queries: int) -> list[ArrowTable]:
    """The rows of each query; Lance gives them query by query, nearest first."""
    starts = np.searchsorted(table[QUERY].to_numpy(), np.arange(queries + 1))
    rows = table.drop_columns([QUERY]).combine_chunks()
    return [rows.slice(start, end - start) for start, end in itertools.pairwise(starts.tolist())]


@cache
def _calls_at_once() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="compatstore-queries")
