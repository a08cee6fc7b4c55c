"""The first items of an order, found a stretch of the gallery at a time: memory for them, and not for all items.

An order of all items of a gallery would take some 70 bytes of each. Orders that are spread over cells or classes are
the exception: how early an item comes depends on all items of its cell, so they are made as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compatstore.arrays import BoolArray, Doubles, Positions
from compatstore.upgrade.backfilling.policies import draw_keys, is_spread, order, order_keys
from compatstore.upgrade.backfilling.policy_inputs import TableRows


def earliest(policy: str, rows: TableRows, seed: int, count: int, free: BoolArray) -> Positions:
    """The first items of an order, as `order` has them.

    Args:
        policy: The order.
        rows: The n items of a gallery.
        seed: Of the order.
        count: How many at most.
        free: (n,) bool, the items that they are taken from.

    Returns:
        (count or fewer,) intp, positions in the gallery, most urgent first.

    Raises:
        InvalidInput: There is no such policy, or the items lack what it reads.
    """
    if is_spread(policy):
        urgent = order(policy, rows, seed)
        return urgent[free[urgent]][:count]
    return _smallest(rows, count, free, lambda part: order_keys(policy, part, seed))


def earliest_drawn(policy: str, rows: TableRows, seed: int, count: int, free: BoolArray) -> Positions:
    """The first items of a draw, as `draw` has them; arguments as of `earliest`."""
    return _smallest(rows, count, free, lambda part: draw_keys(policy, part, seed))


def _smallest(
    rows: TableRows, count: int, free: BoolArray, keys: Callable[[TableRows], tuple[Doubles, Doubles]]
) -> Positions:
    """Positions of the items with the smallest keys: by the first key, then by the second, then by position."""
    positions, first, second = np.zeros(0, np.intp), np.zeros(0), np.zeros(0)
    start = 0
    for part in rows.parts():
        here = np.flatnonzero(free[start : start + len(part)])
        mine = keys(part)
        positions = np.concatenate([positions, start + here])
        first, second = np.concatenate([first, mine[0][here]]), np.concatenate([second, mine[1][here]])
        best = np.lexsort((second, first))[:count]  # stable, and the parts come in the order of the gallery
        positions, first, second = positions[best], first[best], second[best]
        start += len(part)
    return positions
