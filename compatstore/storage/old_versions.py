"""Clean-up of a table: versions that nothing needs any more, and files that no version names.

Lance makes a version with each commit and keeps them all. A version that a tag pins is kept. Files that no version
names may be those of a write that is under way, so only old ones count as orphans.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from compatstore.storage.files import Files
from compatstore.storage.store import Store, storage_errors

KEPT = 128  # the latest, by themselves: readers and writers that are at it have one of these
MOST = 2 * KEPT


@dataclass(frozen=True)
class Freed:
    """What went, or would go.

    Attributes:
        versions: Table versions.
        files: Files of theirs alone.
        bytes: What these take.
    """

    versions: int = 0
    files: int = 0
    bytes: int = 0


def count_versions(store: Store) -> int:
    """Versions that the table keeps; one look at a folder."""
    return sum(name.endswith(".manifest") for name in Files(store.location, "_versions").names())


def drop_all_but_the_latest(store: Store) -> Freed:
    """Remove versions until `KEPT` are left, if there are more than `MOST`."""
    if count_versions(store) <= MOST:
        return Freed()
    with storage_errors(f"remove old versions of {store.location.name}", store.location):
        return _freed(store.writer().cleanup_old_versions(retain_versions=KEPT, error_if_tagged_old_versions=False))


def drop_older(store: Store, age: timedelta, *, dry_run: bool = False) -> Freed:
    """Remove the versions that are older than this, or say what would go.

    Args:
        store: The table.
        age: How old they are at least; the latest always stays.
        dry_run: Remove nothing.
    """
    table = store.writer()
    with storage_errors(f"remove old versions of {store.location.name}", store.location):
        if not dry_run:
            return _freed(table.cleanup_old_versions(older_than=age, error_if_tagged_old_versions=False))
        return _freed(table.explain_cleanup_old_versions(older_than=age, error_if_tagged_old_versions=False))


def _freed(stats: Any) -> Freed:
    """Lance's statistics; its explanation keeps them one step further down."""
    stats = getattr(stats, "stats", stats)
    files = stats.data_files_removed + stats.transaction_files_removed + stats.index_files_removed
    return Freed(stats.old_versions, stats.old_versions + files + stats.deletion_files_removed, stats.bytes_removed)


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
