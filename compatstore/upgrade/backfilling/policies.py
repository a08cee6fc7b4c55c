"""The order of a backfill: every item gets a score, and the higher it is the earlier the item is embedded.

A policy is one of `POLICIES`, a column of the user's ("column:views"), or classes of a column that are taken from in
proportion ("spread-sigma:category").
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compatstore.arrays import Doubles
from compatstore.digests import BACKFILL
from compatstore.errors import InvalidInput
from compatstore.upgrade.backfilling.cells import spread
from compatstore.upgrade.backfilling.policy_inputs import PolicyInputs, TableRows
from compatstore.upgrade.backfilling.random_order import random_scores

RANDOM, SPREAD, SIGMA, SPREAD_SIGMA = "random", "spread", "sigma", "spread-sigma"
POLICIES = (RANDOM, SPREAD, SIGMA, SPREAD_SIGMA)
COLUMN, OF_CLASSES = "column:", f"{SPREAD_SIGMA}:"
AT_RANDOM = (RANDOM, SPREAD)  # what they choose first is a random sample of all items


def order(policy: str, rows: PolicyInputs, seed: int = 0) -> npt.NDArray[np.intp]:
    """Order items by a policy: the unknown (NaN) first, then by score, equals in the random order of the seed.

    Args:
        policy: "random", "spread", "sigma", "spread-sigma", "spread-sigma:NAME" or "column:NAME".
        rows: The n items, of a gallery or of arrays.
        seed: Of the policies "random" and "spread", of cells, and of the order among equal scores.

    Returns:
        (n,) intp, positions in `rows`, most urgent first. Of two items the same one is first wherever they stand.

    Raises:
        InvalidInput: There is no such policy, or the items lack what it reads.
    """
    first, second = order_keys(policy, rows, seed)
    return np.lexsort((second, first))


def order_keys(policy: str, rows: PolicyInputs, seed: int) -> tuple[Doubles, Doubles]:
    """What an order is by, the smallest first: (n,) float64, and (n,) float64 among equals; errors as of `order`."""
    require_policy(policy)
    score, chance = _score(policy, rows, seed), random_scores(rows.ids, BACKFILL, seed)
    return -np.where(np.isnan(score), np.inf, score), -chance


def is_spread(policy: str) -> bool:
    """Whether the place of an item depends on the other items of its cell or class."""
    return policy in (SPREAD, SPREAD_SIGMA) or classes_column(policy) is not None


def require_policy(policy: str) -> None:
    """Refuse a policy that does not exist.

    Raises:
        InvalidInput: It is neither in the table nor a column.
    """
    if policy not in POLICIES and column_of(policy) is None and classes_column(policy) is None:
        expected = f"one of {', '.join(POLICIES)}, {OF_CLASSES}NAME, {COLUMN}NAME"
        raise InvalidInput("order the backfill", expected=expected, found=repr(policy))


def reads_sigma(policy: str) -> bool:
    """Whether a policy reads the uncertainty that an artifact predicts."""
    return policy in (SIGMA, SPREAD_SIGMA) or classes_column(policy) is not None


def require_readable(policy: str, rows: TableRows, *, learns: bool = False) -> None:
    """Refuse a policy that reads what a gallery does not have, before anything is written.

    Args:
        policy: The order.
        rows: The gallery.
        learns: Whether an artifact is yet to be learned, which may predict sigma.

    Raises:
        InvalidInput: There is no such policy; or no artifact predicts sigma, or the table has no such column of numbers
            or classes.
    """
    require_policy(policy)
    column, classes = column_of(policy), classes_column(policy)
    if column is not None:
        rows.require_column(column)
    if classes is not None:
        rows.require_classes(classes)
    if reads_sigma(policy) and not learns:
        rows.require_uncertainty()


def column_of(policy: str) -> str | None:
    """The user's column whose numbers a policy orders by, or None."""
    return policy.removeprefix(COLUMN) or None if policy.startswith(COLUMN) else None


def classes_column(policy: str) -> str | None:
    """The user's column whose classes a policy takes from in proportion, or None."""
    return policy.removeprefix(OF_CLASSES) or None if policy.startswith(OF_CLASSES) else None


def _score(policy: str, rows: PolicyInputs, seed: int) -> Doubles:
    """(n,) float64, the higher the earlier.

    "sigma" is the predicted sigma^2, high to low (FastFill, section 4.2). "spread" is a random order whose first items
    are from all cells of the source's vectors in proportion; "spread-sigma" takes the most uncertain items of each
    cell, or of each class of a column, first.
    """
    column, classes = column_of(policy), classes_column(policy)
    if column is not None:
        return rows.column(column)
    if policy == SIGMA:
        return rows.uncertainty()
    chance = random_scores(rows.ids, BACKFILL, seed)
    if policy == RANDOM:
        return chance
    cells = rows.cells(seed) if classes is None else rows.classes(classes)
    return spread(cells, chance) if policy == SPREAD else spread(cells, chance, rows.uncertainty())
