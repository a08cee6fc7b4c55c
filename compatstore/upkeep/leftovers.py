"""What lies beside the table for nothing; a process that was killed while it linked, registered or retired leaves some.

Blobs that no registry names, accounts and staged natives of versions without vectors, and temporary files.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from compatstore.errors import StorageError
from compatstore.storage import registry as registry_module
from compatstore.storage.blobs import FOLDER
from compatstore.storage.catalog import Catalog
from compatstore.storage.orphans import Stored
from compatstore.storage.references import referenced
from compatstore.storage.registry import Registry

_BLOB = re.compile(r"[0-9a-f]{64}|tmp\w+|.+\.tmp")
_OF_A_VERSION = re.compile(r"(?:ledger|staged|counts)-(\w+)\.\w+")


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
