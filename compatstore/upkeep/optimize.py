"""Maintenance after a write, and full maintenance in one call.

After a write small fragments are merged, new ids and vectors indexed, and old table versions removed: in tables of this
package only, not in adopted ones, and not while a lease is held. A merge would make the commits of an upgrade or an
index build fail, and a clean-up could remove the version that they read. The caller's write is committed before, so a
failure here is not an error of the write; the next write tries again.

`optimize` merges parts of indexes and small fragments, rewrites files without deleted rows and dropped columns, and
removes old table versions with their files and the leftovers of killed writes. It needs exclusive access: it is refused
if a worker holds a lease, and an upgrade that begins meanwhile ends it after the
current step. A search that began before a step finds its files until the time of grace is over.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from compatstore import next_step
from compatstore.errors import InvalidInput, StorageError
from compatstore.storage import compaction, ids
from compatstore.storage import registry as registry_module
from compatstore.storage.catalog import Catalog
from compatstore.storage.compaction import (
    LARGEST_ROWS,
    Group,
    Piece,
    Stored,
    all_files,
    count_versions,
    drop_older,
    groups,
    merge,
    orphans,
    remove,
)
from compatstore.storage.files import FOLDER, is_blob
from compatstore.storage.indexes import UNINDEXED_ROWS, merge_deltas
from compatstore.storage.lease_table import LEASES, LeaseTable
from compatstore.storage.registry import Registry, referenced
from compatstore.storage.store import ATTEMPTS, Conflict, Store
from compatstore.upgrade.indexing import take_in_late_rows
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upgrade.leases.lease import leases_in
from compatstore.upgrade.states import tag_of

LOOK_EVERY = 32  # commits of single writes, for which counting versions is not worth it each time
FRAGMENT_ROWS = 2_048  # a search takes about as long for a small fragment as for these rows
TOLERATED = 0.1  # of the time that a search of all rows takes, for small fragments


def tend(catalog: Catalog, *, count: bool = False) -> None:
    """Opportunistic compaction, index refresh and cleanup.

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
        if look and not has_active_lease(store):
            compaction.drop_all_but_the_latest(store)


def has_active_lease(store: Store) -> bool:
    """True if a worker holds a lease and renews it."""
    try:
        leases = leases_in(LeaseTable(store.location).read())
    except StorageError:  # an unreadable record may be of any worker
        return True
    return any(lease.works for lease in leases)


def _merge_small(catalog: Catalog) -> int:
    """Merge fragments if that pays; returns the decrease of the number of fragments."""
    store = catalog.store
    if not _worth_merging(groups(store.snapshot())) or has_active_lease(store):
        return 0
    table = store.writer()
    return sum(merge(store, table, chosen) for chosen in _worth_merging(groups(table)))


def _worth_merging(found: Sequence[Group]) -> list[tuple[Piece, ...]]:
    """Fragments to merge now; none while the small ones hardly slow a search down, as each merge writes rows again."""
    chosen = [pieces for pieces in map(_chosen, found) if pieces]
    slower = FRAGMENT_ROWS * sum(map(len, chosen))
    return chosen if slower > TOLERATED * sum(group.rows for group in found) else []


def _chosen(group: Group) -> tuple[Piece, ...]:
    """Fragments of a group to merge: those whose merge pays, and all that are to be indexed as one delta."""
    full = ids.UNINDEXED_ROWS < group.rows <= LARGEST_ROWS
    return group.pieces if full and not group.indexed_rows and len(group.pieces) > 1 else group.worth_merging()


