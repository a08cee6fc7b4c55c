"""The gallery's Lance table: the open handle, reads of the latest state, and commits."""

from __future__ import annotations

import math
import os
import random
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowField, ArrowSchema
from compatstore.errors import AlreadyExists, CompatStoreError, NotFound, StorageError, first_offenders
from compatstore.storage.failures import WRITABLE, denied_at, is_panic, lost_race, lost_to_others, text_of
from compatstore.storage.files import Files
from compatstore.storage.location import Location, locate
from compatstore.storage.probe import require_conditional_writes
from compatstore.storage.snapshot import Snapshot, Writer, lance

Result = TypeVar("Result")
ATTEMPTS = 20
PATIENCE = 60.0  # seconds of conflicts with others before a write gives up
RECENT_NS = 200_000_000
LISTED_SECONDS = 0.5  # that a list of an object store's versions is relied on
PRIMARY_KEY = {b"lance-schema:unenforced-primary-key": b"true"}
BEGUN = 2  # number of a new gallery's last table version without a registry: empty, and with an index of ids


@dataclass(frozen=True)
class Fence:
    """One lease, as the writers under it use it.

    A write under a fence has three steps: read a table version, check the lease, commit on top of the version that was
    read. A worker that is suspended after the check commits too late: its successor has committed since, and Lance
    refuses a commit whose version is older.

    Attributes:
        target: The upgrade that the lease is of.
        number: Of the lease: each lease of an upgrade has a higher one than all before.
        require: Raises if the lease is lost; nothing more may be written then.
    """

    target: str
    number: int
    require: Callable[[], None]


