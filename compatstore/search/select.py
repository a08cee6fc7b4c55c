"""Items by a condition alone, without a query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compatstore.arrays import ArrowTable
from compatstore.boundary import shown
from compatstore.errors import InvalidInput
from compatstore.search.condition import joined
from compatstore.search.parts import refused_condition
from compatstore.storage.snapshot import Snapshot


def select(
    snapshot: Snapshot, where: str | Sequence[str] | None, columns: Sequence[str], limit: int | None
) -> ArrowTable:
    """Read items; see `Gallery.select`.

    Raises:
        InvalidInput: A condition is no valid SQL for this table, or the limit is below 0.
    """
    asked = "select items"
    if limit is not None and (not isinstance(limit, int | np.integer) or limit < 0):
        raise InvalidInput(asked, expected="a limit that is a whole number >= 0", found=shown(limit))
    condition = joined(where, asked)
    with refused_condition(asked, condition):
        return snapshot.to_table(columns=list(columns), filter=condition, limit=limit)


def count(snapshot: Snapshot, where: str | Sequence[str] | None) -> int:
    """Number of items; see `Gallery.count`.

    Raises:
        InvalidInput: A condition is no valid SQL for this table.
    """
    asked = "count items"
    condition = joined(where, asked)
    with refused_condition(asked, condition):
        return int(snapshot.count_rows(condition))
