"""Native vectors that have not reached the table, and the rows of the table that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, Digests, FloatArray, Id, RowNumbers
from compatstore.storage.columns import NATIVE, VersionValues


@dataclass(frozen=True, eq=False)
class NativeBatch:
    """Native vectors of n items.

    Attributes:
        ids: Arrow array of n ids. In a table that others own an id may stand in several rows, and here several times.
        input_hash: (n,) uint64, of the rows that the vectors were made from.
        vectors: Reads some of them: (k,) positions -> (k, dim) float32.
        side: The same of their side-information, (k, side_dim) float32, NaN where an item has none; or None.
    """

    ids: ArrowArray
    input_hash: Digests
    vectors: Callable[[RowNumbers], FloatArray]
    side: Callable[[RowNumbers], FloatArray | None]

    @classmethod
    def of(
        cls, ids: ArrowArray, input_hash: Digests, vectors: FloatArray, side: FloatArray | None = None
    ) -> NativeBatch:
        """Natives in memory."""
        return cls(ids, input_hash, lambda rows: vectors[rows], lambda rows: None if side is None else side[rows])

    def positions(self, ids: ArrowArray, input_hash: Digests) -> RowNumbers:
        """Which vector belongs to each row of the table: (rows,) int64, -1 where none does.

        None belongs to a row whose item was changed after the vector was made.

        Args:
            ids: Arrow array of the rows' ids.
            input_hash: (rows,) uint64, of the rows as they are now.
        """
        ids = ids.cast(self.ids.type)
        found: RowNumbers = pc.index_in(ids, value_set=self.ids).fill_null(-1).to_numpy(zero_copy_only=False)
        fits = (
            (found >= 0) & (self.input_hash[found] == input_hash)
            if len(self.input_hash)
            else np.zeros(len(found), bool)
        )
        positions = np.where(fits, found, -1).astype(np.int64)
        for row in np.flatnonzero((found >= 0) & ~fits) if self._repeats else ():
            positions[row] = self._repeated.get((ids[int(row)].as_py(), int(input_hash[row])), -1)
        return positions

    @cached_property
    def _repeats(self) -> bool:
        return len(self.ids.unique()) < len(self.ids)

    @cached_property
    def _repeated(self) -> dict[tuple[Id, int], int]:
        """Positions by id and input hash."""
        keys = zip(self.ids.to_pylist(), self.input_hash.tolist(), strict=True)
        return {key: position for position, key in enumerate(keys)}


def put_natives(target: VersionValues, rows: RowNumbers, natives: NativeBatch, positions: RowNumbers) -> None:
    """Make some rows' vectors native, in place; side-information that a hop made stays where a native brings none.

    Args:
        target: The target's values of a table or batch.
        rows: (k,) rows of it.
        natives: Where their vectors are.
        positions: (k,) positions in it.
    """
    k = len(rows)
    side, side_valid = None if target.side is None else target.side[rows], target.side_valid[rows]
    brought = natives.side(positions)
    if brought is not None:
        known = np.asarray(np.isfinite(brought).all(axis=1))
        side = np.where(known[:, None], brought, np.float32(0) if side is None else side)
        side_valid = side_valid | known
    native = VersionValues(
        vectors=natives.vectors(positions),
        valid=np.ones(k, bool),
        origin=np.full(k, NATIVE, object),
        uncertainty=np.full(k, np.nan, np.float32),
        input_hash=natives.input_hash[positions],
        side=side,
        side_valid=side_valid,
    )
    target.put(rows, native)
