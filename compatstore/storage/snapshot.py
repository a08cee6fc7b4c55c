"""Lance itself, imported once and quietly, and its datasets as this package uses them.

What Lance itself defines (fragments, index descriptions, tags) stays `Any`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from compatstore.arrays import ArrowBatch, ArrowField, ArrowSchema, ArrowTable

# Replacing the data files of a column is how a hop writes; Lance warns of it at every commit.
os.environ.setdefault(
    "LANCE_LOG", "warn,lance_table::transaction::manifest_build=error,lance::dataset::write::insert=error"
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
    "CommitConflictError",
    "Compaction",
    "CompactionTask",
    "DataFile",
    "LanceFileSession",
    "LanceFileWriter",
    "lance",
    "write_fragments",
]


class Snapshot(Protocol):
    """One version of a table, to be read; it does not change when the table does.

    Attributes:
        version: Number of the table version.
        schema: Arrow schema.
        lance_schema: Lance's schema, with the numbers of the fields.
        data_storage_version: Version of the file format, as in "2.0".
        has_stable_row_ids: Whether rows keep their numbers when they are moved.
        stats: Statistics, as `stats.index_stats(name)`.
        tags: Names of table versions, as `tags.list()`.
    """

    @property
    def version(self) -> int: ...
    @property
    def schema(self) -> ArrowSchema: ...
    @property
    def lance_schema(self) -> Any: ...
    @property
    def data_storage_version(self) -> str: ...
    @property
    def has_stable_row_ids(self) -> bool: ...
    @property
    def stats(self) -> Any: ...
    @property
    def tags(self) -> Any: ...

    def config(self) -> Mapping[str, str]:
        """Configuration of the table, where the registry is."""

    def count_rows(self, filter: str | None = None) -> int:
        """Rows that fulfil an SQL condition."""

    def to_table(self, **options: Any) -> ArrowTable:
        """Read rows; the options are Lance's: `columns`, `filter`, `nearest`, `limit`, `with_row_id`."""

    def to_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        limit: int | None = None,
        batch_size: int | None = None,
        batch_readahead: int | None = None,
        fragment_readahead: int | None = None,
    ) -> Iterator[ArrowBatch]:
        """Read rows batch by batch. Lance drops any other option without a word: those are for `scanner`."""

    def scanner(self, **options: Any) -> Any:
        """A Lance scanner of these options."""

    def take(self, indices: Sequence[int], columns: Sequence[str] | None = None) -> ArrowTable:
        """Rows by their places in the table."""

    def read_transaction(self, version: int) -> Any:
        """The transaction that made a table version, or None."""

    def get_fragments(self) -> list[Any]:
        """All of Lance's fragments, in order."""

    def get_fragment(self, fragment_id: int) -> Any:
        """One of Lance's fragments, or None."""

    def describe_indices(self) -> list[Any]:
        """Lance's descriptions of the indexes."""

    def all_files(self) -> Any:
        """A reader of the files in the table's folder."""

    def tracked_files(self) -> Any:
        """A reader of the files that a version of the table names."""

    def checkout_version(self, version: int) -> Snapshot:
        """Another version of the table.

        Raises:
            ValueError: It was cleaned up.
        """


class Writer(Snapshot, Protocol):
    """The latest version of a table, to be written; each of these methods commits and moves the handle on."""

    @property
    def optimize(self) -> Any:
        """Lance's optimiser of fragments and indexes."""

    def add_columns(self, fields: Sequence[ArrowField]) -> None:
        """Add columns of nulls."""

    def alter_columns(self, *changes: Mapping[str, Any]) -> None:
        """Rename columns or change their types."""

    def drop_columns(self, columns: Sequence[str]) -> None:
        """Drop columns."""

    def delete(self, predicate: str) -> Any:
        """Delete the rows that fulfil an SQL condition."""

    def merge_insert(self, on: str | Iterable[str]) -> Any:
        """Lance's builder of a merge by these columns."""

    def create_index(self, column: str, index_type: str, **options: Any) -> Any:
        """Index vectors; the options are Lance's."""

    def drop_index(self, name: str) -> None:
        """Drop an index by its name."""

    def create_scalar_index(self, column: str, index_type: str, **options: Any) -> Any:
        """Index a column of ids."""

    def cleanup_old_versions(self, older_than: timedelta | None = None, **options: Any) -> Any:
        """Remove old versions of the table and the files that only they need."""

    def explain_cleanup_old_versions(self, older_than: timedelta | None = None, **options: Any) -> Any:
        """What `cleanup_old_versions` would remove."""
