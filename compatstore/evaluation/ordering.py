"""The order in which items are found: nearest first, and of equal distances the earlier item first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles


def nearest_first(distances: Doubles) -> npt.NDArray[np.intp]:
    """Columns of each row by distance: (b, n) float64 -> (b, n).

    The same as a stable sort. NumPy has vector instructions for the sort that is not, and few rows have equal
    distances, so only those are sorted a second time.
    """
    order: npt.NDArray[np.intp] = distances.argsort(axis=1)
    ranked = np.take_along_axis(distances, order, axis=1)
    tied = np.flatnonzero(~(ranked[:, 1:] > ranked[:, :-1]).all(axis=1))
    order[tied] = distances[tied].argsort(axis=1, kind="stable")
    return order
