"""Indexes brought up to date: rows that one does not hold yet become a delta of it, which costs as much as they are.

Until then Lance finds such rows by a scan. Each delta is searched by itself, so many are merged into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatstore.storage.store import Store

DELTAS = 16


def take_in(store: Store, names: Sequence[str] | None = None, *, more_than: int = 0) -> None:
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


def names_on(store: Store, column: str) -> list[str]:
    """Names of the indexes on one column."""
    return [index.name for index in store.snapshot().describe_indices() if list(index.field_names) == [column]]


def _take_in(store: Store, snapshot: Any, name: str, more_than: int) -> None:
    statistics = snapshot.stats.index_stats(name)
    if statistics["num_unindexed_rows"] <= more_than:
        return
    merged = statistics["num_indices"] if statistics["num_indices"] >= DELTAS else 0
    store.retry(
        f"bring the index {name} up to date",
        lambda: store.writer().optimize.optimize_indices(num_indices_to_merge=merged, index_names=[name]),
    )
