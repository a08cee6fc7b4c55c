"""A gallery beside a store of another kind, which stays the master: mirror and sync."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from compatstore.errors import NotFound
from compatstore.gallery.core import GalleryCore, verbs
from compatstore.storage.catalog import Catalog
from compatstore.storage.create import create_table
from compatstore.storage.failures import answering
from compatstore.storage.location import locate
from compatstore.storage.store import Store
from compatstore.upgrade.progress import Observer, OnProgress
from compatstore.versions import EmbeddingVersion

if TYPE_CHECKING:
    from compatstore.stores.both_sides import Synced


@verbs()
class MirrorVerbs(GalleryCore):
    """Mirroring a store. A part of `compatstore.Gallery`."""

    @classmethod
    def mirror(
        cls,
        store: str,
        gallery: str | os.PathLike[str],
        version: str | EmbeddingVersion = "v1",
        *,
        id: str = "",
        vector: str = "",
        source: str | None = None,
        metadata: Sequence[str] = (),
        track: bool = False,
        progress: OnProgress = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> Self:
        """Bring a collection of another vector database into a new gallery; the same call goes on with a stopped one.

        The database stays the master: an upgrade of the gallery writes its vectors there, beside the app's own, and
        `sync` follows what the app changes. Nothing of the app's is modified.

        Args:
            store: Address of the collection: `postgresql://HOST/DB#SCHEMA.TABLE`, `chroma:PATH#COLLECTION`,
                `qdrant:PATH#COLLECTION`, `milvus:PATH.db#COLLECTION`, `faiss:PATH`, `sqlite:PATH#TABLE`; with
                `chroma+http://HOST:PORT#COLLECTION` and the like for servers. Passwords come from the environment or
                the client's own configuration; one within the address is used for this call and not kept.
            gallery: Path of the gallery, on a disk.
            version: The version of the app's vectors, or its name: length and metric are the collection's then.
            id: Column of the ids, where the database does not say.
            vector: Column of the vectors, where there are several.
            source: Column of the texts or paths that a target's model embeds.
            metadata: Columns to copy, for conditions and labels.
            track: Let PostgreSQL record the ids of rows that the app changes, by triggers, so that a sync reads these
                rows alone. The same call without it drops the triggers, as `abort` and `retire` do at the end of an
                upgrade.
            progress: Called after each batch.
            should_stop: Called before each batch.

        Raises:
            NotFound: There is no such collection or column.
            InvalidInput: The collection cannot be mirrored, or the version does not fit its vectors, or the database
                cannot record changes.
            AlreadyExists: The gallery is there and is not this mirror.
            MissingExtra: The database's client is not installed.
            StorageError: The database cannot be reached, or the gallery cannot be written.
            Interrupted: `should_stop` returned True.

        Examples:
            >>> import faiss
            >>> index = faiss.IndexFlatL2(2)
            >>> index.add(np.eye(2, dtype=np.float32))
            >>> faiss.write_index(index, "letters.faiss")
            >>> len(cs.Gallery.mirror("faiss:letters.faiss", "mirror.lance"))
            2
        """
        from compatstore.stores import tracking
        from compatstore.stores.link import begin, describe, syncing, version_of

        about = describe(store, id=id, vector=vector, source=source, metadata=metadata)
        if track:
            tracking.require_capture(about)
        wanted, location = version_of(about, version), locate(gallery)
        with answering("mirror", location):
            try:
                catalog = Catalog(Store.open(location))
            except NotFound:
                catalog = Catalog(create_table(location, wanted, about.id_type, []))
                catalog.keep_models(wanted)
            begin(catalog, store, about, wanted.name)
            catalog.use_encoders(wanted)
            with syncing(catalog, Observer(progress, should_stop), address=store) as sync:
                tracking.choose(sync.ledger, sync.store, track=track)
                sync.run()
        return cls(catalog)

    def sync(self, *, progress: OnProgress = None, should_stop: Callable[[], bool] | None = None) -> Synced:
        """Pull what the app changed in the store that the gallery mirrors, and push what upgrades made.

        Returns:
            Numbers of rows that were added, changed and deleted, and of vectors written.

        Raises:
            UpgradeError: The gallery mirrors no store.
            StorageError: The store cannot be reached, or refuses, or another process syncs; the same call goes on.
            Interrupted: `should_stop` returned True.

        Examples:
            >>> import faiss
            >>> index = faiss.IndexFlatL2(2)
            >>> index.add(np.eye(2, dtype=np.float32))
            >>> faiss.write_index(index, "letters.faiss")
            >>> gallery = cs.Gallery.mirror("faiss:letters.faiss", "mirror.lance")
            >>> index.add(np.ones((1, 2), np.float32))
            >>> faiss.write_index(index, "letters.faiss")
            >>> gallery.sync().added
            1
        """
        from compatstore.stores.link import syncing

        with syncing(self._catalog, Observer(progress, should_stop)) as sync:
            result = sync.run()
        return self._tended(result)
