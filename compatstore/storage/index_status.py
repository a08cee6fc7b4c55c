"""The state of a version's index: its kind and size, the rows that it holds, and its measured recall."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from compatstore.storage.indexes import VectorIndex, fragments_outside, indexes_on
from compatstore.storage.moves import addresses
from compatstore.storage.nearest import HAMMING
from compatstore.storage.records import SearchSettings
from compatstore.storage.registry import read
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store


@dataclass(frozen=True, kw_only=True)
class IndexStatus:
    """The index of a version as of now.

    Attributes:
        version: The version.
        kind: IVF_FLAT, IVF_PQ, ...; "" if there is no index.
        metric: The distance that it was built for, "" without an index.
        cells: Cells of the inverted file.
        sub_vectors: Parts of product quantisation, or None.
        bytes: Size of its files.
        deltas: Parts of the index, each with rows of its own; every search looks into each.
        indexed_rows: Vectors that it holds.
        unindexed_rows: Vectors that it does not hold yet: a search compares all of them.
        settings: Measured search settings; None without a measurement.
        recall: Share of the 10 nearest items that such a search found when that was measured, in [0, 1], or None.
        recall_at: Time of the measurement, ISO 8601, UTC, or "".
        compared: Share of the indexed vectors that such a search compares now, about, in [0, 1], or None.
        changed: Share of the indexed vectors that came into it since the recall was measured, in [0, 1].
    """

    version: str
    kind: str = ""
    metric: str = ""
    cells: int = 0
    sub_vectors: int | None = None
    bytes: int = 0
    deltas: int = 0
    indexed_rows: int = 0
    unindexed_rows: int
    settings: SearchSettings | None = None
    recall: float | None = None
    recall_at: str = ""
    compared: float | None = None
    changed: float = 0.0


def index_status(store: Store, version: str, snapshot: Snapshot | None = None) -> IndexStatus:
    """Read the state of a version's index, as of now or of an open snapshot; read-only.

    Raises:
        NotFound: The gallery keeps no vectors of that version.
    """
    snapshot = store.snapshot() if snapshot is None else snapshot
    registry = read(snapshot, store.location.uri)
    record, columns = registry.record(version), registry.columns(version)
    vectors = int(snapshot.count_rows(columns.present))
    found = next(iter(indexes_on(snapshot, columns.vector)), None)
    if found is None:
        return IndexStatus(version=version, unindexed_rows=vectors)
    statistics = snapshot.stats.index_stats(found.name)
    parts: list[dict[str, Any]] = statistics["indices"]
    first = parts[0] if parts else {}
    fragments = [fragment.id for fragment in fragments_outside(snapshot, found)]
    outside = len(addresses(snapshot, columns.present, fragments)) if fragments else 0
    return IndexStatus(
        version=version,
        kind=str(statistics["index_type"]),
        metric=str(first.get("metric_type", record.metric)),
        cells=int(first.get("num_partitions", 0)),
        sub_vectors=first.get("sub_index", {}).get("num_sub_vectors"),
        bytes=int(found.total_size_bytes or 0),
        deltas=len(parts),
        indexed_rows=vectors - outside,
        unindexed_rows=outside,
        settings=record.search,
        recall=record.recall,
        recall_at=record.recall_at,
        compared=compared_share(parts, record.search),
        changed=_share_since(found, statistics, record.recall_at),
    )


def compared_share(parts: list[dict[str, Any]], settings: SearchSettings | None) -> float | None:
    """Share of the indexed vectors in the cells that a search reads, about; None if their number is not set.

    A query lies where items lie, so its own cell is one of s of n vectors with probability s / n, and holds
    sum s^2 / n vectors on average. The other cells that are read are taken to be as full.

    Args:
        parts: Lance's statistics of the deltas. Their cells are the same ones, in the same order.
        settings: Search settings of the index.
    """
    sizes = [0] * max((len(part.get("partitions", ())) for part in parts), default=0)
    for part in parts:
        for cell, found in enumerate(part.get("partitions", ())):
            sizes[cell] += int(found["size"])
    rows = sum(sizes)
    if settings is None or settings.nprobes is None or not rows:
        return None
    return min(1.0, settings.nprobes * sum(size * size for size in sizes) / rows**2)


def _share_since(index: Any, statistics: dict[str, Any], measured_at: str) -> float:
    """Share of the rows in deltas that are younger than a measurement; 1.0 if there was none."""
    rows = [int(count) for count in statistics.get("num_indexed_rows_per_delta", [])]
    if not measured_at or not sum(rows):
        return 1.0
    # An index of an early release of Lance does not say when it was made: before the measurement, then.
    times = [delta.created_at for delta in index.segments]
    made = ["" if at is None else at.isoformat(timespec="microseconds") for at in times]
    return sum(count for count, at in zip(rows, made, strict=False) if at > measured_at) / sum(rows)


# Processor seconds of a build, fitted to 13 builds of 20,000 to 100,000 random vectors (docs/decisions.md).
_START = 0.2
_PRODUCT = 2.6e-10  # a multiplication and an addition, in a distance to a centroid
_ROUNDS = 20  # of k-means, on 256 rows a cell
_FLAT_CELLS, _BRANCHES = 256, 16  # above 256 cells Lance splits by 16 at a time
_CODEBOOK = 1.6e-8  # all rounds of k-means for a part's 256 codes, per sampled row and value
_CODEBOOK_ROWS = 65_536
_EDGES, _EDGES_A_VALUE = 1.4e-4, 2.5e-7  # a row's place in the graph of a cell


def build_seconds(index: VectorIndex, rows: int, width: int, cores: int | None = None) -> float:
    """Approximate time of a build, in seconds of an idle machine.

    Args:
        index: The index to build.
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
    """Approximate size of an index on disk, in bytes."""
    flat = width // 8 if index.metric == HAMMING else 4 * width
    stored = {"FLAT": flat, "SQ": width, "PQ": index.num_sub_vectors or width // 8}
    edges = 160 if "HNSW" in index.kind else 0  # twenty neighbours of eight bytes
    return rows * (stored[index.kind.rsplit("_", 1)[-1]] + 8 + edges)
