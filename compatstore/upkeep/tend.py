"""Upkeep after a write: merge small fragments, index new ids and vectors, remove old table versions.

It is done in tables of this package only, not in adopted ones, and not while a lease is held: a merge would make the
commits of an upgrade or an index build fail, and a clean-up could remove the version that they read. The caller's write
is committed before, so a failure here is not an error of the write; the next write tries again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from compatstore.errors import StorageError
from compatstore.storage import ids, old_versions
from compatstore.storage.catalog import Catalog
from compatstore.storage.compaction import LARGEST_ROWS, Group, Piece, groups
from compatstore.storage.deltas import UNINDEXED_ROWS
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.store import Conflict, Store
from compatstore.upgrade.indexing import take_in_late_rows
from compatstore.upgrade.leases.lease import leases_in
from compatstore.upkeep.merging import merge_counted

LOOK_EVERY = 32  # commits of single writes, for which counting versions is not worth it each time
FRAGMENT_ROWS = 2_048  # a search takes about as long for a small fragment as for these rows
TOLERATED = 0.1  # of the time that a search of all rows takes, for small fragments


def tend(catalog: Catalog, *, count: bool = False) -> None:
    """Merge, index and clean up as far as it pays now.

    Args:
        catalog: The gallery.
        count: Count the table's versions now, after a verb that made several; else at every 32nd commit.
    """
    store = catalog.store
    with suppress(StorageError, Conflict):
        registry = catalog.registry()
        if registry.adopted:
            ids.refresh_index(store, registry.id_column)
            take_in_late_rows(catalog, more_than=UNINDEXED_ROWS)
            return
        merged = _merge_small(catalog)
        ids.refresh_index(store, registry.id_column)
        take_in_late_rows(catalog, more_than=UNINDEXED_ROWS)
        look = count or merged or store.snapshot().version % LOOK_EVERY == 0
        if look and not somebody_works(store):
            old_versions.drop_all_but_the_latest(store)


def somebody_works(store: Store) -> bool:
    """Whether somebody holds a lease, and has not been silent for too long."""
    try:
        leases = leases_in(LeaseTable(store.location).read())
    except StorageError:  # a record that cannot be read may be anybody's
        return True
    return any(lease.held and not lease.abandoned for lease in leases)


def _merge_small(catalog: Catalog) -> int:
    """Merge fragments where that pays; returns by how many the number of fragments fell."""
    store = catalog.store
    if not _worth_merging(groups(store.snapshot())) or somebody_works(store):
        return 0
    table = store.writer()
    return sum(merge_counted(catalog, table, chosen) for chosen in _worth_merging(groups(table)))


def _worth_merging(found: Sequence[Group]) -> list[tuple[Piece, ...]]:
    """Fragments to merge now; none while the small ones hardly slow a search down, as each merge writes rows again."""
    chosen = [pieces for pieces in map(_chosen, found) if pieces]
    slower = FRAGMENT_ROWS * sum(map(len, chosen))
    return chosen if slower > TOLERATED * sum(group.rows for group in found) else []


def _chosen(group: Group) -> tuple[Piece, ...]:
    """Fragments of a group to merge: those whose merge pays, and all that are to be indexed as one delta."""
    full = ids.UNINDEXED_ROWS < group.rows <= LARGEST_ROWS
    return group.pieces if full and not group.indexed_rows and len(group.pieces) > 1 else group.worth_merging()
