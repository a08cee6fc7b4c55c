"""Kendall's tau: how far two scores of the same items put them in the same order."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

# Rows that are compared with all others at a time.
_BLOCK = 512


def kendall_tau(one: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Return tau-b, exactly, by comparing all pairs of items.

    Args:
        one: (n,) numbers.
        other: (n,) numbers.

    Returns:
        From -1 (reversed) to 1 (same order); 0 where either score is the same for all items.
    """
    left, right = np.asarray(one, np.float64), np.asarray(other, np.float64)
    agreeing = left_untied = right_untied = 0
    for start in range(0, len(left), _BLOCK):
        rows = slice(start, start + _BLOCK)
        signs, other_signs = _signs(left, rows), _signs(right, rows)
        agreeing += int(np.sum(signs * other_signs, dtype=np.int64))
        left_untied += int(np.count_nonzero(signs))
        right_untied += int(np.count_nonzero(other_signs))
    return agreeing / math.sqrt(left_untied * right_untied) if left_untied and right_untied else 0.0


def _signs(values: npt.NDArray[np.float64], rows: slice) -> npt.NDArray[np.int8]:
    mine = values[rows, None]
    return np.subtract(mine > values, mine < values, dtype=np.int8)
