"""Rows that an index does not hold yet, read once and compared with many queries in memory.

Lance reads every fragment of such rows for each query. Where many queries are asked of one table version the same is
read again and again, and in an object store each time is a request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, Doubles, FloatArray, RowNumbers
from compatstore.storage.arrow_values import to_matrix
from compatstore.storage.columns import VersionColumns
from compatstore.storage.deltas import fragments_outside
from compatstore.storage.indexes import indexes_on
from compatstore.storage.snapshot import Snapshot

MOST_ROWS = 20_000  # that are held in memory


@dataclass(frozen=True, eq=False)
class Unindexed:
    """The rows of a version that its index does not hold.

    Args:
        rows: (n,) their numbers, as Lance's `_rowid`.
        vectors: (n, dim) float32.
        metric: "l2", "cosine" or "dot".
    """

    rows: RowNumbers
    vectors: FloatArray
    metric: str

    @classmethod
    def of(cls, snapshot: Snapshot, columns: VersionColumns, metric: str) -> Unindexed | None:
        """Read them; None where there are none or more than `MOST_ROWS`, where there is no index, and of bits."""
        index = next(iter(indexes_on(snapshot, columns.vector)), None)
        if index is None or columns.dtype == "bits":
            return None
        outside = [snapshot.get_fragment(number) for number in fragments_outside(snapshot, index)]
        if not outside or sum(fragment.physical_rows for fragment in outside) > MOST_ROWS:
            return None
        table = snapshot.scanner(
            fragments=outside, columns=[columns.vector], filter=columns.present, with_row_id=True
        ).to_table()
        vectors, _ = to_matrix(table[columns.vector], columns.width)
        return cls(table["_rowid"].to_numpy(), vectors, metric)

    def added_to(self, found: ArrowTable, query: FloatArray, k: int) -> ArrowTable:
        """The k nearest of these rows and of what the index gave for a query.

        Args:
            found: `_rowid` and `_distance`, nearest first.
            query: (dim,) float32.
            k: Rows to give.
        """
        rows = np.concatenate([found["_rowid"].to_numpy(), self.rows])
        distances = np.concatenate([found["_distance"].to_numpy(), self._distances(query).astype(np.float32)])
        nearest = np.argsort(distances, kind="stable")[:k]  # NaN, of vectors without a direction, comes last
        return pa.table({"_rowid": rows[nearest], "_distance": distances[nearest]})

    def _distances(self, query: FloatArray) -> Doubles:
        """To each row, as Lance gives them: squared (l2), 1 - cosine, 1 - product (dot); (n,) float64."""
        vectors, asked = self.vectors.astype(np.float64), query.astype(np.float64)
        if self.metric == "l2":
            squared: Doubles = np.square(vectors - asked).sum(axis=1)
            return squared
        products: Doubles = vectors @ asked
        if self.metric == "cosine":
            with np.errstate(invalid="ignore", divide="ignore"):
                products = products / (np.linalg.norm(vectors, axis=1) * np.linalg.norm(asked))
        return 1.0 - products
