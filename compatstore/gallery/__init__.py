"""The gallery: the object that users hold.

`Gallery` is one class. Its verbs stand in the file of their theme: `core.py`, `items.py`, `searching.py`,
`versions.py`, `upgrades.py`, `measuring.py`, `mirroring.py`; those of its namespaces in `versions.py` and here. Each
is documented there and delegates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from compatstore.arrays import ArrowTable
from compatstore.asynchronous import Aio
from compatstore.gallery.core import OpeningVerbs, verbs
from compatstore.gallery.items import ItemVerbs
from compatstore.gallery.measuring import MeasuringVerbs
from compatstore.gallery.mirroring import MirrorVerbs
from compatstore.gallery.upgrades import UpgradeVerbs
from compatstore.gallery.versions import Artifacts
from compatstore.ingest import metadata as metadata_columns
from compatstore.storage import registry as registry_module
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry

if TYPE_CHECKING:
    from compatstore.search.cached_reading import CacheSize
    from compatstore.upkeep.index import ManagedIndex
    from compatstore.upkeep.optimize import Optimized
    from compatstore.verification import Verification

FORMER = {
    "plan": "upgrade(..., dry_run=True)",
    "fuse": 'evaluate(..., weight="best")',
    "check_cutover": "cutover(..., dry_run=True).missing",
    "pause": "the command `compatstore pause`",
    "derive": "register(NAME, of=...)",
    "encoder": "version(NAME).encoder",
    "link": "artifacts.link",
    "unlink": "artifacts.unlink",
    "create_index": "maintenance.index(VERSION).create",
    "count": "len(gallery.scan(where=...))",
    "native_ids": "scan([columns.id], native=[VERSION])",
    "side_information": "vectors(..., side=True)",
    "vector_column": "columns.vectors[VERSION]",
    "id_column": "columns.id",
    "id_type": "columns.id_type",
    "source_column": "columns.source",
    "metadata_schema": "columns.metadata",
} | {
    name: f"maintenance.{name}"
    for name in ("cache_size", "drop_columns", "history", "index", "optimize", "unbackfillable", "unregister", "verify")
}


@verbs("Gallery.maintenance")
class Maintenance:
    """Operations that keep a gallery sound, fast and small; `Gallery.maintenance` gives it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def verify(self, *, embed: bool = False) -> Verification:
        """Check table, registry, artifacts, tags and indexes against each other; read-only, in bounded memory.

        A gallery that mirrors a store is compared with it too: all ids and vectors of the app, and of each target the
        ids and a sample of the vectors.

        Args:
            embed: Embed a few items of each version again, and compare them with the vectors that are stored.

        Returns:
            The findings, each with its repair; `clean` if there is nothing but notes.

        Examples:
            >>> gallery.maintenance.verify().clean
            True
        """
        from compatstore.stores.comparison import verified
        from compatstore.verification import verify

        return verified(self._catalog, verify(self._catalog, embed=embed))

    def optimize(self, *, adopted: bool = False, grace: float | None = None, dry_run: bool = False) -> Optimized:
        """Merge fragments and parts of indexes, and remove unused data.

        That is: old table versions but for those that tags pin, deleted rows, the data of dropped columns, files that
        killed writes left, and blobs, accounts and staged natives of versions that are gone. A gallery of our own does
        a part of this by itself after a write. Apps may search and write meanwhile.

        Args:
            adopted: Do it to the table of an app too; otherwise only the files beside it are maintained.
            grace: Seconds that a table version stays for its readers after it was superseded: 5 by default, which the
                call waits, and 7 days in an adopted table. A handle of Lance or LanceDB that stays on an older version
                does not find its files any more.
            dry_run: Report the actions, and do nothing.

        Returns:
            Fragments, parts of indexes, versions, files and bytes before and after, and the removed ones.

        Raises:
            InvalidInput: The grace is negative or no number.
            LeaseHeld: Another process works on an upgrade or an index, or optimises; finished work stays.
            StorageError: The table cannot be written.
            CorruptArtifact: A page of the history is gone, so it is not known which files are needed.

        Examples:
            >>> gallery.maintenance.optimize(dry_run=True).dry_run
            True
        """
        from compatstore.upkeep.optimize import optimize

        return optimize(self._catalog, adopted=adopted, grace=grace, dry_run=dry_run)

    def index(self, version: str | None = None) -> ManagedIndex:
        """The index of a version's vectors, to create, look at, refresh or drop.

        Args:
            version: The active one by default.

        Raises:
            NotFound: There is no such version.

        Examples:
            >>> gallery.maintenance.index().status().kind
            ''
        """
        from compatstore.upkeep.index import ManagedIndex

        registry = self._catalog.registry()
        return ManagedIndex(self._catalog, registry.record(version or registry.active).name)

    def history(self) -> list[HistoryEntry]:
        """All steps so far, oldest first; read-only.

        Examples:
            >>> [entry.step for entry in gallery.maintenance.history()]
            ['create', 'register', 'link']
        """
        return registry_module.history(self._catalog.store)

    def unbackfillable(self, target: str) -> ArrowTable:
        """Items that the upgrade to a target could not embed natively: Arrow table with `id` and `reason`; read-only.

        An item leaves the list when it is embedded, deleted or given another source.

        Raises:
            NotFound: There is no such version.

        Examples:
            >>> _ = gallery.add({"id": ["g"], "vector": [[4.0, 4.0]]})  # the encoder of v2 has no vector of it
            >>> _ = gallery.upgrade("v2", backfill=1.0)
            >>> gallery.maintenance.unbackfillable("v2")["id"].to_pylist()
            ['g']
        """
        from compatstore.upgrade.backfilling.account import unbackfillable

        return unbackfillable(self._catalog, target)

    def drop_columns(self, names: Sequence[str]) -> list[str]:
        """Drop metadata columns, of all items, for good; columns of the same names can be added again.

        Args:
            names: Columns that `add` made. Ids, sources and the columns of versions are refused, as is a column that
                orders the backfill of an open upgrade, and every column of an adopted table.

        Returns:
            The metadata columns that are left.

        Raises:
            InvalidInput: One of them is not there, or is not to be dropped; none was.

        Examples:
            >>> gallery.maintenance.drop_columns(["label"])
            []
        """
        return metadata_columns.drop(self._catalog, names)

    def unregister(self, version: str) -> None:
        """Forget a version that nothing uses; its files go with the next `optimize`.

        Raises:
            NotFound: There is no such version.
            UpgradeError: It is active or has vectors, or an upgrade under way or an artifact names it.

        Examples:
            >>> _ = gallery.artifacts.unlink(h.id)
            >>> gallery.maintenance.unregister("v2")
            >>> gallery.versions()
            ('v1',)
        """
        from compatstore.upkeep.removal import unregister

        unregister(self._catalog, version)

    def cache_size(self, version: str | None = None) -> CacheSize:
        """Memory that `Gallery.cache` with the same arguments would take; read-only, no vector is read.

        Raises:
            NotFound: There is no such version, or nothing to search with its queries.

        Examples:
            >>> gallery.maintenance.cache_size().rows
            6
        """
        from compatstore.search.cached_reading import cache_size

        return cache_size(self._catalog, version or self._catalog.recorded().active)


