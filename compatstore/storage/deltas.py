"""Deltas: how rows that came after a build get into an index.

An index is a sequence of deltas, each a part of the index with rows of its own. Lance scans rows that no delta holds.
An update writes these rows as a new delta, and merges it with the last deltas that hold no more rows than what follows
them: deltas of 800, 200 and 100 rows and 150 new rows become deltas of 800 and 450. So n rows are in about log n
deltas, and a row is rewritten about log n times. New rows are assigned to the cells and codes that the build has
learned; only a build learns other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compatstore.storage.fragments import Fragment, list_fragments
from compatstore.storage.indexes import indexes_on
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store

LARGEST_ROWS = 2_000_000  # of a delta that is merged, so that no write waits long for it
# Lance finds rows that no delta holds by a scan; 5,000 of them make a search 2.2 times as long.
UNINDEXED_ROWS = 5_000


def update_index(store: Store, names: Sequence[str] | None = None, *, more_than: int = 0) -> None:
    """Add the rows that indexes do not hold yet.

    Args:
        store: The table.
        names: Names of the indexes, or None for all that the table has.
        more_than: Update only indexes that lack more rows than this.
    """
    snapshot = store.snapshot()
    for name in late_indexes(snapshot, more_than):
        if names is None or name in names:
            _take_in(store, snapshot, name)


def late_indexes(snapshot: Snapshot, more_than: int) -> list[str]:
    """Names of the indexes that lack more rows than this, deleted ones included; no file of an index is read."""
    return [
        str(index.name)
        for index in snapshot.describe_indices()
        if sum(fragment.rows for fragment in _outside(snapshot, index)) > more_than
    ]


def merge_deltas(store: Store) -> None:
    """Merge each index into one delta that holds all rows; the cost grows with the size of the index."""
    snapshot = store.snapshot()
    for index in snapshot.describe_indices():
        statistics = snapshot.stats.index_stats(index.name)
        if statistics["num_unindexed_rows"] or statistics["num_indices"] > 1:
            _optimise(store, index.name, int(statistics["num_indices"]))


def names_on(store: Store, column: str) -> list[str]:
    """Names of the indexes on one column."""
    return [index.name for index in indexes_on(store.snapshot(), column)]


def fragments_outside(snapshot: Snapshot, index: Any) -> list[int]:
    """Numbers of the fragments whose rows no delta of an index holds, by the index as Lance describes it."""
    return [fragment.id for fragment in _outside(snapshot, index)]


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


def _outside(snapshot: Snapshot, index: Any) -> list[Fragment]:
    held = {number for delta in index.segments for number in delta.fragment_ids}
    return [fragment for fragment in list_fragments(snapshot) if fragment.id not in held]


def _take_in(store: Store, snapshot: Snapshot, name: str) -> None:
    statistics = snapshot.stats.index_stats(name)
    waiting = int(statistics["num_unindexed_rows"])
    if waiting:
        merged = deltas_to_merge([int(rows) for rows in statistics.get("num_indexed_rows_per_delta", [])], waiting)
        _optimise(store, name, merged)


def _optimise(store: Store, name: str, merged: int) -> None:
    store.retry(
        f"bring the index {name} up to date",
        lambda: store.writer().optimize.optimize_indices(num_indices_to_merge=merged, index_names=[name]),
    )
