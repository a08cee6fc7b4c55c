"""Indexes brought up to date: rows that one does not hold yet become a delta of it, which costs as much as they are.

Until then Lance finds such rows by a scan. Each delta is searched by itself, so a new one is merged with those before
it that are no larger: n rows are in log n deltas, and each row was rewritten as often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatstore.storage.store import Store

LARGEST_ROWS = 2_000_000  # of a delta that is merged, so that no write waits long for it


def update_index(store: Store, names: Sequence[str] | None = None, *, more_than: int = 0) -> None:
    """Bring indexes up to date.

    Args:
        store: The table.
        names: Names of the indexes, or None for all that the table has.
        more_than: Leave an index alone until it lacks more rows than this.
    """
    snapshot = store.snapshot()
    for index in snapshot.describe_indices():
        if names is None or index.name in names:
            _take_in(store, snapshot, index.name, more_than)


def merge_deltas(store: Store) -> None:
    """Make each index one part that holds all rows, however much work that is."""
    snapshot = store.snapshot()
    for index in snapshot.describe_indices():
        statistics = snapshot.stats.index_stats(index.name)
        if statistics["num_unindexed_rows"] or statistics["num_indices"] > 1:
            _optimise(store, index.name, int(statistics["num_indices"]))


def names_on(store: Store, column: str) -> list[str]:
    """Names of the indexes on one column."""
    return [index.name for index in store.snapshot().describe_indices() if list(index.field_names) == [column]]


def deltas_to_merge(rows: Sequence[int], new: int) -> int:
    """How many of the last deltas are merged with new rows: those that are no larger than all after them together.

    Args:
        rows: Of each delta, the oldest first.
        new: Rows that no delta holds yet.
    """
    total = new
    for merged, size in enumerate(reversed(rows)):
        if size > total or total + size > LARGEST_ROWS:
            return merged
        total += size
    return len(rows)


def _take_in(store: Store, snapshot: Any, name: str, more_than: int) -> None:
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
