"""Qdrant: `qdrant:PATH#collection` of the local mode, `qdrant+http://HOST:PORT#collection` of a server.

Where the vectors of a collection have names, a target is a second one beside them: `text_v2` beside `text`; the app
reads it by its name. A collection with one vector without a name, or a server before 1.18, has a target in a second
collection: an unnamed vector stays alone, since points with two are returned in another form to the app. The app is
switched there by an alias, if it reads through one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.errors import CompatStoreError
from compatstore.stores.address import Address
from compatstore.stores.client_errors import reporting
from compatstore.stores.qdrant_points import PAGE, QdrantPoints, connect, description, distance_of
from compatstore.stores.qdrant_vectors import QdrantVectors
from compatstore.stores.second_collection import AFTER_SWITCH, ANY, SecondCollection
from compatstore.stores.store import Description, Parts, VectorStore
from compatstore.versions import Metric

ADDS_VECTORS = (1, 18)  # the first server that adds a named vector to a collection


def open_qdrant(address: Address) -> VectorStore:
    """A collection of Qdrant, with targets as second vectors where it can have them, else as second collections.

    Raises:
        NotFound: There is no such folder or collection.
        StorageError: The server cannot be reached, or another client holds the folder.
    """
    client, secrets = connect(address)
    try:
        points = QdrantPoints(address, client, secrets)
        named = "" not in points.dense(address.collection)
        if named and (not address.is_remote or _version(address, client, secrets) >= ADDS_VECTORS):
            return QdrantVectors(address, client, secrets)
        return QdrantCollections(address, client, secrets)
    except CompatStoreError:
        client.close()
        raise


def _version(address: Address, client: Any, secrets: tuple[str, ...]) -> tuple[int, int]:
    with reporting(f"read the version of {address}", secrets=secrets):
        match = re.match(r"(\d+)\.(\d+)", client.info().version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


class QdrantCollections(SecondCollection, QdrantPoints):
    """A collection of which a target is a second collection; see `VectorStore`."""

    scheme: ClassVar[str] = "qdrant"

    def __init__(self, address: Address, client: Any, secrets: tuple[str, ...]) -> None:
        SecondCollection.__init__(self, address)
        QdrantPoints.__init__(self, address, client, secrets)

    def _vector(self, parts: Parts = ANY) -> str:
        return self._named(self._reads(), parts.vector or self._wanted.vector)

    def describe(self, wanted: Parts = ANY) -> Description:
        """Describe the collection; see `VectorStore.describe`."""
        self._wanted = replace(wanted, vector=self._vector(wanted))
        values = self._describe((self._reads(), self._wanted.vector), wanted)
        switch = self.switches_by
        return description(values, beside="collection", switch=switch, is_atomic=bool(switch), notes=(AFTER_SWITCH,))

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream all points; see `VectorStore.scan`."""
        place = self._reads(), self._vector(parts)
        for page in self._scroll(place[0], None, True, True):
            yield self._table(page, place, parts, None)

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some points; see `VectorStore.read`."""
        place = self._reads(), self._vector(parts)
        pages = [self._table(page, place, parts, None) for page in self._retrieve(place[0], ids, True, True)]
        return pa.concat_tables(pages) if pages else self._table([], place, parts, None)

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest points; a condition is a filter of Qdrant as JSON. See `VectorStore.search`."""
        name = self._reads() if target is None else self._place(target)
        return self._search((name, self._vector()), query, k, where)

    # Collections

    def _aliased(self, name: str) -> str | None:
        return self._alias_of(name)

    def _exists(self, name: str) -> bool:
        with self._reporting("read"):
            return bool(self._client.collection_exists(name))

    def _create(self, name: str, dim: int, metric: Metric) -> None:
        app, vector = self._parameters(self._reads()), self._vector()
        settings = self._models.VectorParams(size=dim, distance=distance_of(metric))
        vectors = {**app.vectors, vector: settings} if isinstance(app.vectors, dict) else settings
        with self._reporting(f"make the collection {name} beside"):
            options = {
                key: getattr(app, key)
                for key in ("shard_number", "replication_factor", "write_consistency_factor", "on_disk_payload")
                if getattr(app, key) is not None
            }
            self._client.create_collection(
                name, vectors_config=vectors, sparse_vectors_config=app.sparse_vectors, **options
            )
            if self._at.is_remote:  # the local mode has no indexes of payloads
                for key, index in self._client.get_collection(self._reads()).payload_schema.items():
                    self._client.create_payload_index(name, key, index.params or index.data_type)

    def _delete(self, name: str) -> None:
        with self._reporting(f"delete the collection {name} of"):
            self._client.delete_collection(name)

    def _point_alias(self, name: str) -> None:
        models, alias = self._models, self.address.collection
        with self._reporting(f"let the alias name {name} of"):
            self._client.update_collection_aliases(
                [
                    models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)),
                    models.CreateAliasOperation(
                        create_alias=models.CreateAlias(collection_name=name, alias_name=alias)
                    ),
                ]
            )

    def _payloads(self, name: str, ids: Sequence[Id]) -> dict[Id, Any]:
        given = dict(zip(self._native(ids), ids, strict=True))
        vector = self._vector()
        rows = dict[Id, Any]()
        for page in self._retrieve(name, ids, True, True):
            for point in page:
                others = dict(point.vector) if isinstance(point.vector, dict) else {}
                others.pop(vector, None)
                rows[given[point.id]] = (point.payload or {}, others)
        return rows

    def _put(self, name: str, ids: Sequence[Id], vectors: FloatArray, payloads: Sequence[Any] | None) -> None:
        models, vector, native = self._models, self._vector(), self._native(ids)
        with self._reporting(f"write to {name} of"):
            for start in range(0, len(native), PAGE):
                keys, values = native[start : start + PAGE], vectors[start : start + PAGE].tolist()
                if payloads is not None:
                    points = []
                    for key, value, (payload, others) in zip(keys, values, payloads[start : start + PAGE], strict=True):
                        whole = {**others, vector: value} if vector or others else value
                        points.append(models.PointStruct(id=key, vector=whole, payload=payload))
                    self._client.upsert(name, points)
                # The local mode rounds what it inserts and what it updates in different ways.
                if payloads is None or not self._at.is_remote:
                    named = [{vector: value} if vector else value for value in values]
                    pairs = zip(keys, named, strict=True)
                    self._client.update_vectors(name, [models.PointVectors(id=key, vector=one) for key, one in pairs])

    def _erase(self, name: str, ids: Sequence[Id]) -> None:
        with self._reporting(f"delete from {name} of"):
            if ids:
                self._client.delete(name, self._models.PointIdsList(points=self._native(ids)))

    def _vectors(self, name: str, ids: Sequence[Id] | None) -> Iterator[ArrowTable]:
        vector, dense = self._vector(), self.dense(name)
        pages = self._scroll(name, None, False, True) if ids is None else self._retrieve(name, ids, False, True)
        for page in pages:
            yield pa.table(self._pairs(page, name, vector, dense[vector].size))
