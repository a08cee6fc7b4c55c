"""The order of a backfill, and the next items to embed: the first embeddable ones in that order.

Every item gets a score, and the higher it is the earlier the item is embedded.

A policy is one of `POLICIES`, or a column of the user's ("column:views").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, BoolArray, Doubles, Positions, RowNumbers
from compatstore.digests import BACKFILL
from compatstore.errors import InvalidInput
from compatstore.evaluation.curve import native_count
from compatstore.storage.ids import UNKNOWN
from compatstore.upgrade.backfilling.cells import random_scores, spread
from compatstore.upgrade.backfilling.policy_inputs import PolicyInputs, TableRows

RANDOM, SPREAD, SIGMA, SPREAD_SIGMA = "random", "spread", "sigma", "spread-sigma"
POLICIES = (RANDOM, SPREAD, SIGMA, SPREAD_SIGMA)
COLUMN = "column:"
AT_RANDOM = (RANDOM, SPREAD)  # their first choices are a random sample of all items


def order(policy: str, rows: PolicyInputs, seed: int = 0) -> npt.NDArray[np.intp]:
    """Order items by a policy: the unknown (NaN) first, then by score, equals in the random order of the seed.

    Args:
        policy: "random", "spread", "sigma", "spread-sigma" or "column:NAME".
        rows: The n items, of a gallery or of arrays.
        seed: Seed of the policies "random" and "spread", of cells, and of the order among equal scores.

    Returns:
        (n,) intp, positions in `rows`, most urgent first. Of two items the same one is first wherever they stand.

    Raises:
        InvalidInput: There is no such policy, or the items lack its inputs.
    """
    first, second = order_keys(policy, rows, seed)
    return np.lexsort((second, first))


def order_keys(policy: str, rows: PolicyInputs, seed: int) -> tuple[Doubles, Doubles]:
    """Keys of an order, the smallest first: (n,) float64, and (n,) float64 among equals; errors as of `order`."""
    require_policy(policy)
    score, chance = _score(policy, rows, seed), random_scores(rows.ids, BACKFILL, seed)
    return -np.where(np.isnan(score), np.inf, score), -chance


def require_policy(policy: str) -> None:
    """Refuse a policy that does not exist.

    Raises:
        InvalidInput: It is neither in the table nor a column.
    """
    if policy not in POLICIES and column_of(policy) is None:
        expected = f"one of {', '.join(POLICIES)}, {COLUMN}NAME"
        raise InvalidInput("order the backfill", expected=expected, found=repr(policy))


def reads_sigma(policy: str) -> bool:
    """True if a policy reads the uncertainty that an artifact predicts."""
    return policy in (SIGMA, SPREAD_SIGMA)


def require_readable(policy: str, rows: TableRows, *, learns: bool = False) -> None:
    """Refuse a policy whose inputs a gallery does not have, before anything is written.

    Args:
        policy: The order.
        rows: The gallery.
        learns: Whether an artifact is yet to be learned, which may predict sigma.

    Raises:
        InvalidInput: There is no such policy; or no artifact predicts sigma, or the table has no such column of
            numbers.
    """
    require_policy(policy)
    column = column_of(policy)
    if column is not None:
        rows.require_column(column)
    if reads_sigma(policy) and not learns:
        rows.require_uncertainty()


def column_of(policy: str) -> str | None:
    """The user's column whose numbers a policy orders by, or None."""
    return policy.removeprefix(COLUMN) or None if policy.startswith(COLUMN) else None


def _score(policy: str, rows: PolicyInputs, seed: int) -> Doubles:
    """(n,) float64, the higher the earlier.

    "sigma" is the predicted sigma^2, high to low (FastFill, section 4.2). "spread" is a random order whose first items
    are from all cells of the source's vectors in proportion; "spread-sigma" takes the most uncertain items of each
    cell first.
    """
    column = column_of(policy)
    if column is not None:
        return rows.column(column)
    if policy == SIGMA:
        return rows.uncertainty()
    chance = random_scores(rows.ids, BACKFILL, seed)
    if policy == RANDOM:
        return chance
    cells = rows.cells(seed)
    return spread(cells, chance) if policy == SPREAD else spread(cells, chance, rows.uncertainty())


ROUND_ROWS = 1 << 20  # items whose ids are in memory at once


