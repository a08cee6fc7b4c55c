"""Files in the table's own folders that no version of the table names: what a killed or refused write left behind.

A write under way has such files too, until its commit; so only those are taken that nobody has touched for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from compatstore.storage.files import Files
from compatstore.storage.store import Store, storage_errors

FOLDERS = ("data/", "_deletions/", "_indices/", "_transactions/")


@dataclass(frozen=True)
class Stored:
    """A file of a table.

    Attributes:
        path: From the table's folder.
        bytes: What it takes.
        changed: When it was written.
    """

    path: str
    bytes: int
    changed: datetime


def all_files(store: Store) -> list[Stored]:
    """Every file in the table's folder, those beside the table included."""
    with storage_errors(f"list the files of {store.location.name}"):
        found = store.snapshot().all_files().read_all()
    rows = zip(*(found[name].to_pylist() for name in ("path", "size_bytes", "last_modified")), strict=True)
    return [Stored(*row) for row in rows]


def orphans(store: Store, age: timedelta) -> list[Stored]:
    """Files of Lance's that no version names, and that were written longer ago than this."""
    before = datetime.now(UTC) - age
    old = [file for file in all_files(store) if file.path.startswith(FOLDERS) and file.changed < before]
    if not old:
        return []
    with storage_errors(f"list the files that versions of {store.location.name} name"):
        named = store.snapshot().tracked_files().read_all()["path"]
    known = pc.is_in(pa.array([file.path for file in old]), value_set=named.cast(pa.string()).combine_chunks())
    return [file for file, named in zip(old, known.to_pylist(), strict=True) if not named]


def remove(store: Store, files: list[Stored]) -> None:
    """Remove files of the table's folder."""
    folder = Files(store.location)
    with storage_errors(f"remove files of {store.location.name}"):
        for file in files:
            folder.delete(file.path)
