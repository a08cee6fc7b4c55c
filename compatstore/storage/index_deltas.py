"""Updates of Lance indexes by deltas.

An index is a sequence of deltas, each a part of the index with rows of its own. Lance scans rows that no delta holds.
An update writes these rows as a new delta, and merges it with the last deltas that hold no more rows than what follows
them: deltas of 800, 200 and 100 rows and 150 new rows become deltas of 800 and 450. So n rows are in about log n
deltas, and a row is rewritten about log n times.
"""

from __future__ import annotations

from collections.abc import Sequence

from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store

LARGEST_ROWS = 2_000_000  # of a delta that is merged, so that no write waits long for it


def update_index(store: Store, names: Sequence[str] | None = None, *, more_than: int = 0) -> None:
    """Add the rows that indexes do not hold yet.

    Args:
        store: The table.
        names: Names of the indexes, or None for all that the table has.
        more_than: Update only indexes that lack more rows than this.
    """
    snapshot = store.snapshot()
    for index in snapshot.describe_indices():
        if names is None or index.name in names:
            _take_in(store, snapshot, index.name, more_than)


def merge_deltas(store: Store) -> None:
    """Merge each index into one delta that holds all rows; the cost grows with the size of the index."""
    snapshot = store.snapshot()
    for index in snapshot.describe_indices():
        statistics = snapshot.stats.index_stats(index.name)
        if statistics["num_unindexed_rows"] or statistics["num_indices"] > 1:
            _optimise(store, index.name, int(statistics["num_indices"]))


def names_on(store: Store, column: str) -> list[str]:
    """Names of the indexes on one column."""
    return [index.name for index in store.snapshot().describe_indices() if list(index.field_names) == [column]]


def deltas_to_merge(rows: Sequence[int], new: int) -> int:
    """How many of the last deltas are merged with the new rows: those no larger than all rows that follow them.

    Args:
        rows: Rows of each delta, oldest first, as in (800, 200, 100).
        new: Rows that no delta holds yet, as in 150: then 2 deltas are merged, as 100 <= 150 and 200 <= 250.
    """
    total = new
    for merged, size in enumerate(reversed(rows)):
        if size > total or total + size > LARGEST_ROWS:
            return merged
        total += size
    return len(rows)


def _take_in(store: Store, snapshot: Snapshot, name: str, more_than: int) -> None:
    statistics = snapshot.stats.index_stats(name)
    waiting = int(statistics["num_unindexed_rows"])
    if waiting <= more_than:
        return
    merged = deltas_to_merge([int(rows) for rows in statistics.get("num_indexed_rows_per_delta", [])], waiting)
    _optimise(store, name, merged)


def _optimise(store: Store, name: str, merged: int) -> None:
    store.retry(
        f"bring the index {name} up to date",
        lambda: store.writer().optimize.optimize_indices(num_indices_to_merge=merged, index_names=[name]),
    )
