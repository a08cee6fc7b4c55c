"""Indexes while an upgrade goes on: the target's is built as the source's is, and kept up to date.

It is built once the hop has given every item a vector, before the backfill, so that the target is searched as fast as
the source from then on. Native vectors and writes of apps come into it as deltas; if they have changed the results of
searches, it is trained again. The builder of an index holds its lease, and no other process adds rows to it meanwhile:
a build that commits after them would be refused and begin again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from compatstore import next_step
from compatstore.errors import Interrupted, LeaseHeld
from compatstore.storage import indexes
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.ids import refresh_index as refresh_ids
from compatstore.storage.index_status import index_status
from compatstore.storage.indexes import UNINDEXED_ROWS, Report, VectorIndex, late_indexes, names_on, update_index
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.recall import CHANGED, build_index, refresh_index
from compatstore.storage.store import Store
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.leases.holding import hold_lease
from compatstore.upgrade.leases.lease import leases_in
from compatstore.upgrade.progress import UNOBSERVED, Observer, Progress

ROWS_A_CELL = 32  # vectors that cells are learned from, where no hop has filled the column
BUILT = "indexed as the source is"


def index_lease(version: str) -> str:
    """Name of the lease of a version's index."""
    return f"the index of {version}"


@contextmanager
def hold_index(
    catalog: Catalog, version: str, verb: str, caller: Observer = UNOBSERVED
) -> Iterator[tuple[Store, Report]]:
    """Hold the lease of a version's index for a block.

    Yields:
        The table, whose commits are refused once the lease is lost; and a function to call as a stage begins, which
        raises `Interrupted` once a stop is requested.

    Raises:
        LeaseHeld: Another process works on it.
    """
    with hold_lease(catalog, index_lease(version), verb, caller) as work:

        def report(stage: str) -> None:
            work.report(Progress(f"index: {stage}", 0, 0, 0.0))
            if work.stops():
                found = f"a stop was requested at {stage}"
                raise Interrupted(f"{verb} the index", found=found, fix=f"Give {next_step.same()} again: it goes on.")

        yield work.catalog.store, report


def take_in_late_rows(catalog: Catalog, *, more_than: int) -> list[str]:
    """Add rows to the vector indexes that lack many, but not to an app's own, nor during a build.

    Args:
        catalog: The gallery.
        more_than: Rows that an index may lack.

    Returns:
        Versions whose indexes have them now.
    """
    store = catalog.store
    late = late_indexes(store.snapshot(), more_than)
    if not late:
        return []
    leases, updated = leases_in(LeaseTable(store.location).read()), list[str]()
    built = {lease.target for lease in leases if lease.works}
    for record in catalog.registry().live:
        if record.columns is not None and not record.adopted and index_lease(record.name) not in built:
            names = [name for name in names_on(store, record.columns.vector) if name in late]
            update_index(store, names)
            updated += [record.name] if names else []
    return updated


def as_the_source(context: UpgradeContext, target: VersionColumns) -> VectorIndex | None:
    """The index that an upgrade's target gets to be indexed as its source is; None if the source has none."""
    return indexes.mirrored(context.store, context.source.vector, target, context.target_record.metric)


def build_target(
    context: UpgradeContext, caller: Observer = UNOBSERVED, *, at_least: int = indexes.MINIMUM_ROWS
) -> str:
    """Index an upgrade's target as the source is.

    Args:
        context: The upgrade as of now.
        caller: Observes the stages.
        at_least: Minimum number of vectors for an index.

    Returns:
        A description of the work; "" if the source has no index, the target has one, or another process builds it.

    Raises:
        Interrupted: A stop was requested.
    """
    store, run, target = context.store, context.run, context.target
    wanted = None if names_on(store, target.vector) else as_the_source(context, target)
    if wanted is None or store.count(target.present) < at_least:
        return ""
    with suppress(LeaseHeld), hold_index(context.catalog, run.target, "build", caller) as held:
        build_index(held[0], run.target, wanted, held[1])
        return BUILT
    return ""


def refresh_target(context: UpgradeContext, caller: Observer = UNOBSERVED) -> str:
    """Bring the index of an upgrade's target up to date.

    Returns:
        A description of the work; "" if it is up to date, there is none, or another process works on it.

    Raises:
        Interrupted: A stop was requested.
    """
    if not names_on(context.store, context.target.vector):
        return ""
    status = index_status(context.store, context.run.target)
    if not (status.unindexed_rows or status.changed > CHANGED):
        return ""
    with suppress(LeaseHeld), hold_index(context.catalog, context.run.target, "refresh", caller) as held:
        why = refresh_index(held[0], context.run.target, held[1], always=False).retrained
        return f"index trained again: {why}" if why else "index brought up to date"
    return ""


class IndexKeeper:
    """Keeps the indexes of a gallery up to date while a backfill stores vectors.

    Args:
        context: The upgrade.
        unindexed_rows: Rows that may wait before an index takes them in.
    """

    def __init__(self, context: UpgradeContext, *, unindexed_rows: int = UNINDEXED_ROWS) -> None:
        self._context, self._unindexed_rows, self._stored = context, unindexed_rows, 0

    def stored(self, rows: int) -> None:
        """Count stored vectors, and update indexes that lack many rows by now, regardless of their writers."""
        store, target = self._context.store, self._context.run.target
        self._stored += rows
        refresh_ids(store, self._context.registry.id_column)
        updated = take_in_late_rows(self._context.catalog, more_than=self._unindexed_rows)
        if target in updated:
            refresh_target(self._context)
        elif self._stored >= self._unindexed_rows:
            # Without a hop it begins with a few vectors for each cell.
            source = indexes.describe(store, self._context.source.vector)
            cells = 0 if source is None else source.num_partitions
            build_target(self._context, at_least=max(indexes.MINIMUM_ROWS, ROWS_A_CELL * cells))
            self._stored = 0