GALLERY, VERB = "the gallery", "optimize"
GRACE_SECONDS = 5.0
LONGEST_GRACE = 100 * 365 * 86_400.0
GRACE_ADOPTED = 7 * 86_400.0  # as LanceDB's own; its handles stay on a version until they are moved on
ABANDONED = timedelta(hours=1)  # no write of ours takes as long between a file and its commit
ABANDONED_ADOPTED = timedelta(days=7)  # as Lance has it


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of a gallery on its disk.

    Attributes:
        fragments: Fragments of the table.
        index_parts: Parts of all indexes.
        versions: Table versions that can be read.
        files: Files in the table's folder, without the record of leases.
        bytes: Their size.
    """

    fragments: int
    index_parts: int
    versions: int
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Optimized:
    """The result of an optimisation, or of a dry run.

    Attributes:
        before: The gallery as it was.
        after: The gallery now. Of a dry run: an upper bound, without the files that a merge supersedes.
        dropped: Columns of retired versions that were dropped.
        leftovers: Removed files beside the table that nothing needed.
        orphans: Removed files of the table that no version of it named.
        tags: Tags whose table versions are kept.
        left_alone: Reason why the table itself was not touched, "" if it was.
        dry_run: True if nothing was done.
    """

    before: Size
    after: Size
    dropped: tuple[str, ...]
    leftovers: tuple[str, ...]
    orphans: int
    tags: tuple[str, ...]
    left_alone: str
    dry_run: bool


def optimize(
    catalog: Catalog, *, adopted: bool = False, grace: float | None = None, dry_run: bool = False
) -> Optimized:
    """Do full maintenance, or plan it; see `Gallery.maintenance.optimize`."""
    if grace is not None and not 0 <= grace <= LONGEST_GRACE:
        raise InvalidInput(
            f"{VERB} {GALLERY}", expected=f"a grace from 0 to {LONGEST_GRACE:,.0f} seconds", found=f"{grace:g}"
        )
    of_app = catalog.registry().adopted
    whole, age = adopted or not of_app, ABANDONED_ADOPTED if of_app else ABANDONED
    seconds = grace if grace is not None else GRACE_ADOPTED if of_app else GRACE_SECONDS
    if dry_run:
        before, after, dropped, unneeded, lost = _look(catalog, whole, seconds, age)
    else:
        require_alone(catalog.store)
        with hold_lease(catalog, GALLERY, VERB) as work:
            before, after, dropped, unneeded, lost = _carry_out(work.catalog, whole, seconds, age)
    also = next_step.option("adopted", True)
    return Optimized(
        before=before,
        after=after,
        dropped=dropped,
        leftovers=tuple(file.path for file in unneeded),
        orphans=len(lost),
        tags=tuple(catalog.store.tags()),
        left_alone="" if whole else f"the table is an app's; with {also} it is optimised too",
        dry_run=dry_run,
    )


def require_alone(store: Store) -> None:
    """Refuse while another worker holds a lease on the gallery.

    Raises:
        LeaseHeld: One does; the error names it, and how to follow or stop it.
    """
    for lease in leases_in(LeaseTable(store.location).read()):
        if lease.works and lease.target != GALLERY:
            raise lease.refusal(f"{VERB} {GALLERY}")


def measure(store: Store) -> Size:
    """The present size of a gallery."""
    table, leases = store.snapshot(), f"{FOLDER}/{LEASES}/"
    files = [file for file in all_files(store) if not file.path.startswith(leases)]
    return Size(
        fragments=len(table.get_fragments()),
        index_parts=sum(len(index.segments) for index in table.describe_indices()),
        versions=count_versions(store),
        files=len(files),
        bytes=sum(file.bytes for file in files),
    )


# Size before and after; columns, files beside the table and files of the table that went.
Upkeep = tuple[Size, Size, tuple[str, ...], list[Stored], list[Stored]]


def _look(catalog: Catalog, whole: bool, grace: float, age: timedelta) -> Upkeep:
    """Plan an optimisation; read-only."""
    store, before = catalog.store, measure(catalog.store)
    table, dropped = store.snapshot(), catalog.registry().droppable(store.schema.names)
    unneeded = leftovers(catalog, all_files(store), age)
    lost = orphans(store, age) if whole else []
    gone = [*unneeded, *lost]
    after = replace(before, files=before.files - len(gone), bytes=before.bytes - sum(file.bytes for file in gone))
    if whole:
        freed = drop_older(store, timedelta(seconds=grace), dry_run=True)
        everything = Group(tuple(piece for group in groups(table) for piece in group.pieces), 0)  # in whole indexes
        after = replace(
            after,
            fragments=before.fragments - sum(len(part) - 1 for part in everything.to_rewrite()),
            index_parts=len(table.describe_indices()),
            versions=before.versions - freed.versions,
            files=after.files - freed.files,
            bytes=after.bytes - freed.bytes,
        )
    return before, after, dropped, unneeded, lost


def _carry_out(catalog: Catalog, whole: bool, grace: float, age: timedelta) -> Upkeep:
    """Do the planned steps; each leaves the gallery whole, so it can end after any of them."""
    store, before = catalog.store, measure(catalog.store)
    dropped = registry_module.drop_unused(store)
    ended = {tag_of(record.name) for record in catalog.registry().versions.values() if record.columns is None}
    for tag in ended & store.tags().keys():  # of an abort that was killed before it had removed its tag
        store.untag(tag)
    lost: list[Stored] = []
    if whole:
        merge_deltas(store)
        _merge_all(store)
        if grace <= 60.0:  # a reader of the version before the last merge has the time of grace
            time.sleep(grace)
        require_alone(store)
        drop_older(store, timedelta(seconds=grace))
        lost = orphans(store, age)
        remove(store, lost)
    unneeded = leftovers(catalog, all_files(store), age)
    remove(store, unneeded)
    LeaseTable(store.location).tidy()
    return before, measure(store), dropped, unneeded, lost


def _merge_all(store: Store) -> None:
    """Merge all fragments that can be merged; after a conflict, list the rest again."""
    for _ in range(ATTEMPTS):
        table = store.writer()
        with suppress(Conflict):
            for part in [part for group in groups(table) for part in group.to_rewrite()]:
                require_alone(store)
                merge(store, table, part)
            return


_OF_A_VERSION = re.compile(r"(?:ledger|staged|counts)-(\w+)(?:-\d+)?\.\w+")


def leftovers(catalog: Catalog, files: list[Stored], age: timedelta) -> list[Stored]:
    """Files beside the table that nothing needs.

    Args:
        catalog: The gallery. Files that registries of tagged table versions name are needed.
        files: All files in the table's folder.
        age: Minimum age of a blob to be a leftover; a younger one may be linked in a moment.

    Raises:
        CorruptArtifact: A page of the history is gone, so it is unknown which files are pages.
    """
    registry, before = catalog.registry(), datetime.now(UTC) - age
    needed = {digest for state in (registry, *_pinned(catalog)) for digest in referenced(state, catalog.blobs)}
    found = []
    for file in files:
        folder, _, name = file.path.partition("/")
        if folder != FOLDER:
            continue
        name = name.partition("/")[0]
        version = _OF_A_VERSION.fullmatch(name)
        unneeded = is_blob(name) and name not in needed and file.changed < before
        if unneeded or (version and version[1] not in registry.stored):
            found.append(file)
    return found


def _pinned(catalog: Catalog) -> list[Registry]:
    """The registries of tagged table versions; those before an adoption have none."""
    found = []
    for version in catalog.store.tags().values():
        try:
            table = catalog.store.snapshot().checkout_version(version)
            found.append(registry_module.read(table, catalog.store.location.uri))
        except (StorageError, ValueError, OSError):
            continue
    return found