class Gallery(OpeningVerbs, ItemVerbs, UpgradeVerbs, MeasuringVerbs, MirrorVerbs):
    """A live retrieval gallery on one Lance table.

    Make one with `Gallery.create`, `Gallery.open` or `Gallery.adopt`. Every read sees the current table, whichever
    process wrote it; every write is one commit that fully happens or does not.

    Attributes:
        aio: The same verbs for async apps: `await gallery.aio.search(...)`.
        artifacts: The linked artifacts: list, link, unlink.
        maintenance: Verify, optimise, index, history.

    Examples:
        >>> gallery = cs.Gallery.open("letters.lance")
        >>> gallery.active, len(gallery)
        ('v1', 6)
    """

    aio = Aio()

    @property
    def artifacts(self) -> Artifacts:
        """The linked artifacts: list, link, unlink.

        Examples:
            >>> [artifact.target for artifact in gallery.artifacts]
            ['v2']
        """
        return Artifacts(self._catalog)

    @property
    def maintenance(self) -> Maintenance:
        """Verify, optimise, index, history.

        Examples:
            >>> gallery.maintenance.verify().clean
            True
        """
        return Maintenance(self._catalog)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Name the successor of a verb of an earlier state of this version."""
            former = name.removesuffix("_async")
            if name != former and hasattr(type(self), former):
                raise AttributeError(f"Gallery has no {name}: call gallery.aio.{former}", name=name, obj=self)
            if former in FORMER:
                raise AttributeError(f"Gallery has no {name}: use {FORMER[former]}", name=name, obj=self)
            raise AttributeError(f"'Gallery' object has no attribute {name!r}", name=name, obj=self)
