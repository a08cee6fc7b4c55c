"""Fragments: the unit in which a column is read, written and committed.

A fragment's columns are replaced as a whole, in one commit that leaves every other column, appends and deletes alone
(Lance's DataReplacement). The new file must hold every physical row, the deleted ones included: Lance does not check,
and a shorter file makes the column unreadable. So rows are always read with the deleted ones, and counted on writing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowBatch, ArrowTable
from compatstore.errors import StorageError
from compatstore.storage.columns import VersionColumns
from compatstore.storage.failures import lost_race, require_whole
from compatstore.storage.files import Files
from compatstore.storage.location import Location
from compatstore.storage.snapshot import DataFile, LanceFileWriter, Snapshot, lance, write_fragments
from compatstore.storage.store import ATTEMPTS, Store

BATCH_ROWS = 4096
# Of the rows that are written at once: Lance stores vectors as a page for each batch, and compares those of pages above
# about 8 MB in two to three times the time.
PAGE_BYTES = 4 << 20
# An app that adds item by item makes a fragment each time; one commit for each of them would not keep up with it.
WAVE_ROWS = 1024


@dataclass(frozen=True)
class Fragment:
    """One fragment of one table version.

    Attributes:
        id: Its number.
        rows: Physical rows, deleted ones included.
        files: Its data files' names; as files never change, equal names mean equal data.
        fields: Ids of the fields that have data in it.
        deleted: Names its deleted rows; as marks of deleted rows never change, equal names mean the same rows.
    """

    id: int
    rows: int
    files: tuple[str, ...]
    fields: frozenset[int]
    deleted: str = ""

    def only_gained(self, before: Fragment, file: str) -> bool:
        """True if this fragment has the files of an earlier state and one more: a write of data adds files."""
        return self._paths - {file} <= before._paths

    def holds(self, file: str) -> bool:
        """True if values of this fragment are in a data file."""
        return file in self._paths

    @property
    def _paths(self) -> set[str]:
        return {file.partition(":")[0] for file in self.files}


@dataclass(frozen=True)
class WrittenColumns:
    """Columns of one fragment that are in a file and wait for their commit.

    Attributes:
        fragment: The fragment.
        name: Name of the file.
        file: Lance's description of it.
        version: Table version that its values were made from.
    """

    fragment: Fragment
    name: str
    file: Any
    version: int


def list_fragments(snapshot: Snapshot, columns: Iterable[str] | None = None) -> list[Fragment]:
    """List the fragments of a table version, in order; `find_fragment` finds one without reading the others.

    Args:
        snapshot: The table version.
        columns: Columns whose files are listed; None for those of all columns.
    """
    ids = field_ids(snapshot)
    fields = None if columns is None else {ids[name] for name in columns}
    return [_describe(fragment, fields) for fragment in snapshot.get_fragments()]


def find_fragment(snapshot: Snapshot, fragment_id: int) -> Fragment | None:
    """One fragment of a table version, or None when it is gone."""
    fragment = snapshot.get_fragment(fragment_id)
    return None if fragment is None else _describe(fragment)


def in_waves(fragments: Iterable[Fragment], rows: int) -> Iterator[list[Fragment]]:
    """Group neighbouring fragments into batches of at most `rows` physical rows.

    Fragments of 40, 50, 30 and 200 rows make the batches (40, 50), (30), (200) with `rows` = 100: a fragment with more
    rows than that is a batch by itself.
    """
    batch: list[Fragment] = []
    for fragment in fragments:
        if batch and sum(other.rows for other in batch) + fragment.rows > rows:
            yield batch
            batch = []
        batch.append(fragment)
    if batch:
        yield batch


def _describe(fragment: Any, wanted: Set[int] | None = None) -> Fragment:
    metadata = fragment.metadata
    fields = frozenset(field for file in metadata.files for field in file.fields if field >= 0)
    marks = metadata.deletion_file
    deleted = "" if marks is None else f"{marks.read_version}-{marks.id}"
    return Fragment(fragment.fragment_id, metadata.physical_rows, file_names(metadata, wanted), fields, deleted)


def file_names(metadata: Any, wanted: Set[int] | None = None) -> tuple[str, ...]:
    """Files of a fragment, by Lance's metadata of it, each with the fields that are read from it.

    Args:
        metadata: Lance's.
        wanted: Fields whose files are listed; None for all.
    """
    read = [(file.path, [n for n in file.fields if wanted is None or n in wanted]) for file in metadata.files]
    overlays = getattr(metadata, "overlays", None) or ()
    return (
        *(f"{path}:{','.join(map(str, fields))}" for path, fields in read if fields),
        *(f"overlay:{overlay!r}" for overlay in overlays),
    )


def field_ids(snapshot: Snapshot) -> dict[str, int]:
    """Lance's id of each top-level column."""
    return {field.name(): field.id() for field in snapshot.lance_schema.fields()}


