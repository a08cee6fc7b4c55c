"""Indexes: build one on vectors, give a target column the kind that its source column has, update indexes by deltas.

An index is a sequence of deltas, each a part of the index with rows of its own. Lance scans rows that no delta holds.
An update writes these rows as a new delta, and merges it with the last deltas that hold no more rows than what follows
them: deltas of 800, 200 and 100 rows and 150 new rows become deltas of 800 and 450. So n rows are in about log n
deltas, and a row is rewritten about log n times.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from compatstore.boundary import require_fields
from compatstore.errors import InvalidInput
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store

KINDS = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_FLAT", "IVF_HNSW_PQ", "IVF_HNSW_SQ")
MINIMUM_ROWS = 256
MOST_CELLS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How a search uses the index of a version: what more it reads, to find more of the nearest.

    Args:
        nprobes: Cells of the index whose rows are compared, >= 1; None for Lance's choice.
        refine: Multiple of the results wanted that is compared by the vectors themselves instead of their codes,
            >= 1; None for none.

    Raises:
        InvalidInput: A number is below 1.

    Examples:
        >>> cs.SearchSettings(nprobes=8, refine=10).options
        {'nprobes': 8, 'refine_factor': 10}
    """

    nprobes: int | None = None
    refine: int | None = None

    def __post_init__(self) -> None:
        require_fields(self)
        for name in ("nprobes", "refine"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_CELLS:
                asked = f"search with {name}={value}"
                raise InvalidInput(asked, expected=f"a number from 1 to {MOST_CELLS}", found=f"{value}")

    @property
    def options(self) -> dict[str, int]:
        """Lance's options of a search."""
        named = (("nprobes", self.nprobes), ("refine_factor", self.refine))
        return {name: value for name, value in named if value is not None}

    def __str__(self) -> str:
        said = (f"{name} {value}" for name, value in (("nprobes", self.nprobes), ("refine", self.refine)) if value)
        return ", ".join(said) or "Lance's own settings"


@dataclass(frozen=True)
class VectorIndex:
    """Settings of an index.

    Attributes:
        kind: One of `KINDS`.
        metric: "l2", "cosine" or "dot".
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


# Processor seconds of a build, fitted to 13 builds of 20,000 to 100,000 random vectors (docs/decisions.md).
_START = 0.2
_PRODUCT = 2.6e-10  # a multiplication and an addition, in a distance to a centroid
_ROUNDS = 20  # of k-means, on 256 rows a cell
_FLAT_CELLS, _BRANCHES = 256, 16  # above 256 cells Lance splits by 16 at a time
_CODEBOOK = 1.6e-8  # all rounds of k-means for a part's 256 codes, per sampled row and value
_CODEBOOK_ROWS = 65_536
_EDGES, _EDGES_A_VALUE = 1.4e-4, 2.5e-7  # a row's place in the graph of a cell


def build_seconds(index: VectorIndex, rows: int, width: int, cores: int | None = None) -> float:
    """About how long a build takes, in seconds of a machine that does nothing else.

    Args:
        index: What is built.
        rows: Vectors.
        width: Values of each.
        cores: Of the machine; its own by default.
    """
    cells = index.num_partitions
    compared = cells if cells <= _FLAT_CELLS else _BRANCHES * math.log(cells, _BRANCHES)
    seconds = _START + _PRODUCT * width * (_ROUNDS * compared * min(rows, 256 * cells) + rows * cells)
    if index.kind.endswith("PQ"):
        seconds += 256 * width * (_CODEBOOK * min(rows, _CODEBOOK_ROWS) + _PRODUCT * rows)
    if "HNSW" in index.kind:
        seconds += rows * (_EDGES + _EDGES_A_VALUE * width) * (2 if index.kind.endswith("PQ") else 1)
    return seconds / (cores or os.cpu_count() or 1)


def index_bytes(index: VectorIndex, rows: int, width: int) -> int:
    """About what an index takes on disk."""
    stored = {"FLAT": 4 * width, "SQ": width, "PQ": index.num_sub_vectors or width // 8}
    edges = 160 if "HNSW" in index.kind else 0  # twenty neighbours of eight bytes
    return rows * (stored[index.kind.rsplit("_", 1)[-1]] + 8 + edges)


def require_enough(store: Store, column: str) -> None:
    """Refuse to index a column that holds too few vectors to train an index; read-only.

    Raises:
        InvalidInput: It does.
    """
    rows = store.count(f"`{column}` IS NOT NULL")
    if rows < MINIMUM_ROWS:
        raise InvalidInput(
            f"index {column}",
            expected=f"at least {MINIMUM_ROWS} vectors",
            found=f"{rows}",
            fix="Search without an index: it is exact and fast at that size.",
        )


def build(store: Store, column: str, index: VectorIndex) -> None:
    """Build an index on a column, or replace the one that it has.

    Raises:
        InvalidInput: There are too few rows to train it.
    """
    require_enough(store, column)
    sub_vectors = {} if index.num_sub_vectors is None else {"num_sub_vectors": index.num_sub_vectors}

    def commit() -> None:
        handle = store.writer()
        handle.create_index(
            column, index.kind, metric=index.metric, num_partitions=index.num_partitions, replace=True, **sub_vectors
        )
        _drop_orphans(handle)

    store.retry(f"index {column}", commit)


def _drop_orphans(handle: Any) -> None:
    """Drop indexes on columns that are gone, as where somebody dropped a column while an index was built on it.

    Lance commits such an index, and then fails to count the table's rows.
    """
    known = set(handle.schema.names)
    for found in handle.describe_indices():
        if not known.intersection(name.partition(".")[0] for name in found.field_names):
            handle.drop_index(found.name)


def describe(store: Store, column: str) -> VectorIndex | None:
    """The index on a column, or None."""
    snapshot = store.snapshot()
    for found in snapshot.describe_indices():
        if list(found.field_names) == [column]:
            return _read(snapshot.stats.index_stats(found.name))
    return None


def unindexed_rows(store: Store, column: str) -> int:
    """Rows of a column that its index does not hold yet; 0 without an index."""
    snapshot = store.snapshot()
    for found in snapshot.describe_indices():
        if list(found.field_names) == [column]:
            return int(snapshot.stats.index_stats(found.name)["num_unindexed_rows"])
    return 0


def mirrored(store: Store, source: str, width: int, metric: str) -> VectorIndex | None:
    """The index that a target column gets to be indexed as the source column is; None where the source has none."""
    index = describe(store, source)
    if index is None:
        return None
    parts = None if index.num_sub_vectors is None else sub_vectors(width, index.num_sub_vectors)
    return VectorIndex(index.kind, metric, index.num_partitions, parts)


def mirror(
    store: Store, source: str, target: str, width: int, metric: str, begins: Callable[[], None] | None = None
) -> bool:
    """Index the target column as the source column is, trained on what the target holds now.

    Args:
        store: The table.
        source: Column whose index is the model.
        target: Column that gets one.
        width: Values of the target's vectors, as they are stored.
        metric: Distance of the target.
        begins: Called where an index is about to be built, which takes long.

    Returns:
        Whether an index was built: not when the source has none, or when there are too few rows for one.
    """
    index = mirrored(store, source, width, metric)
    if index is None or store.count(f"`{target}` IS NOT NULL") < MINIMUM_ROWS:
        return False
    if begins is not None:
        begins()
    build(store, target, index)
    return True


def sub_vectors(width: int, at_least: int) -> int:
    """Parts of product quantisation that divide vectors of `width` values, no fewer than asked for.

    Rounding down could leave next to none: 1544 values, divided into 96 at the most, would be 8 parts.
    """
    return next(parts for parts in range(max(1, min(at_least, width)), width + 1) if width % parts == 0)


def _read(statistics: dict[str, Any]) -> VectorIndex | None:
    kind = statistics["index_type"]
    if kind not in KINDS:
        return None
    part = statistics["indices"][0]
    quantiser = part.get("sub_index", {})
    return VectorIndex(
        kind=kind,
        metric=part["metric_type"],
        num_partitions=part["num_partitions"],
        num_sub_vectors=quantiser.get("num_sub_vectors"),
    )


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
