"""The results of two parts become one list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.search.part_search import PartResult
from compatstore.search.plan import PartMerge

RANK_OFFSET = 60  # reciprocal rank fusion, Cormack et al. 2009


def merged(parts: Sequence[PartResult], merge: PartMerge, k: int) -> tuple[Any, bool]:
    """The k best of all parts, and whether no row that was not fetched could be among them.

    Args:
        parts: What was found in each.
        merge: How they are ranked together.
        k: Results wanted.
    """
    tables = [part.rows for part in parts]
    everything = pa.concat_tables(tables)
    if merge == "distance":
        order = pc.sort_indices(everything, [("_distance", "ascending")])[:k]
        last: Any = everything["_distance"][order[-1].as_py()].as_py() if len(order) else None
        bounds = [part.complete_below for part in parts]
    else:
        ranks = np.concatenate([np.arange(table.num_rows) for table in tables])
        order = pa.array(np.argsort(-1.0 / (RANK_OFFSET + ranks), kind="stable")[:k])
        last = int(ranks[order.to_numpy()].max(initial=-1))
        bounds = [None if part.complete_below is None else part.rows.num_rows for part in parts]
    # Behind a bound there may be more of its part; what is as good as the bound is as good as any of that.
    complete = len(order) == k and all(bound is None or last <= bound for bound in bounds)
    return everything.take(order), complete