def read_physical(
    snapshot: Snapshot, fragment: Fragment, columns: Sequence[str], batch_rows: int = BATCH_ROWS
) -> Iterator[ArrowBatch]:
    """Read every physical row of a fragment in order, in batches of equal size (the last one apart).

    The batches' bounds depend on nothing but the fragment, so that a rerun computes the very same bits.
    A deleted row has a null `_rowid`.
    """
    scanner = snapshot.scanner(
        fragments=[snapshot.get_fragment(fragment.id)],
        columns=list(columns),
        batch_size=batch_rows,
        strict_batch_size=True,
        scan_in_order=True,
        with_row_id=True,
        include_deleted_rows=True,
    )
    yield from scanner.to_batches()


def write_columns(
    store: Store,
    snapshot: Snapshot,
    fragment: Fragment,
    columns: VersionColumns,
    batches: Iterable[dict[str, ArrowArray]],
    name: str | None = None,
) -> WrittenColumns:
    """Write the columns of a version for one fragment into a file that no table version refers to yet.

    Args:
        store: The table.
        snapshot: The table version that the batches were made from.
        fragment: The fragment.
        columns: The columns to replace, all of them.
        batches: Arrow arrays by column, for every physical row in order.
        name: Of the file, see `new_file`; a new one if it is None.

    Raises:
        StorageError: The batches do not hold exactly the fragment's physical rows, or the disk is full.
    """
    name = name or new_file()
    schema, version, rows = pa.schema(columns.fields), snapshot.data_storage_version, 0
    path, options = store.location.child("data", name), store.location.options
    with LanceFileWriter(path, schema, version=version, storage_options=options) as writer:
        for arrays in batches:
            writer.write_batch(pa.record_batch([arrays[column] for column in schema.names], schema=schema))
            rows += len(arrays[columns.vector])
    require_whole(store.location, f"data/{name}")
    if rows != fragment.rows:
        operation = f"replace the columns of {columns.vector} in fragment {fragment.id}"
        fix = f"Nothing was committed; give {next_step.same()} again."
        raise StorageError(operation, expected=f"{fragment.rows} rows", found=f"{rows}", fix=fix)
    ids = field_ids(snapshot)
    major, minor = (int(part) for part in version.split("."))
    size = Files(store.location, "data").size(name)
    file = DataFile(name, [ids[n] for n in schema.names], list(range(len(schema))), major, minor, size)
    return WrittenColumns(fragment, name, file, snapshot.version)


def write_whole(location: Location, folder: str, rows: ArrowTable, into: Any, **settings: Any) -> list[Any]:
    """Write rows as fragments that no table version refers to yet.

    Args:
        location: The gallery.
        folder: Folder of the data files, relative to the gallery's own folder.
        rows: Arrow table.
        into: Table or address, as Lance takes it.
        settings: Lance's.

    Returns:
        Lance's metadata of the fragments.

    Raises:
        StorageError: The disk is full.
    """
    at_once = max(PAGE_BYTES * rows.num_rows // max(rows.nbytes, 1), 1)
    pages = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=at_once))
    written: list[Any] = write_fragments(pages, into, storage_options=location.options, **settings)
    for file in (file for fragment in written for file in fragment.files):
        require_whole(location, f"{folder}/{file.path}")
    return written


def new_file() -> str:
    """A name for a data file that no other has."""
    return f"{uuid.uuid4().hex}.lance"


def discard(store: Store, names: Iterable[str]) -> None:
    """Remove data files that no table version names; one that cannot be removed is left to `optimize`.

    Args:
        store: The table.
        names: Of the files, see `new_file`.
    """
    files = Files(store.location, "data")
    for name in names:
        with suppress(OSError):
            files.delete(name)


def commit_columns(store: Store, written: Sequence[WrittenColumns]) -> None:
    """Replace the columns of all these fragments by newly written files, in one commit.

    A file stays good while its rows are where they were. So the commit alone is repeated where others have done no more
    to these fragments than to delete rows (an update deletes rows and appends them elsewhere), and an app that writes
    without a pause delays a commit, but does not send the work back to its beginning.

    Args:
        store: The table.
        written: One or more fragments, each as some table version had it.

    Raises:
        CommitConflictError: Values of one of the fragments were changed since they were read, or others won `ATTEMPTS`
            times; nothing is committed.
    """
    groups = [lance.LanceOperation.DataReplacementGroup(columns.fragment.id, columns.file) for columns in written]
    operation = lance.LanceOperation.DataReplacement(groups)
    version = min(columns.version for columns in written)
    for _ in range(ATTEMPTS - 1):
        try:
            return store.commit(operation, version)
        except Exception as error:
            snapshot = store.snapshot()
            version = snapshot.version
            if not lost_race(error) or not all(only_lost_rows(snapshot, columns.fragment) for columns in written):
                raise
    return store.commit(operation, version)


def only_lost_rows(snapshot: Snapshot, before: Fragment) -> bool:
    """True if others have only deleted rows of a fragment: a file that was written for it is still good."""
    now = find_fragment(snapshot, before.id)
    return now is not None and now.files == before.files
