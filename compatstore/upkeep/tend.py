"""Upkeep after a write: merge small fragments, index new ids and vectors, remove old table versions.

It is done in tables of this package only, not in adopted ones, and not while a lease is held: a merge would make the
commits of an upgrade or an index build fail, and a clean-up could remove the version that they read. The caller's write
is committed before, so a failure here is not an error of the write; the next write tries again.

Merges keep what upgrades have counted: a merge moves rows and changes none, so counts add up. Without that a merge of
natives after a backfill, or an `optimize`, had the next no-op upgrade read all merged rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from compatstore.errors import StorageError
from compatstore.storage import compaction, ids
from compatstore.storage.catalog import Catalog
from compatstore.storage.compaction import LARGEST_ROWS, Group, Piece, groups, merge
from compatstore.storage.deltas import UNINDEXED_ROWS
from compatstore.storage.fragment_counts import counts_of
from compatstore.storage.fragments import Fragment, list_fragments
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Conflict, Store
from compatstore.upgrade.indexing import take_in_late_rows
from compatstore.upgrade.leases.lease import leases_in

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
            compaction.drop_all_but_the_latest(store)


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


def merge_counted(catalog: Catalog, table: Snapshot, pieces: Sequence[Piece]) -> int:
    """Rewrite some fragments as one, and note of it what the counts of open upgrades say of them.

    Args:
        catalog: The gallery.
        table: A handle of its table for writing, on the version that the fragments are of; it moves on.
        pieces: The fragments.

    Returns:
        Fragments that there are fewer of now.

    Raises:
        Conflict: Another writer changed one of them; nothing was committed.
        StorageError: The disk is full.
    """
    numbers = {piece.id for piece in pieces}
    before = list_fragments(table)
    fewer = merge(catalog.store, table, pieces)
    made = _made(before, table, sum(piece.rows for piece in pieces))
    if made is not None:
        _carry(catalog, [fragment for fragment in before if fragment.id in numbers], made)
    return fewer


def _made(before: Sequence[Fragment], after: Snapshot, rows: int) -> Fragment | None:
    """The fragment that a merge has made of live rows; None where others may have added fragments with it."""
    known = {fragment.id for fragment in before}
    new = [fragment for fragment in list_fragments(after) if fragment.id not in known]
    return new[0] if rows and len(new) == 1 and new[0].rows == rows and not new[0].deleted else None


def _carry(catalog: Catalog, merged: Sequence[Fragment], made: Fragment) -> None:
    registry = catalog.registry()
    for run in registry.runs.values():
        if all(registry.record(name).columns is not None for name in (run.source, run.target)):
            counts = counts_of(catalog.store, registry, run.source, run.target)
            counts.carry(merged, made)
            counts.save()
