"""Indexes: build one on vectors, describe it, drop it, give a target the kind that its source has, add late rows.

An index is a sequence of deltas, each a part of the index with rows of its own. Lance scans rows that no delta holds.
An update writes these rows as a new delta, and merges it with the last deltas that hold no more rows than what follows
them: deltas of 800, 200 and 100 rows and 150 new rows become deltas of 800 and 450. So n rows are in about log n
deltas, and a row is rewritten about log n times. New rows are assigned to the cells and codes that the build has
learned; only a build learns other ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from compatstore.errors import InvalidInput
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fragments import Fragment, list_fragments
from compatstore.storage.nearest import HAMMING
from compatstore.storage.records import MOST_CELLS
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store

OF_BITS = "IVF_FLAT"  # on bytes Lance quantises nothing, and builds graphs that it cannot bring up to date
KINDS = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ")
MINIMUM_ROWS = 256
# Each vector is compared with the centre of each cell: with the square root of n cells that is n^1.5 distances.
MOST_CELLS_BY_DEFAULT = 4_096
Report = Callable[[str], None]  # called with the name of a stage that begins; an exception of it ends the call


@dataclass(frozen=True)
class VectorIndex:
    """Settings of an index.

    Attributes:
        kind: One of `KINDS`.
        metric: "l2", "cosine", "dot", or "hamming" of a column of bits.
        num_partitions: Cells of the inverted file.
        num_sub_vectors: Parts of product quantisation, or None for Lance's own choice.
    """

    kind: str
    metric: str
    num_partitions: int
    num_sub_vectors: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput("build a vector index", expected=f"one of {', '.join(KINDS)}", found=self.kind)
        for name in ("num_partitions", "num_sub_vectors"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_CELLS:
                expected = f"{name} from 1 to {MOST_CELLS}"
                raise InvalidInput("build a vector index", expected=expected, found=f"{value}")


def require_enough(store: Store, column: str) -> None:
    """Refuse to index a column that holds too few vectors to train an index; read-only.

    Raises:
        InvalidInput: It does.
    """
    rows = store.count(f"`{column}` IS NOT NULL")
    if rows < MINIMUM_ROWS:
        fix = "Search without an index: it is exact and fast at that size."
        raise InvalidInput(f"index {column}", expected=f"at least {MINIMUM_ROWS} vectors", found=f"{rows}", fix=fix)


def silent(stage: str) -> None:
    """Report nothing."""


def cells_for(rows: int, *, quantised: bool) -> int:
    """Cells of an index by default: the square root of the number of rows, 4,096 at the most.

    Lance builds one for 256 rows at the most if it quantises products, and warns of more.
    """
    cells = min(max(1, int(rows**0.5)), MOST_CELLS_BY_DEFAULT)
    return min(cells, max(1, rows // MINIMUM_ROWS)) if quantised else cells


def build(store: Store, column: str, index: VectorIndex, report: Report = silent) -> None:
    """Build an index on a column, or replace the one that it has.

    Args:
        store: The table.
        column: Column of vectors.
        index: The index to build.
        report: Called before it begins.

    Raises:
        InvalidInput: There are too few rows to train it.
    """
    require_enough(store, column)
    options: dict[str, Any] = {} if index.num_sub_vectors is None else {"num_sub_vectors": index.num_sub_vectors}
    report("build")

    def commit() -> None:
        handle = store.writer()
        cells = index.num_partitions
        handle.create_index(column, index.kind, metric=index.metric, num_partitions=cells, replace=True, **options)
        drop_orphans(handle)

    store.retry(f"index {column}", commit)


def drop(store: Store, column: str) -> list[str]:
    """Drop the indexes on a column.

    Returns:
        Their names; none if there was none.
    """

    def commit() -> list[str]:
        handle = store.writer()
        names = [str(found.name) for found in indexes_on(handle, column)]
        for name in names:
            handle.drop_index(name)
        return names

    dropped: list[str] = store.retry(f"drop the index on {column}", commit)
    return dropped


def drop_orphans(handle: Any) -> int:
    """Drop indexes on columns that are gone, as where a column was dropped while an index was built on it.

    Lance commits such an index, and then fails to read the table by any condition.

    Returns:
        How many there were.
    """
    known = set(handle.schema.names)
    orphans = [
        found.name
        for found in handle.describe_indices()
        if not known.intersection(name.partition(".")[0] for name in found.field_names)
    ]
    for name in orphans:
        handle.drop_index(name)
    return len(orphans)


def indexes_on(snapshot: Snapshot, column: str) -> list[Any]:
    """Lance's descriptions of the indexes on one column."""
    return [found for found in snapshot.describe_indices() if list(found.field_names) == [column]]


def describe(store: Store, column: str) -> VectorIndex | None:
    """The index on a column, or None."""
    snapshot = store.snapshot()
    found = next(iter(indexes_on(snapshot, column)), None)
    statistics: dict[str, Any] = {} if found is None else snapshot.stats.index_stats(found.name)
    if statistics.get("index_type") not in KINDS or not statistics["indices"]:
        return None
    part = statistics["indices"][0]
    return VectorIndex(
        kind=statistics["index_type"],
        metric=part["metric_type"],
        num_partitions=part["num_partitions"],
        num_sub_vectors=part.get("sub_index", {}).get("num_sub_vectors"),
    )


def mirrored(store: Store, source: str, target: VersionColumns, metric: str) -> VectorIndex | None:
    """The index that a target column gets to be indexed as the source column is; None if the source has none."""
    index = describe(store, source)
    if index is None:
        return None
    if target.dtype == "bits":
        return VectorIndex(OF_BITS, HAMMING, index.num_partitions)
    parts = None if index.num_sub_vectors is None else sub_vectors(target.width, index.num_sub_vectors)
    return VectorIndex(index.kind, metric, index.num_partitions, parts)


def sub_vectors(width: int, at_least: int) -> int:
    """Number of parts of product quantisation that divides vectors of `width` values, not below `at_least`.

    Rounding down could leave too few: 1544 values, divided into 96 at the most, would be 8 parts.
    """
    return next(parts for parts in range(max(1, min(at_least, width)), width + 1) if width % parts == 0)


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
        if names is not None and name not in names:
            continue
        statistics = snapshot.stats.index_stats(name)
        waiting = int(statistics["num_unindexed_rows"])
        if waiting:
            merged = deltas_to_merge([int(rows) for rows in statistics.get("num_indexed_rows_per_delta", [])], waiting)
            _optimise(store, name, merged)


def late_indexes(snapshot: Snapshot, more_than: int) -> list[str]:
    """Names of the indexes that lack more rows than this, deleted ones included; no file of an index is read."""
    return [
        str(index.name)
        for index in snapshot.describe_indices()
        if sum(fragment.rows for fragment in fragments_outside(snapshot, index)) > more_than
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


def deltas_to_merge(rows: Sequence[int], new: int) -> int:
    """The number of last deltas to merge with the new rows: those no larger than all rows that follow them.

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


def fragments_outside(snapshot: Snapshot, index: Any) -> list[Fragment]:
    """Fragments whose rows no delta of an index holds, by the index as Lance describes it."""
    held = {number for delta in index.segments for number in delta.fragment_ids}
    return [fragment for fragment in list_fragments(snapshot) if fragment.id not in held]


def _optimise(store: Store, name: str, merged: int) -> None:
    store.retry(
        f"bring the index {name} up to date",
        lambda: store.writer().optimize.optimize_indices(num_indices_to_merge=merged, index_names=[name]),
    )