class Store:
    """One Lance table, always read at its latest version; threads may share it.

    Args:
        location: Address of the table.
        dataset: The open table.
    """

    def __init__(self, location: Location, dataset: Any) -> None:
        self.location = location
        self._dataset = dataset
        self._snapshot: Snapshot = dataset.checkout_version(dataset.version)
        self._versions = location.child("_versions") if location.is_local else None
        self._settled = -1  # time of the folder of versions for which the snapshot is the newest there can be
        self._remote = None if location.is_local else _RemoteVersions(location)
        self._moving = threading.Lock()  # Lance's handle must not be moved by two threads at once
        self._fences: tuple[Fence, ...] = ()

    @classmethod
    def create(cls, location: Location, schema: ArrowSchema) -> Store:
        """Make an empty table, or go on with one that a killed process has made of that schema.

        Raises:
            AlreadyExists: There is a table or anything else at that place.
            StorageError: The place cannot be written, or is an object store without conditional writes.
        """
        operation = f"create a gallery at {location.uri}"
        if (begun := _open_begun(location)) is not None and begun.schema.equals(schema, check_metadata=True):
            return cls(location, begun)
        if begun is not None or _exists(location):
            raise AlreadyExists(
                operation, expected="nothing there", found="something", fix="Open it, or choose another path."
            )
        require_conditional_writes(location, operation)
        empty = pa.Table.from_batches([], schema)
        with storage_errors(operation, location):
            dataset = lance.write_dataset(empty, location.uri, storage_options=location.options)
        return cls(location, dataset)

    @classmethod
    def open(cls, location: Location) -> Store:
        """Open a table.

        Raises:
            NotFound: There is none.
            StorageError: It cannot be read.
        """
        operation = f"open a gallery at {location.uri}"
        with storage_errors(operation, location):
            if location.is_local and not _has_versions(location):
                found = "a folder or file that is none" if Path(location.uri).exists() else "nothing there"
                raise NotFound(operation, expected="a Lance table", found=found, fix=_instead(location), kind="gallery")
            return cls(location, lance.dataset(location.uri, storage_options=location.options))

    def fenced(self, fence: Fence) -> Store:
        """Another handle of the same table, whose commits are refused once the fence's lease is lost."""
        with self._moving:
            dataset = self._dataset.checkout_version(self._dataset.version)
        handle = Store(self.location, dataset)
        handle._fences = (*self._fences, fence)
        return handle

    def fence_of(self, target: str) -> Fence | None:
        """The lease of an upgrade that is written under, or None."""
        return next((fence for fence in self._fences if fence.target == target), None)

    def snapshot(self) -> Snapshot:
        """The table as of now; the returned handle does not move on."""
        if self._versions_changed() == self._settled:
            return self._snapshot
        with self._moving, storage_errors(f"read {self.location.uri}", self.location):
            if self._remote is not None and self._remote.is_newest(self._snapshot.version):
                return self._snapshot
            changed, now = self._versions_changed(), time.time_ns()
            self._dataset.checkout_latest()
            if not is_same(self._dataset, self._snapshot):
                self._snapshot = self._dataset.checkout_version(self._dataset.version)
            self._settled = changed if 0 <= changed <= now - RECENT_NS else -1
            return self._snapshot

    def _versions_changed(self) -> int:
        """Time of the latest version, in nanoseconds; -2, which is never settled, if it is unknown.

        A commit adds a file to the table's folder of versions and so changes that folder's time, which costs far less
        to read than the list of versions. File systems keep that time to some milliseconds only: a recent change
        may hide a later one.
        """
        if self._versions is None:
            return -2
        try:
            return os.stat(self._versions).st_mtime_ns
        except OSError:  # the table is gone; reading it raises the error
            return -2

    def writer(self) -> Writer:
        """A handle of its own on the latest version, for Lance's writing methods: they move their handle on."""
        with self._moving:
            self._dataset.checkout_latest()
            handle: Writer = self._dataset.checkout_version(self._dataset.version)
        self._require_entitled()  # after the handle was made: see `Fence`
        return handle

    @property
    def schema(self) -> ArrowSchema:
        """Arrow schema as of now."""
        return self.snapshot().schema

    def count(self, condition: str | None = None) -> int:
        """Rows that fulfil an SQL condition."""
        return int(self.snapshot().count_rows(condition))

    def add_columns(self, fields: Sequence[ArrowField]) -> None:
        """Add all-null columns that are not there yet; metadata only."""

        def commit() -> None:
            writer = self.writer()
            missing = [field for field in fields if field.name not in writer.schema.names]
            if missing:
                writer.add_columns(missing)

        self.retry("add columns", commit)

    def drop_columns(self, chosen: Sequence[str] | Callable[[Writer], Sequence[str]]) -> tuple[str, ...]:
        """Drop columns that are there; metadata only, the files go with the next clean-up.

        Args:
            chosen: Names, or what chooses them from the table version that they are dropped from. Lance refuses the
                drop of a column if another writer dropped it and added one of that name since.

        Returns:
            The names of those that were there.
        """

        def commit() -> tuple[str, ...]:
            writer = self.writer()
            names = chosen(writer) if callable(chosen) else chosen
            present = [name for name in names if name in writer.schema.names]
            if present:
                writer.drop_columns(present)
            return tuple(present)

        return self.retry("drop columns", commit)

    def commit(self, operation: Any, read_version: int) -> None:
        """Commit an operation made from a snapshot.

        Raises:
            CommitConflictError: Another writer changed the same thing; make the operation again from a new snapshot.
        """
        self._require_entitled()
        lance.LanceDataset.commit(
            self.location.uri, operation, read_version=read_version, storage_options=self.location.options
        )

    def _require_entitled(self) -> None:
        for fence in self._fences:
            fence.require()

    def retry(self, operation: str, commit: Callable[[], Result]) -> Result:
        """Run a function that commits, and run it again after a conflict with another writer.

        Raises:
            StorageError: They won `ATTEMPTS` times, and for `PATIENCE` seconds. The table cannot be written.
        """
        until, attempts = time.monotonic() + PATIENCE, 0
        while True:
            try:
                with storage_errors(f"{operation} in {self.location.name}", self.location):
                    return commit()
            except Conflict:
                attempts += 1
                if attempts >= ATTEMPTS and time.monotonic() > until:
                    found = f"{attempts} conflicts in a row"
                    raise lost_to_others(f"{operation} in {self.location.name}", found) from None
                time.sleep(random.uniform(0, min(0.01 * 2**attempts, 0.5)))  # rivals that wait as long meet again

    def tags(self) -> dict[str, int]:
        """Table versions that are pinned, by the names of their tags."""
        return {name: int(tag["version"]) for name, tag in self.snapshot().tags.list().items()}

    def has_version(self, version: int) -> bool:
        """True if a table version can still be read."""
        try:
            self.snapshot().checkout_version(version)
        except (ValueError, OSError):
            return False
        return True

    def tag(self, name: str, version: int | None = None) -> None:
        """Pin a table version (the latest by default) against clean-up, moving the tag if it exists."""
        writer = self.writer()  # Lance refuses to write tags by a handle that another thread reads by
        target = writer.version if version is None else version
        if name in writer.tags.list():
            writer.tags.update(name, target)
        else:
            writer.tags.create(name, target)

    def untag(self, name: str) -> None:
        """Remove a tag, if it exists."""
        writer = self.writer()
        if name in writer.tags.list():
            writer.tags.delete(name)


def is_same(one: Snapshot, other: Snapshot) -> bool:
    """True if two open tables are one version of one table.

    A table that was removed and made again may have as many versions; the registry in its config distinguishes it
    from the former one.
    """
    return bool(one.version == other.version and one.config() == other.config())