@dataclass(frozen=True, eq=False)
class ChosenItems:
    """Items that were chosen, most urgent first.

    Attributes:
        ids: Arrow array of n ids.
        addresses: (n,) int64, row addresses at that time; `UNKNOWN` if unknown.
    """

    ids: ArrowArray
    addresses: RowNumbers

    @classmethod
    def of(cls, ids: ArrowArray) -> ChosenItems:
        """Items of which no more is known than their ids."""
        return cls(ids, np.full(len(ids), UNKNOWN))

    def __len__(self) -> int:
        return len(self.ids)

    def slice(self, start: int, rows: int) -> ChosenItems:
        """Some of them, one after the other."""
        return ChosenItems(self.ids.slice(start, rows), self.addresses[start : start + rows])


class Choice:
    """The items of one call, chosen in rounds.

    Native items count as chosen. The rest of the share are the first items in the policy's order that are not native.
    An item that became native has lost the values that the policy reads (its uncertainty, its transformed vector); this
    changes nothing, because the order of the other items stays the same. An item that cannot be embedded is replaced by
    the next in order: each round chooses as many items as the share still lacks. Example: a share of 100 items, 10 of
    the first 100 fail; the next round chooses items 101 to 110. So the set of native items depends on which items can
    be embedded, and not on where calls were stopped. A round is of a million items at the most.

    Args:
        rows: Items as of when the call began.
        share: Share of them that is to be native.
        staged: Arrow array of ids whose natives wait to come into the table.
        tried: Arrow array of ids that could not be embedded before and are not to be tried again.
    """

    def __init__(self, rows: TableRows, share: float, staged: ArrowArray, tried: ArrowArray) -> None:
        self._rows, self._run = rows, rows.context.run
        self._native = rows.native()
        self._quota = native_count(share, len(self._native))
        self._out = np.zeros(len(self._native), bool)
        self._round: Positions = np.zeros(0, np.intp)
        self._chosen = ChosenItems.of(rows.none())
        if self.lacking:
            self._native |= self._among(staged)
            self.leave_out(self._among(tried))

    @property
    def lacking(self) -> int:
        """Native items that the share lacks."""
        return max(self._quota - int(self._native.sum()), 0)

    def __len__(self) -> int:
        """Items of the next round."""
        return min(self.lacking, int((~self._native & ~self._out).sum()))

    def leave_out(self, items: BoolArray) -> None:
        """Choose none of these items: (n,) bool, in the order of the rows."""
        self._out |= items & ~self._native

    def next_round(self, failing: ArrowArray) -> ChosenItems:
        """The most urgent items: as many as the share lacks, or all that are left.

        Args:
            failing: Arrow array of the ids that could not be embedded; all else of the round before was.
        """
        failed = pc.is_in(self._chosen.ids, value_set=failing.cast(self._rows.id_type)).to_numpy(zero_copy_only=False)
        self._out[self._round[failed]] = True
        self._native[self._round[~failed]] = True
        self._round, self._chosen = self._round[:0], ChosenItems.of(self._rows.none())
        if len(self):
            count, free = min(self.lacking, ROUND_ROWS), ~(self._native | self._out)
            self._round = earliest(self._run.policy, self._rows, self._run.seed, count, free)
            self._chosen = ChosenItems(*self._rows.named_at(self._round))
        return self._chosen

    def _among(self, ids: ArrowArray) -> BoolArray:
        if not len(ids):
            return np.zeros(len(self._native), bool)
        wanted = ids.cast(self._rows.id_type)
        found = [pc.is_in(part.ids, value_set=wanted).to_numpy(zero_copy_only=False) for part in self._rows.parts()]
        return np.concatenate(found)


def earliest(policy: str, rows: TableRows, seed: int, count: int, free: BoolArray) -> Positions:
    """The first items of an order, as `order` has them.

    Args:
        policy: The order.
        rows: The n items of a gallery.
        seed: Seed of the order.
        count: Maximum number.
        free: (n,) bool, the items that they are taken from.

    Returns:
        (count or fewer,) intp, positions in the gallery, most urgent first.

    Raises:
        InvalidInput: There is no such policy, or the items lack its inputs.
    """
    if policy in (SPREAD, SPREAD_SIGMA):  # the place of an item depends on the other items of its cell
        urgent = order(policy, rows, seed)
        return urgent[free[urgent]][:count]
    # The items with the smallest keys: by the first key, then by the second, then by position.
    positions, first, second = np.zeros(0, np.intp), np.zeros(0), np.zeros(0)
    start = 0
    for part in rows.parts():
        here = np.flatnonzero(free[start : start + len(part)])
        mine = order_keys(policy, part, seed)
        positions = np.concatenate([positions, start + here])
        first, second = np.concatenate([first, mine[0][here]]), np.concatenate([second, mine[1][here]])
        best = np.lexsort((second, first))[:count]  # stable, and the parts come in the order of the gallery
        positions, first, second = positions[best], first[best], second[best]
        start += len(part)
    return positions
