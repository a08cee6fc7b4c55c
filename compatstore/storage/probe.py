"""Probes of a storage location: write access, and conflict detection between two writers."""

from __future__ import annotations

import uuid

import pyarrow as pa

from compatstore.errors import StorageError
from compatstore.paths import refused
from compatstore.storage.files import Files
from compatstore.storage.location import Location
from compatstore.storage.snapshot import CommitConflictError, lance

WORDS = b"written by compatstore doctor to see whether it can be; safe to remove"


def probe(location: Location) -> float | None:
    """Write a small file into the table's folder and remove it; nothing is left.

    Returns:
        Time of the write by the clock of the storage, in seconds since 1970; None if unknown.

    Raises:
        StorageError: It cannot be written.
    """
    files, name = Files(location), f"probe-{uuid.uuid4().hex}"
    try:
        try:
            files.write(name, WORDS)
            written = files.changed(name)
        finally:
            files.delete(name)
    except OSError as error:
        raise refused(f"write beside {location.name}", location.uri, error) from error
    return written


def require_conditional_writes(location: Location, operation: str) -> None:
    """Refuse an object store that loses commits in silence, for lack of conditional writes; disks are not probed.

    Lance puts the file of a table version on the condition that there is none (`If-None-Match: *` in S3). The probe
    puts the second version of an empty table, beside the gallery's files, twice: an Overwrite without retries
    does not look for another commit before it puts its file, so the second one fails if and only if the store keeps to
    the condition. Nothing is left.

    Args:
        location: Location of the present or future gallery.
        operation: The caller's operation, for messages.

    Raises:
        StorageError: The store wrote the object twice, or cannot be written.
    """
    if location.is_local:
        return
    name = f"probe-{uuid.uuid4().hex}"
    try:
        try:
            twice = _commits_twice(location.child(name), location.storage_options)
        finally:
            Files(location).delete_folder(name)
    except (OSError, ValueError, RuntimeError) as error:
        expected = "an object store in which a small table can be written beside the gallery and removed"
        fix = "Check endpoint, credentials and their permissions to list, read, write and delete."
        raise StorageError(operation, expected=expected, found=str(error), fix=fix) from error
    if twice:
        raise StorageError(
            operation,
            expected="an object store that writes an object on the condition that there is none (If-None-Match: *), "
            "so that one of two concurrent writers gets a conflict",
            found="a store that wrote one object twice on that condition: it would lose commits without an error",
            fix="Use a store with conditional writes, as Amazon S3, Google Cloud Storage and Azure Blob Storage are, "
            "or a local disk.",
        )


def _commits_twice(uri: str, storage_options: dict[str, str]) -> bool:
    """True if the same version of a new table can be committed twice."""
    schema = pa.schema([pa.field("probe", pa.int8())])
    options = storage_options or None
    lance.write_dataset(schema.empty_table(), uri, storage_options=options)
    overwrite = lance.LanceOperation.Overwrite(schema, [])
    try:
        for _ in range(2):
            lance.LanceDataset.commit(uri, overwrite, read_version=1, storage_options=options, max_retries=0)
    except CommitConflictError:
        return False
    return True