class _RemoteVersions:
    """Checks an object store for the next version, by the name of its file, instead of listing all versions.

    A request for one name costs a twelfth of one for a list, and its answer does not grow with the table's history.
    The name alone is not enough if the next version was removed already, as a clean-up does after its time of
    grace; so a list is relied on for half a second only.

    Args:
        location: The table, in an object store.
    """

    def __init__(self, location: Location) -> None:
        self._files = Files(location, "_versions")
        # Elsewhere a version may be there before its file: DynamoDB keeps the commits then.
        self._by_name = None if location.uri.startswith(("s3://", "gs://", "az://", "abfs")) else False
        self._listed = -math.inf

    def is_newest(self, version: int) -> bool:
        """True if no version comes after this one; False if a list is needed, which is relied on from then."""
        now = time.monotonic()
        if now - self._listed > LISTED_SECONDS:
            self._listed = now
            return False
        if self._by_name is None:  # tables of early releases of Lance name their versions otherwise
            self._by_name = self._files.exists(_manifest_name(version))
        return self._by_name and not self._files.exists(_manifest_name(version + 1))


def _manifest_name(version: int) -> str:
    """Name of the file of a version's commit: versions count down, so that the newest is first in a list."""
    return f"{2**64 - 1 - version:020}.manifest"


def newest_manifest(location: Location) -> str | None:
    """Path of the file of a local table's last commit, or None; Lance names them so that the last comes first."""
    if not location.is_local:
        return None
    names = sorted(path.name for path in Path(location.child("_versions")).glob("*.manifest"))
    return location.child("_versions", names[0]) if names else None


class Conflict(Exception):  # noqa: N818  (a signal between this file's functions, never seen by users)
    """Another writer committed first."""


@contextmanager
def storage_errors(operation: str, location: Location | None = None) -> Iterator[None]:
    """Turn what Lance raises into our errors: `Conflict` for lost races, `StorageError` for the rest."""
    try:
        yield
    except BaseException as error:
        text = str(error)
        if lost_race(error):
            raise Conflict(text) from error
        lost = isinstance(error, ValueError) and (text.startswith("Not found") or "LanceError(IO)" in text)
        if lost or is_panic(error) or (isinstance(error, OSError) and not isinstance(error, CompatStoreError)):
            found = text_of(error) + denied_at(error, location)
            expected = "a table that can be read and written"
            raise StorageError(operation, expected=expected, found=found, fix=WRITABLE) from error
        raise


def _instead(location: Location) -> str:
    """The fix if there is no table: make one, or name another of the database in DATABASE#TABLE."""
    database, mark, _ = location.given.rpartition("#")
    if not mark:
        place = Path(location.uri)
        if place.with_name(f"{place.name}.lance").is_dir():  # database/table
            return f"Name the table so: {shlex.quote(f'{Path(location.name).parent}#{place.name}')}"
        inside = sorted(path.stem for path in place.glob("*.lance")) if place.is_dir() else []
        if inside:
            named = first_offenders([shlex.quote(f"{location.name.rstrip('/')}#{name}") for name in inside])
            return f"It is a database: name one of its tables: {named}."
        return f"Make one: {next_step.creating(location.uri)}"
    folder = Path(location.uri).parent
    if not folder.is_dir():
        return f"There is no folder {database}: check the path."
    tables = sorted(f"{database}#{path.stem}" for path in folder.glob("*.lance"))
    return f"Name one of its tables: {first_offenders(tables)}." if tables else f"There is no table in {database}."


# Folders of a table that its first commit makes, the second with the commit itself.
_FIRST = ("_transactions", "_versions")


def _has_versions(location: Location) -> bool:
    return any(Path(location.uri, _FIRST[1]).glob("*.manifest"))


def is_begun(dataset: Snapshot) -> bool:
    """True for the table of a creation that was killed before its registry was written."""
    if dataset.version > BEGUN or dataset.config() or dataset.count_rows():
        return False
    return any(field.metadata and field.metadata.items() >= PRIMARY_KEY.items() for field in dataset.schema)


def _open_begun(location: Location) -> Snapshot | None:
    """The table that `is_begun` at a place, or None."""
    if location.is_local and not _has_versions(location):
        return None
    try:
        dataset = lance.dataset(location.uri, storage_options=location.options)
        return dataset if is_begun(dataset) else None
    except (ValueError, OSError):
        return None


def _exists(location: Location) -> bool:
    if location.is_local:
        path = Path(location.uri)
        if not path.is_dir():
            return path.exists()
        return _has_versions(location) or any(entry.name not in _FIRST for entry in path.iterdir())
    try:
        lance.dataset(location.uri, storage_options=location.options)
    except (ValueError, OSError):
        return False
    return True


SUFFIX = ".lance"


def matching(pattern: str, storage_options: dict[str, str] | None = None) -> list[str]:
    """Addresses of the tables that match a pattern, in the order of their names; nothing is opened.

    Args:
        pattern: `DATABASE#photos_*`, on a disk or in an object store.
        storage_options: Options of the object store.

    Raises:
        InvalidInput: The database is no place.
        StorageError: The database cannot be listed.
    """
    database, _, table = pattern.rpartition("#")
    place = locate(database, storage_options)
    with storage_errors(f"list the tables of {database}", place):
        names = Files(place).names()
    tables = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return [f"{database}#{name}" for name in tables if fnmatchcase(name, table)]
