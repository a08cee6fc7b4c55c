"""Counts of rows by fragment, kept beside the table, so that an unchanged fragment is not read again.

A count is valid while the fragment has the same data files and the same deleted rows. A count of 0 that was made before
any row was deleted stays valid when rows are deleted. Data files never change: a writer, an app included, adds files to
a fragment. The file is a cache: without it all fragments are counted again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from compatstore.storage.files import FOLDER, Files
from compatstore.storage.fragments import Fragment, field_ids, list_fragments
from compatstore.storage.moves import addresses
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
        self._store, self._files, self._name = store, Files(store.location, FOLDER), name_of(target)
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


def name_of(target: str) -> str:
    """Name of the file that keeps the counts of an upgrade."""
    return f"counts-{target}.json"


def forget_counts(store: Store, target: str) -> None:
    """Remove the counts of a target that is dropped."""
    Files(store.location, FOLDER).delete(name_of(target))


def _digest(fragment: Fragment) -> str:
    return hashlib.blake2b("|".join(fragment.files).encode(), digest_size=8).hexdigest()


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
