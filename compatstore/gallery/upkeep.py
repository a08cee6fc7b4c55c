"""How a gallery fares: its status and history, its indexes, and what keeps it sound, fast and small."""

from __future__ import annotations

from compatstore.asynchronous import awaited
from compatstore.gallery.core import GalleryCore, verbs
from compatstore.storage import registry as registry_module
from compatstore.storage.history import HistoryEntry
from compatstore.storage.indexes import VectorIndex
from compatstore.upgrade.status import Status, read_status
from compatstore.upkeep.index import ManagedIndex
from compatstore.upkeep.optimize import Optimized, optimize
from compatstore.verification import Verification, verify


@verbs
class UpkeepVerbs(GalleryCore):
    """Looking after a gallery. A part of `compatstore.Gallery`."""

    def status(self) -> Status:
        """Versions with their native, transformed and missing rows, and upgrades with their states; read-only.

        Examples:
            >>> [(version.name, version.native, version.missing) for version in gallery.status().versions]
            [('v1', 6, 0), ('v2', 0, 6)]
        """
        return read_status(self._catalog)

    def history(self) -> list[HistoryEntry]:
        """All steps so far, oldest first; read-only.

        Examples:
            >>> [entry.step for entry in gallery.history()]
            ['create', 'register', 'link']
        """
        return registry_module.history(self._catalog.store)

    def index(self, version: str | None = None) -> ManagedIndex:
        """The index of a version's vectors: create it, look at it, refresh it, drop it.

        Args:
            version: The active one by default.

        Raises:
            UnknownVersion: There is no such version.

        Examples:
            >>> gallery.index().status().kind
            ''
        """
        registry = self._catalog.registry()
        return ManagedIndex(self._catalog, registry.record(version or registry.active).name)

    def create_index(
        self,
        version: str | None = None,
        *,
        kind: str = "IVF_PQ",
        num_partitions: int | None = None,
        num_sub_vectors: int | None = None,
    ) -> VectorIndex:
        """Index a version's vectors: `index(version).create(...)`, which says more, without its progress.

        Args:
            version: The active one by default.
            kind: IVF_FLAT, IVF_PQ, IVF_SQ, IVF_HNSW_FLAT, IVF_HNSW_PQ or IVF_HNSW_SQ.
            num_partitions: Cells; by default the square root of the number of vectors, 4,096 at the most, and with
                product quantisation one for 256 vectors at the most.
            num_sub_vectors: Parts of product quantisation; a part for every 8 values by default.

        Raises:
            InvalidInput: There are too few vectors, or the kind is unknown.
            LeaseHeld: Somebody else works on this index.

        Examples:
            >>> many = np.random.default_rng(0).standard_normal((300, 2))
            >>> gallery.add({"id": [f"more-{n}" for n in range(300)], "vector": many}).rows
            300
            >>> gallery.create_index(kind="IVF_FLAT", num_partitions=4).kind
            'IVF_FLAT'
        """
        built = self.index(version).create(kind=kind, num_partitions=num_partitions, num_sub_vectors=num_sub_vectors)
        return VectorIndex(built.kind, built.metric, built.cells, built.sub_vectors)

    def optimize(self, *, adopted: bool = False, grace: float | None = None, dry_run: bool = False) -> Optimized:
        """Merge fragments and parts of indexes, and remove what nothing needs.

        That is: old table versions but for those that tags pin, deleted rows, the data of dropped columns, files that
        killed writes left, and blobs, accounts and staged natives of versions that are gone. A gallery of our own does
        a part of this by itself after a write. Apps may search and write meanwhile.

        Args:
            adopted: Do it to the table of an app too; else only what lies beside it is looked after.
            grace: Seconds that a table version stays for its readers after it was superseded: 5 by default, which the
                call waits, and 7 days in an adopted table. A handle of Lance or LanceDB that stays on an older version
                does not find its files any more.
            dry_run: Say what there is to do, and do nothing.

        Returns:
            Fragments, parts of indexes, versions, files and bytes before and after, and what was removed.

        Raises:
            InvalidInput: The grace is negative or no number.
            LeaseHeld: Somebody works on an upgrade or an index, or optimises; what is finished by then stays.
            StorageError: The table cannot be written.
            CorruptArtifact: A page of the history is gone, so it is not known which files are needed.

        Examples:
            >>> gallery.optimize(dry_run=True).dry_run
            True
        """
        return optimize(self._catalog, adopted=adopted, grace=grace, dry_run=dry_run)

    def verify(self, *, encoder: bool = False) -> Verification:
        """Check table, registry, artifacts, tags and indexes against each other; read-only, in bounded memory.

        Args:
            encoder: Embed a few items of each version again, and compare them with the vectors that are stored.

        Returns:
            What was found, each with its repair; `clean` where there is nothing but notes.

        Examples:
            >>> gallery.verify().clean
            True
        """
        return verify(self._catalog, encoder=encoder)

    def _repr_html_(self) -> str:
        """The status, for notebooks."""
        return self.status()._repr_html_()

    status_async = awaited(status)
    history_async = awaited(history)
    index_async = awaited(index)
    create_index_async = awaited(create_index)
    optimize_async = awaited(optimize)
    verify_async = awaited(verify)
