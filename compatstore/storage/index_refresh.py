"""Rows that an index does not hold: compared in memory meanwhile, and taken in by a refresh.

An index is trained on the vectors of its build. Vectors that come later are assigned to the same cells and codes, and
where they lie elsewhere, as native vectors do among transformed ones, searches find fewer of them, or compare more. So
two figures decide, both measured with the search settings that were chosen before: the recall on a sample, and the
share of the vectors that a search compares. Where neither has become worse, no more than the settings is chosen again.
Besides, an index gets back the cells that Lance has joined.

Lance reads every fragment of such rows for each query. Where many queries are asked of one table version the same is
read again and again, and in an object store each time is a request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowTable, FloatArray, RowNumbers
from compatstore.errors import InvalidInput
from compatstore.storage import indexes
from compatstore.storage.columns import VersionColumns
from compatstore.storage.index_status import IndexStatus, fragments_outside, index_status, names_on, update_index
from compatstore.storage.indexes import Report, VectorIndex, indexes_on, tell
from compatstore.storage.recall import measure_index, recall_now
from compatstore.storage.registry import edit, read
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store
from compatstore.storage.vector_form import to_matrix

FLOOR = 0.95  # what searches are promised to find; a build leaves 0.97 at least
CROWDED = 1.5  # times the share of the vectors that a search compared when that was measured
JOINED = 2  # times fewer cells than it was built with: Lance joins them where it merges deltas of few rows
CHANGED = 0.05  # of the rows: a change of less cannot lower the recall by more


@dataclass(frozen=True, kw_only=True)
class RefreshedIndex:
    """What a refresh did.

    Attributes:
        added: Vectors that came into the index.
        retrained: Why it was trained again, "" where it was not.
        status: The index as it is now.
    """

    added: int
    retrained: str
    status: IndexStatus


def build_index(store: Store, version: str, index: VectorIndex, report: Report | None = None) -> None:
    """Build the index of a version, or replace the one that it has, and measure what it finds.

    Args:
        store: The table.
        version: The version.
        index: What to build.
        report: Called as a stage goes on; what it raises ends the call.

    Raises:
        InvalidInput: There are too few rows to train it.
    """
    column = read(store.snapshot(), store.location.uri).columns(version).vector
    indexes.build(store, column, index, report)
    built = indexes.describe(store, column)
    cells = None if built is None else built.num_partitions  # product quantisation has one for 256 rows at the most
    edit(store, lambda state: state.with_version(replace(state.record(version), cells=cells)))
    measure_index(store, version, report)


def refresh_index(store: Store, version: str, report: Report | None = None, *, always: bool = True) -> RefreshedIndex:
    """Bring a version's index up to date.

    Args:
        store: The table.
        version: The version.
        report: Called as a stage goes on; what it raises ends the call, and what is done by then stays.
        always: Whether to measure where few vectors came since the last measurement too.

    Raises:
        NotFound: The gallery keeps no vectors of that version.
        InvalidInput: It has no index.
    """
    before = index_status(store, version)
    if not before.kind:
        raise InvalidInput(
            f"refresh the index of {version}",
            expected="a version with an index",
            found="none",
            fix=f"Build one: {next_step.call('index create', version)}",
        )
    column = read(store.snapshot(), store.location.uri).columns(version).vector
    if before.unindexed_rows:
        tell(report, "add rows", 0, before.unindexed_rows)
        update_index(store, names_on(store, column))
        tell(report, "add rows", before.unindexed_rows, before.unindexed_rows)
    status = index_status(store, version)
    if not always and status.changed <= CHANGED:
        return RefreshedIndex(added=before.unindexed_rows, retrained="", status=status)
    tell(report, "measure recall", 0)
    why, index = _why_train(store, status), indexes.describe(store, column)
    if why and index is not None and status.indexed_rows >= indexes.MINIMUM_ROWS:
        cells = read(store.snapshot(), store.location.uri).record(version).cells
        build_index(store, version, replace(index, num_partitions=cells or index.num_partitions), report)
    else:
        why = ""
        measure_index(store, version, report)
    return RefreshedIndex(added=before.unindexed_rows, retrained=why, status=index_status(store, version))


def _why_train(store: Store, status: IndexStatus) -> str:
    """Why an index is to be trained again, "" where it is not."""
    record = read(store.snapshot(), store.location.uri).record(status.version)
    if record.cells is not None and JOINED * status.cells <= record.cells:
        return f"its {record.cells} cells were joined to {status.cells}"
    compared = record.compared
    if compared is not None and status.compared is not None and status.compared > CROWDED * compared:
        return f"a search compared {status.compared:.1%} of the vectors, {compared:.1%} when that was measured"
    recall = recall_now(store, status.version)
    if recall is not None and recall < FLOOR:
        return f"the recall was {recall:.3f}"
    return ""


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
