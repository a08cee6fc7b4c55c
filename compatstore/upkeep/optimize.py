"""Optimise a gallery: all upkeep in one call.

Parts of indexes become one, small fragments full ones; deleted rows and dropped columns leave the files; old table
versions go with the files that only they had, and so does what killed writes left. It works alone: where somebody holds
a lease it is refused before anything is done, and an upgrade that begins meanwhile ends it after the step at hand. A
search that began before a step finds its files until the time of grace is over.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from compatstore import next_step
from compatstore.errors import InvalidInput, LeaseHeld, StorageError
from compatstore.storage import registry as registry_module
from compatstore.storage.catalog import Catalog
from compatstore.storage.compaction import Group, Stored, all_files, count_versions, drop_older, groups, orphans, remove
from compatstore.storage.deltas import merge_deltas
from compatstore.storage.files import FOLDER
from compatstore.storage.lease_table import LEASES, LeaseTable
from compatstore.storage.registry import Registry, referenced
from compatstore.storage.store import ATTEMPTS, Conflict, Store
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upgrade.leases.lease import Lease, leases_in
from compatstore.upkeep.tend import merge_counted

GALLERY, VERB = "the gallery", "optimize"
GRACE_SECONDS = 5.0
LONGEST_GRACE = 100 * 365 * 86_400.0
GRACE_ADOPTED = 7 * 86_400.0  # as LanceDB's own; its handles stay on a version until they are told
ABANDONED = timedelta(hours=1)  # no write of ours takes as long between a file and its commit
ABANDONED_ADOPTED = timedelta(days=7)  # as Lance has it


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a gallery is on its disk.

    Attributes:
        fragments: Fragments of the table.
        index_parts: Parts of all indexes.
        versions: Table versions that can be read.
        files: Files in the table's folder, but for the record of who works.
        bytes: What these take.
    """

    fragments: int
    index_parts: int
    versions: int
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Optimized:
    """What an optimisation did, or would do.

    Attributes:
        before: The gallery as it was.
        after: As it is now. Of a dry run: as it would be at the most; what a merge supersedes is not counted.
        dropped: Columns of ours that no version had any more.
        leftovers: Files beside the table that nothing needed.
        orphans: Files of the table that no version of it named.
        tags: Tags whose table versions are kept.
        left_alone: Why the table itself was not touched, "" where it was.
        dry_run: Whether nothing was done.
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
    """Do all upkeep, or say what there is; see `Gallery.maintenance.optimize`."""
    if grace is not None and not 0 <= grace <= LONGEST_GRACE:
        raise InvalidInput(
            f"{VERB} {GALLERY}", expected=f"a grace from 0 to {LONGEST_GRACE:,.0f} seconds", found=f"{grace:g}"
        )
    whole = adopted or not catalog.registry().adopted
    seconds = grace if grace is not None else GRACE_ADOPTED if catalog.registry().adopted else GRACE_SECONDS
    if dry_run:
        return _look(catalog, whole, seconds)
    require_alone(catalog.store)
    with hold_lease(catalog, GALLERY, VERB) as work:
        return _Optimisation(work.catalog, whole, seconds).run()


def require_alone(store: Store) -> None:
    """Refuse where somebody else works on the gallery.

    Raises:
        LeaseHeld: Somebody does; the error says who, and how to follow or stop them.
    """
    for lease in leases_in(LeaseTable(store.location).read()):
        if lease.held and not lease.abandoned and lease.target != GALLERY:
            raise _held(lease)


def _held(lease: Lease) -> LeaseHeld:
    return LeaseHeld(
        f"{VERB} {GALLERY}",
        target=lease.target,
        holder=str(lease.holder),
        verb=lease.verb,
        since=lease.since,
        expires=lease.expires,
    )


def measure(store: Store) -> Size:
    """How large a gallery is now."""
    table, leases = store.snapshot(), f"{FOLDER}/{LEASES}/"
    files = [file for file in all_files(store) if not file.path.startswith(leases)]
    return Size(
        fragments=len(table.get_fragments()),
        index_parts=sum(len(index.segments) for index in table.describe_indices()),
        versions=count_versions(store),
        files=len(files),
        bytes=sum(file.bytes for file in files),
    )


def _look(catalog: Catalog, whole: bool, grace: float) -> Optimized:
    """What there is to do; read-only."""
    store, registry = catalog.store, catalog.registry()
    before, table = measure(store), store.snapshot()
    unneeded = leftovers(catalog, all_files(store), _age(catalog))
    lost = orphans(store, _age(catalog)) if whole else []
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
    return Optimized(
        before=before,
        after=after,
        dropped=registry.droppable(table.schema.names),
        leftovers=tuple(file.path for file in unneeded),
        orphans=len(lost),
        tags=tuple(store.tags()),
        left_alone=_why_not(whole),
        dry_run=True,
    )


def _why_not(whole: bool) -> str:
    return "" if whole else f"the table is an app's; with {next_step.option('adopted', True)} it is optimised too"


def _age(catalog: Catalog) -> timedelta:
    return ABANDONED_ADOPTED if catalog.registry().adopted else ABANDONED


class _Optimisation:
    """One call: each step leaves the gallery whole, so it can end after any of them."""

    def __init__(self, catalog: Catalog, whole: bool, grace: float) -> None:
        self._catalog, self._store, self._whole, self._grace = catalog, catalog.store, whole, grace

    def run(self) -> Optimized:
        """Do all that is left to do."""
        catalog, store = self._catalog, self._store
        before = measure(store)
        dropped = registry_module.drop_unused(store)
        lost: list[Any] = []
        if self._whole:
            merge_deltas(store)
            self._merge()
            self._drop_versions()
            lost = orphans(store, _age(catalog))
            remove(store, lost)
        unneeded = leftovers(catalog, all_files(store), _age(catalog))
        remove(store, unneeded)
        LeaseTable(store.location).tidy()
        return Optimized(
            before=before,
            after=measure(store),
            dropped=dropped,
            leftovers=tuple(file.path for file in unneeded),
            orphans=len(lost),
            tags=tuple(store.tags()),
            left_alone=_why_not(self._whole),
            dry_run=False,
        )

    def _merge(self) -> None:
        """Merge all fragments that can be merged; after a conflict, list the rest again."""
        for _ in range(ATTEMPTS):
            table = self._store.writer()
            try:
                for part in [part for group in groups(table) for part in group.to_rewrite()]:
                    require_alone(self._store)
                    merge_counted(self._catalog, table, part)
                return
            except Conflict:
                continue

    def _drop_versions(self) -> None:
        """Remove old versions, once whoever reads the one before the last merge had the time of grace."""
        if self._grace <= 60.0:
            time.sleep(self._grace)
        require_alone(self._store)
        drop_older(self._store, timedelta(seconds=self._grace))


_BLOB = re.compile(r"[0-9a-f]{64}|tmp\w+|.+\.tmp")
_OF_A_VERSION = re.compile(r"(?:ledger|staged|counts)-(\w+)(?:-\d+)?\.\w+")


def leftovers(catalog: Catalog, files: list[Stored], age: timedelta) -> list[Stored]:
    """Files beside the table that nothing needs.

    Args:
        catalog: The gallery. What the registries of tagged table versions name is needed.
        files: All files in the table's folder.
        age: How long ago blobs were written at least; one that is younger may be linked in a moment.

    Raises:
        CorruptArtifact: A page of the history is gone, so that nobody knows which files are pages.
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
        unneeded = _BLOB.fullmatch(name) and name not in needed and file.changed < before
        if unneeded or (version and _without_vectors(registry, version[1])):
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


def _without_vectors(registry: Registry, version: str) -> bool:
    return version not in registry.versions or registry.versions[version].columns is None
