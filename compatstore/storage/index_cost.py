"""What an index costs: about how long a build takes, and how many bytes it is."""

from __future__ import annotations

import math
import os

from compatstore.storage.indexes import VectorIndex
from compatstore.storage.nearest import HAMMING

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
    flat = width // 8 if index.metric == HAMMING else 4 * width
    stored = {"FLAT": flat, "SQ": width, "PQ": index.num_sub_vectors or width // 8}
    edges = 160 if "HNSW" in index.kind else 0  # twenty neighbours of eight bytes
    return rows * (stored[index.kind.rsplit("_", 1)[-1]] + 8 + edges)
