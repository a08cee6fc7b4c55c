"""Versions of the table that nothing needs any more: removed with the files that no other version has.

Lance makes a version with each commit and keeps them all. A version that a tag pins is kept. Files that no version
names are left alone, as they may be those of a write that is under way.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

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
