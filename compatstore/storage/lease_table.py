"""A few short records beside the table, changed by compare-and-swap: leases of workers, and requests to stop.

They are configuration keys of a tiny Lance table of their own, so they work wherever Lance commits are atomic, object
stores too. They are not in the gallery's table, because a worker renews its record every few seconds, and each time
would make a version of that table and leave the handles of the apps that use it behind.

Files beside the table are not commits; the number of their lease is in their names. A worker that lost its lease
writes to its own files, if it still writes at all. Its successor reads the files of the leases before its own and
writes to others, so neither takes anything from the other.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from compatstore.documents import Malformed, Record, parse, read_record
from compatstore.errors import StorageError
from compatstore.storage.files import FOLDER, Files
from compatstore.storage.location import Location
from compatstore.storage.snapshot import lance
from compatstore.storage.store import Conflict, Fence, storage_errors

LEDGER, STAGED = ("ledger", ".arrow"), ("staged", ".lance")
_NAME = re.compile(r"(?P<kind>ledger|staged)-(?P<target>[^-]+)-(?P<number>\d+)(?P<suffix>\.arrow|\.lance)")


class LeaseFiles:
    """The files of one kind of one upgrade, those of earlier leases too.

    Args:
        location: The gallery.
        kind: `LEDGER` or `STAGED`.
        target: The upgrade's target.
        fence: The lease that is written under; None for those who only read, who read all leases' files.

    Attributes:
        files: The folder.
        number: Of the lease, 0 without one.
        own: Name of the file that is written.
    """

    def __init__(self, location: Location, kind: tuple[str, str], target: str, fence: Fence | None) -> None:
        self.files = Files(location, FOLDER)
        self._kind, self._target, self._fence = kind, target, fence
        self.number = 0 if fence is None else fence.number
        self.own = self._named(self.number)

    def names(self, since: int = 0) -> list[str]:
        """Names of the files that are there, the latest lease's last; none of leases later than the fence's.

        Args:
            since: Number of the first lease whose files are named, beside one's own.
        """
        numbers = (_number(name, self._kind, self._target) for name in self.files.names())
        last = math.inf if self._fence is None else self.number
        counts = (n for n in numbers if n is not None and (since <= n <= last or n == self.number))
        return [self._named(n) for n in sorted(counts)]

    def require_entitled(self) -> None:
        """Look whether the lease is held; to be called before each write.

        Raises:
            LeaseLost: It is not.
        """
        if self._fence is not None:
            self._fence.require()

    def _named(self, number: int) -> str:
        kind, suffix = self._kind
        return f"{kind}-{self._target}-{number}{suffix}"


def last_number(location: Location, target: str) -> int:
    """The highest number of a lease of an upgrade that a file is named by, 0 if there is none."""
    names = Files(location, FOLDER).names()
    numbers = [_number(name, kind, target) for name in names for kind in (LEDGER, STAGED)]
    return max((number for number in numbers if number is not None), default=0)


def target_of(name: str, kind: tuple[str, str]) -> str | None:
    """The upgrade's target that a file of a kind belongs to; None if it is none of that kind."""
    found = _NAME.fullmatch(name)
    return found["target"] if found is not None and (found["kind"], found["suffix"]) == kind else None


def _number(name: str, kind: tuple[str, str], target: str) -> int | None:
    found = _NAME.fullmatch(name)
    return int(found["number"]) if found is not None and target_of(name, kind) == target else None


LEASES = "leases.lance"
VERSIONS_KEPT, COMMITS_BETWEEN_TIDYING = 20, 50
NOTHING_YET = 0


@dataclass(frozen=True)
class Records:
    """The records as of one commit.

    Attributes:
        version: The commit, or `NOTHING_YET`.
        values: Text by key.
        address: Address of the table that holds them.
    """

    version: int = NOTHING_YET
    values: Mapping[str, str] = field(default_factory=dict)
    address: str = ""

    def read(self, key: str, kind: type[Record]) -> Record | None:
        """A record, or None if there is none of that key.

        Args:
            key: Its name.
            kind: The dataclass that its JSON holds.

        Raises:
            StorageError: It is no such record.
        """
        text = self.values.get(key)
        try:
            return None if text is None else read_record(kind, parse(text), key)
        except Malformed as error:
            expected = "records written by workers of upgrades"
            fix = f"Remove them when no worker is active: rm -r {shlex.quote(self.address)}"
            raise StorageError("read who works on the gallery", expected=expected, found=str(error), fix=fix) from error


class LeaseTable:
    """The records beside one gallery.

    Args:
        location: The gallery.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._uri = location.child(FOLDER, LEASES)

    def read(self) -> Records:
        """Read the current records; read-only."""
        if self._location.is_local and not Path(self._uri, "_versions").is_dir():
            return Records()
        with storage_errors(f"read who works on {self._location.name}"):
            try:
                dataset = lance.dataset(self._uri, storage_options=self._location.options)
            except ValueError as error:
                if "was not found" not in str(error):
                    raise
                return Records()
            return Records(dataset.version, dataset.config(), self._uri)

    def swap(self, seen: int, key: str, record: Any) -> bool:
        """Write a record, unless it was written since a commit; atomic.

        Args:
            seen: Commit from which the new value was made.
            key: Name of the record.
            record: A dataclass, whose JSON is written.

        Returns:
            True if it was written.

        Raises:
            StorageError: The place cannot be written.
        """
        try:
            with storage_errors(f"note who works on {self._location.name}"):
                text = json.dumps(asdict(record), separators=(",", ":"))
                update = lance.LanceOperation.UpdateMap({key: text}, replace=False)
                lance.LanceDataset.commit(
                    self._uri,
                    lance.LanceOperation.UpdateConfig(config_updates=update),
                    read_version=seen or self._create(),
                    storage_options=self._location.options,
                )
        except Conflict:
            return False
        if seen % COMMITS_BETWEEN_TIDYING == 0:
            with suppress(StorageError, Conflict):  # the record is written
                self.tidy()
        return True

    def tidy(self) -> None:
        """Drop all but the latest commits of this small table."""
        with storage_errors(f"tidy who works on {self._location.name}"):
            records = lance.dataset(self._uri, storage_options=self._location.options)
            records.cleanup_old_versions(retain_versions=VERSIONS_KEPT)

    def _create(self) -> int:
        """Make the table, unless it is there; its first commit is the one that all who found nothing have seen."""
        try:
            empty = pa.table({"unused": pa.array([], pa.int8())})
            lance.write_dataset(empty, self._uri, mode="create", storage_options=self._location.options)
        except OSError as error:
            if "already exists" not in str(error):
                raise
        return 1
