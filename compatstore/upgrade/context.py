"""One upgrade as of one table version: the state that its steps share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.fragment_counts import FragmentCounts, counts_of
from compatstore.storage.ledger import Ledger, ledger_of
from compatstore.storage.records import RunRecord, VersionRecord
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store


@dataclass(frozen=True, eq=False)
class UpgradeContext:
    """An upgrade with the table and the registry of one moment, which stay as they are while others write.

    Two figures of one context belong to the same rows: of 1,000 items and 400 natives, 600 are not native. `later`
    gives the context of the table as it is by then.

    Args:
        catalog: Encoders, artifacts and files of the gallery. Its store reads the latest table version, and writes.
        run: The upgrade.
        snapshot: The table version.
        registry: The registry of that table version.
    """

    catalog: Catalog
    run: RunRecord
    snapshot: Snapshot
    registry: Registry

    @classmethod
    def of(cls, catalog: Catalog, run: RunRecord, snapshot: Snapshot | None = None) -> UpgradeContext:
        """An upgrade as of now, or of an open snapshot.

        Raises:
            TableChanged: Columns that the registry names are not in the table.
        """
        snapshot = catalog.store.snapshot() if snapshot is None else snapshot
        return cls(catalog, run, snapshot, catalog.registry(snapshot))

    def later(self, run: RunRecord | None = None) -> UpgradeContext:
        """The same upgrade as of now, with its current record; counts are kept."""
        return self._share(UpgradeContext.of(self.catalog, run or self.run))

    def with_run(self, run: RunRecord) -> UpgradeContext:
        """Another record of the same upgrade, at the same table version."""
        return self._share(replace(self, run=run))

    @property
    def store(self) -> Store:
        """The table as of now."""
        return self.catalog.store

    @property
    def source(self) -> VersionColumns:
        """Columns of the version that the upgrade reads."""
        return self.registry.columns(self.run.source)

    @property
    def target(self) -> VersionColumns:
        """Columns of the version upgraded to; they are in the table once the upgrade has begun."""
        return self.registry.columns(self.run.target)

    @property
    def target_record(self) -> VersionRecord:
        """The version upgraded to."""
        return self.registry.record(self.run.target)

    @property
    def has_both(self) -> bool:
        """True if both versions have columns: false before the upgrade began and after a version was retired."""
        return all(self.registry.record(name).columns is not None for name in (self.run.source, self.run.target))

    @cached_property
    def counts(self) -> FragmentCounts | None:
        """Known counts of fragments that did not change; None if a version has no columns."""
        return counts_of(self.store, self.registry, self.run.source, self.run.target) if self.has_both else None

    def count(self, condition: str | None = None) -> int:
        """Items, or those that fulfil an SQL condition on the columns of both versions and the sources."""
        if condition is None or self.counts is None:
            return int(self.snapshot.count_rows(condition))
        return self.counts.count(self.snapshot, condition)

    def filled(self, version: str) -> tuple[int, int]:
        """Rows with a native vector, and with a transformed one, of the source or the target; both have columns.

        Only rare rows are counted: a count of zero stays valid whatever is deleted.
        """
        columns = self.registry.columns(version)
        present = self.count() - self.count(columns.missing)
        if version == self.run.target and columns.origin:
            native = self.count(columns.native)
            return native, present - native
        transformed = self.count(columns.transformed) if columns.origin else 0
        return present - transformed, transformed

    def save_counts(self) -> None:
        """Store the counts beside the table, so that the next call reads only changed fragments."""
        if self.counts is not None:
            self.counts.save()

    @property
    def ledger(self) -> Ledger:
        """Spending of the backfill, and the items that it could not embed."""
        return ledger_of(self.catalog, self.registry, self.run)

    def _share(self, other: UpgradeContext) -> UpgradeContext:
        """Pass the counts so far to another context of this upgrade."""
        if self.__dict__.get("counts") is not None:
            other.__dict__["counts"] = self.counts
        return other
