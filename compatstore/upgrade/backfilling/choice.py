"""What a backfill embeds next: the first of its order that can be embedded, until its share is native."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, BoolArray, Positions, RowNumbers
from compatstore.evaluation.curve import native_count
from compatstore.storage.ids import UNKNOWN
from compatstore.upgrade.backfilling.policies import is_spread, order, order_keys
from compatstore.upgrade.backfilling.policy_inputs import TableRows

ROUND_ROWS = 1 << 20  # items whose ids are in memory at once


@dataclass(frozen=True, eq=False)
class ChosenItems:
    """Items that were chosen, most urgent first.

    Attributes:
        ids: Arrow array of n ids.
        addresses: (n,) int64, where they were then; `UNKNOWN` where that is not known.
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
        self._round = self._urgent(min(self.lacking, ROUND_ROWS)) if len(self) else self._round[:0]
        self._chosen = (
            ChosenItems(*self._rows.named_at(self._round)) if len(self._round) else ChosenItems.of(self._rows.none())
        )
        return self._chosen

    def _urgent(self, count: int) -> Positions:
        return earliest(self._run.policy, self._rows, self._run.seed, count, ~(self._native | self._out))

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
