"""One upgrade as of one table version: the state that its steps share, and the counts of its rows.

Rows are counted by fragment, and the counts kept beside the table, so that an unchanged fragment is not read again. A
count is valid while the fragment has the same data files and the same deleted rows. A count of 0 that was made before
any row was deleted stays valid when rows are deleted. Data files never change: a writer, an app included, adds files to
a fragment. The file is a cache: without it all fragments are counted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.files import FOLDER, Files
from compatstore.storage.fragments import Fragment, field_ids, list_fragments
from compatstore.storage.ledger import Ledger, ledger_of
from compatstore.storage.moves import addresses
from compatstore.storage.records import RunRecord, VersionRecord
from compatstore.storage.registry import Registry, bridge_to
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Store, storage_errors

WHATEVER_IS_DELETED = "*"
Entry = tuple[str, str, int]  # digest of the files, deleted rows or `WHATEVER_IS_DELETED`, count


class FragmentCounts:
    """Counts for the upgrade to one target.

    Args:
        store: The table.
        target: Name of the version.
        columns: Columns that counts are about. If one of them was dropped and added again, nothing is known.
    """

    def __init__(self, store: Store, target: str, columns: Sequence[str]) -> None:
        self._store, self._files, self._name = store, Files(store.location, FOLDER), _name_of(target)
        self._columns = sorted(set(columns))
        self._counts: dict[str, dict[str, Entry]] = self._load()
        self._changed = False

    def known(self, question: str, fragment: Fragment) -> int | None:
        """The count of a fragment, or None if it may have changed."""
        entry = self._counts.get(question, {}).get(str(fragment.id))
        if entry is None:
            return None
        files, deleted, count = entry
        same = files == _digest(fragment) and deleted in (WHATEVER_IS_DELETED, fragment.deleted)
        return count if same else None

    def note(self, question: str, fragment: Fragment, count: int, *, whatever_is_deleted: bool = False) -> None:
        """Store the count of a fragment.

        Args:
            question: Name of the counted condition.
            fragment: The fragment when it was counted.
            count: Live rows that fulfil the condition.
            whatever_is_deleted: True if the count stays the same when rows are deleted, or come back.
        """
        deleted = WHATEVER_IS_DELETED if whatever_is_deleted else fragment.deleted
        self._counts.setdefault(question, {})[str(fragment.id)] = (_digest(fragment), deleted, count)
        self._changed = True

    def count(self, snapshot: Snapshot, condition: str) -> int:
        """Live rows of a table version that fulfil an SQL condition on the columns of this record."""
        fragments = list_fragments(snapshot)
        unknown = [fragment for fragment in fragments if self.known(condition, fragment) is None]
        if unknown:
            with storage_errors(f"count rows of {self._store.location.name}", self._store.location):
                held = addresses(snapshot, condition, [fragment.id for fragment in unknown]) >> np.uint64(32)
            numbers, counts = np.unique(held, return_counts=True)
            found = Counter(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
            for fragment in unknown:
                rows = found[fragment.id]
                self.note(condition, fragment, rows, whatever_is_deleted=not rows and not fragment.deleted)
        return sum(self.known(condition, fragment) or 0 for fragment in fragments)

    def save(self) -> None:
        """Write the counts of fragments that still exist; a place that cannot be written is no error."""
        if not self._changed:
            return
        there = {str(fragment.id) for fragment in list_fragments(self._store.snapshot())}
        self._counts = {
            question: {number: entry for number, entry in entries.items() if number in there}
            for question, entries in self._counts.items()
        }
        text = json.dumps({"columns": self._ids(), "counts": self._counts}, separators=(",", ":"))
        with contextlib.suppress(OSError):
            self._files.write(self._name, f"{_checksum(text)}\n{text}".encode())
            self._changed = False

    def _load(self) -> dict[str, dict[str, Entry]]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            checksum, _, text = self._files.read(self._name).decode().partition("\n")
            kept = json.loads(text)
            if checksum == _checksum(text) and kept["columns"] == self._ids():
                return {
                    question: {
                        number: (files, deleted, int(count)) for number, (files, deleted, count) in found.items()
                    }
                    for question, found in kept["counts"].items()
                }
        return {}

    def _ids(self) -> dict[str, int | None]:
        """Lance's number of each column: a column that was added again has another one."""
        ids = field_ids(self._store.snapshot())
        return {column: ids.get(column) for column in self._columns}


def counts_of(store: Store, registry: Registry, source: str, target: str) -> FragmentCounts:
    """The counts of an upgrade: of its two versions, of what its target's queries search, and of the sources."""
    names = [*registry.columns(source).names, *registry.columns(target).names]
    bridge = bridge_to(registry, target)
    if bridge is not None:
        names += registry.columns(bridge.source).names
    return FragmentCounts(store, target, [*names, *([registry.source_column] if registry.source_column else [])])


def _name_of(target: str) -> str:
    """Name of the file that keeps the counts of an upgrade."""
    return f"counts-{target}.json"


def forget_counts(store: Store, target: str) -> None:
    """Remove the counts of a target that is dropped."""
    Files(store.location, FOLDER).delete(_name_of(target))


def _digest(fragment: Fragment) -> str:
    return hashlib.blake2b("|".join(fragment.files).encode(), digest_size=8).hexdigest()


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
