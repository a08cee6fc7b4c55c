"""Tables of a database whose names match a pattern."""

from __future__ import annotations

from fnmatch import fnmatchcase

from compatstore.storage.files import Files
from compatstore.storage.location import locate
from compatstore.storage.store import storage_errors

SUFFIX = ".lance"


def matching(pattern: str, storage_options: dict[str, str] | None = None) -> list[str]:
    """Addresses of the tables that a pattern stands for, in the order of their names; nothing is opened.

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
