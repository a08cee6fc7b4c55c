"""Rows that an index does not hold yet, read once and compared with many queries in memory.

Lance reads every fragment of such rows for each query. Where many queries are asked of one table version the same is
read again and again, and in an object store each time is a request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, FloatArray, RowNumbers
from compatstore.storage.columns import VersionColumns
from compatstore.storage.indexes import fragments_outside, indexes_on
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.vector_form import to_matrix

MOST_ROWS = 20_000  # that are held in memory


@dataclass(frozen=True, eq=False)
class Unindexed:
    """The rows of a version that its index does not hold, and how far they are from some queries.

    Args:
        rows: (n,) their numbers, as Lance's `_rowid`.
        distances: (q, n) float32, as Lance gives them: squared (l2), 1 - cosine, 1 - product (dot).
    """

    rows: RowNumbers
    distances: FloatArray

    @classmethod
    def of(cls, snapshot: Snapshot, columns: VersionColumns, metric: str, queries: FloatArray) -> Unindexed | None:
        """Read them and compare them with (q, dim) float32 queries.

        Returns:
            None where there are none or more than `MOST_ROWS`, where there is no index, and of bits.
        """
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
        return cls(table["_rowid"].to_numpy(), distances_between(queries, vectors, metric))

    def added_to(self, found: ArrowTable, query: int, k: int) -> ArrowTable:
        """The k nearest of these rows and of what the index gave for a query.

        Args:
            found: `_rowid` and `_distance`, nearest first.
            query: Number of the query, from 0.
            k: Rows to give.
        """
        rows = np.concatenate([found["_rowid"].to_numpy(), self.rows])
        distances = np.concatenate([found["_distance"].to_numpy(), self.distances[query]])
        nearest = np.argsort(distances, kind="stable")[:k]  # NaN, of vectors without a direction, comes last
        return pa.table({"_rowid": rows[nearest], "_distance": distances[nearest]})


def distances_between(queries: FloatArray, vectors: FloatArray, metric: str) -> FloatArray:
    """Distances as Lance gives them, of (q, dim) float32 and (n, dim) float32: (q, n) float32, computed in float64."""
    asked, stored = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":  # as sums of squares: a difference of products would lose what is near
        squared = (np.square(stored - query).sum(axis=1) for query in asked)
        return np.stack(list(squared)).astype(np.float32)
    products = asked @ stored.T
    if metric == "cosine":
        lengths = np.linalg.norm(asked, axis=1)[:, None] * np.linalg.norm(stored, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            products /= lengths
    return (1.0 - products).astype(np.float32)
