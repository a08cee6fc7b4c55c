"""Steps of a backfill: its order, and the items that are native at a share."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Positions
from compatstore.boundary import array_of
from compatstore.errors import InvalidInput


def native_rows(order: Positions, alpha: float) -> npt.NDArray[np.bool_]:
    """Which rows are native at a share: the first floor(alpha n) of the order; (n,) bool."""
    native = np.zeros(len(order), dtype=bool)
    native[order[: native_count(alpha, len(order))]] = True
    return native


def native_count(alpha: float, items: int) -> int:
    """Items that are native at a share: floor(alpha n), where 0.29 of 100 is 29 although 0.29 * 100 < 29."""
    return math.floor(round(alpha * items, 6))


def as_permutation(order: npt.ArrayLike, items: int) -> Positions:
    """Return the order of a backfill as (items,) intp.

    Raises:
        InvalidInput: It is not a permutation of the gallery's rows.
    """
    rows = array_of(order, "order a backfill", "rows", ndim=1)
    if rows.dtype.kind not in "iu" or not np.array_equal(np.sort(rows), np.arange(items)):
        raise InvalidInput(
            "order a backfill",
            expected=f"each row of 0 to {items - 1} once",
            found=f"{rows.size} values of type {rows.dtype}",
        )
    return rows.astype(np.intp)
