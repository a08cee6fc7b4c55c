"""What a backfill embeds next: the first of its order that can be embedded, until its share is native."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, BoolArray, Positions
from compatstore.evaluation.curve import native_count
from compatstore.upgrade.backfilling.policies import RANDOM, draw, interleave, order
from compatstore.upgrade.backfilling.policy_inputs import TableRows


class Choice:
    """The items of one call, chosen in rounds.

    Native items count as chosen. The rest of the share are the first items in the policy's order that are not native.
    An item that became native has lost the values that the policy reads (its uncertainty, its transformed vector); this
    changes nothing, because the order of the other items stays the same. An item that cannot be embedded is replaced by
    the next in order: each round chooses as many items as the share still lacks. Example: a share of 100 items, 10 of
    the first 100 fail; the next round chooses items 101 to 110. So the set of native items depends on which items can
    be embedded, and not on where calls were stopped.

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
        self._round: npt.NDArray[np.intp] = np.zeros(0, np.intp)
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

    def next_round(self, failing: ArrowArray) -> ArrowArray:
        """Arrow array of ids, most urgent first: as many as the share lacks, or all that are left.

        Args:
            failing: Arrow array of the ids that could not be embedded; all else of the round before was.
        """
        failed = pc.is_in(self._ids(self._round), value_set=failing.cast(self._rows.ids.type))
        failed = failed.to_numpy(zero_copy_only=False)
        self._out[self._round[failed]] = True
        self._native[self._round[~failed]] = True
        self._round = self._chosen() if len(self) else self._round[:0]
        return self._ids(self._round)

    def _chosen(self) -> Positions:
        urgent = self._order[~(self._native | self._out)[self._order]]
        policy, holdout = self._run.policy, self._run.holdout
        if not holdout or policy == RANDOM:
            return urgent[: self.lacking]
        drawn = self._drawn[~self._out[self._drawn]][: int(holdout * self._quota)]
        return interleave(urgent, drawn[~self._native[drawn]], self.lacking, holdout)

    @cached_property
    def _order(self) -> Positions:
        return order(self._run.policy, self._rows, self._run.seed)

    @cached_property
    def _drawn(self) -> Positions:
        """All rows as they are drawn at random, to validate a refit by."""
        return draw(self._run.policy, self._rows, self._run.seed)

    def _ids(self, positions: Positions) -> ArrowArray:
        return self._rows.ids.take(pa.array(positions))

    def _among(self, ids: ArrowArray) -> BoolArray:
        if not len(ids):
            return np.zeros(len(self._native), bool)
        found = pc.is_in(self._rows.ids, value_set=ids.cast(self._rows.ids.type))
        return np.asarray(found.to_numpy(zero_copy_only=False))
