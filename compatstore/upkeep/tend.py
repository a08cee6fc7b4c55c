"""What a gallery does for itself after a write: small fragments are merged, ids indexed, old table versions removed.

Only in tables of our own, and never while somebody works on an upgrade or an index: a merge would win against their
commits and make them work twice, and a version that they read could go. The write has been made by then, so nothing
here fails it; what is left undone comes with a later write.
"""

from __future__ import annotations

from contextlib import suppress

from compatstore.errors import StorageError
from compatstore.storage import ids, old_versions
from compatstore.storage.catalog import Catalog
from compatstore.storage.compaction import LARGEST_ROWS, Group, Piece, groups, merge
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.store import Conflict, Store
from compatstore.upgrade.leases.lease import leases_in

LOOK_EVERY = 32  # commits of single writes, for which counting versions is not worth it each time


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
            return
        merged = _merge_small(store)
        ids.refresh_index(store, registry.id_column)
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


def _merge_small(store: Store) -> int:
    """Merge what is worth it; gives how many fragments there are fewer of."""
    if not any(map(_chosen, groups(store.snapshot()))) or somebody_works(store):
        return 0
    table = store.writer()
    return sum(merge(store, table, chosen) for chosen in map(_chosen, groups(table)) if chosen)


def _chosen(group: Group) -> tuple[Piece, ...]:
    """Fragments to merge now: those that it pays for, and all that are about to be indexed as one delta."""
    full = ids.UNINDEXED_ROWS < group.rows <= LARGEST_ROWS
    return group.pieces if full and not group.indexed_rows and len(group.pieces) > 1 else group.worth_merging()
