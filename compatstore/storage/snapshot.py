"""Lance itself, imported once and quietly, and the names of its datasets.

The aliases state the use of a dataset; mypy does not read Lance's types and does not check them.
"""

from __future__ import annotations

import os
from typing import TypeAlias

from compatstore.storage.memory import share_arenas

# Replacing the data files of a column is how a hop writes, and maintenance gives way to writers: Lance warns of both.
os.environ.setdefault(
    "LANCE_LOG",
    "warn,lance_table::transaction::manifest_build=error,lance::dataset::write::insert=error,"
    "lance::dataset::optimize=error",
)
# An upsert joins on ids with the whole batch in memory; Lance's own 300 MB refuse batches of 100,000 vectors.
os.environ.setdefault("LANCE_MEM_POOL_SIZE", str(8 << 30))
os.environ.setdefault("LANCE_INCLUDE_VECTOR_CENTROIDS", "false")

import lance
from lance.commit import CommitConflictError
from lance.file import LanceFileSession, LanceFileWriter
from lance.fragment import DataFile, write_fragments
from lance.optimize import Compaction, CompactionTask

__all__ = [
    "READ_AHEAD",
    "CommitConflictError",
    "Compaction",
    "CompactionTask",
    "DataFile",
    "LanceFileSession",
    "LanceFileWriter",
    "lance",
    "write_fragments",
]


share_arenas()  # before Lance starts its threads

# Of a scan that reads vectors: Lance reads 16 batches of several fragments and 2 GB ahead by default.
READ_AHEAD = {"batch_readahead": 2, "fragment_readahead": 1, "io_buffer_size": 32 << 20}
# A dataset of Lance at one table version. A snapshot is read only: it does not change when the table does.
Snapshot: TypeAlias = lance.LanceDataset
# A handle that commits, which lies at the version that it made then.
Writer: TypeAlias = lance.LanceDataset
