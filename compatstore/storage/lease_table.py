"""A few short records beside the table, changed by compare-and-swap: who works, and who asks them to stop.

They are configuration keys of a tiny Lance table of their own, so they work wherever Lance commits are atomic, object
stores too. They are not in the gallery's table, because a worker renews its record every few seconds, and each time
would make a version of that table and leave the handles of the apps that use it behind.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from compatstore.documents import Malformed, Record, parse, read_record
from compatstore.errors import StorageError
from compatstore.storage.files import FOLDER
from compatstore.storage.location import Location
from compatstore.storage.snapshot import lance
from compatstore.storage.store import Conflict, storage_errors

LEASES = "leases.lance"
VERSIONS_KEPT = 20
NOTHING_YET = 0


@dataclass(frozen=True)
class Records:
    """All records as of one commit.

    Attributes:
        version: The commit, or `NOTHING_YET`.
        values: Text by key.
        address: Of the table that holds them.
    """

    version: int = NOTHING_YET
    values: Mapping[str, str] = field(default_factory=dict)
    address: str = ""

    def read(self, key: str, kind: type[Record]) -> Record | None:
        """A record, or None where there is none of that key.

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
            raise StorageError(
                "read who works on the gallery",
                expected="records that managers of upgrades wrote",
                found=str(error),
                fix=f"Remove them when nobody is at work: rm -r {shlex.quote(self.address)}",
            ) from error


class LeaseTable:
    """The records beside one gallery.

    Args:
        location: The gallery.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._uri = location.child(FOLDER, LEASES)
        self._options = location.storage_options or None

    def read(self) -> Records:
        """All records as of now; read-only."""
        if self._location.is_local and not Path(self._uri, "_versions").is_dir():
            return Records()
        with storage_errors(f"read who works on {self._location.name}"):
            try:
                dataset = lance.dataset(self._uri, storage_options=self._options)
            except ValueError as error:
                if "was not found" not in str(error):
                    raise
                return Records()
            return Records(dataset.version, dataset.config(), self._uri)

    def swap(self, seen: int, key: str, value: str) -> bool:
        """Write a record, unless it was written since a commit; atomic.

        Args:
            seen: Commit from which the new value was made.
            key: Name of the record.
            value: Its text.

        Returns:
            Whether it was written.

        Raises:
            StorageError: The place cannot be written.
        """
        try:
            with storage_errors(f"note who works on {self._location.name}"):
                update = lance.LanceOperation.UpdateMap({key: value}, replace=False)
                lance.LanceDataset.commit(
                    self._uri,
                    lance.LanceOperation.UpdateConfig(config_updates=update),
                    read_version=seen or self._create(),
                    storage_options=self._options,
                )
        except Conflict:
            return False
        return True

    def tidy(self) -> None:
        """Drop all but the latest commits of this small table."""
        with storage_errors(f"tidy who works on {self._location.name}"):
            lance.dataset(self._uri, storage_options=self._options).cleanup_old_versions(retain_versions=VERSIONS_KEPT)

    def _create(self) -> int:
        """Make the table, unless it is there; its first commit is the one that all who found nothing have seen."""
        try:
            empty = pa.table({"unused": pa.array([], pa.int8())})
            lance.write_dataset(empty, self._uri, mode="create", storage_options=self._options)
        except OSError as error:
            if "already exists" not in str(error):
                raise
        return 1
