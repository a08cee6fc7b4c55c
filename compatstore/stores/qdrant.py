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
from compatstore.errors import CompatStoreError, StorageError, UpgradeError
from compatstore.stores.address import Address
from compatstore.stores.qdrant_points import METRICS, PAGE, QdrantPoints, connect, description
from compatstore.stores.second_collection import AFTER_SWITCH, ANY, SecondCollection
from compatstore.stores.store import ID, VECTOR, Description, Parts, VectorStore, matrix
from compatstore.versions import Metric

ADDS_VECTORS = (1, 18)  # the first server that adds a named vector to a collection
TRIES = 5  # of a write of which the app deletes rows meanwhile


def open_qdrant(address: Address) -> VectorStore:
    """A collection of Qdrant, with targets as second vectors where it can have them, else as second collections.

    Raises:
        NotFound: There is no such folder or collection.
        StorageError: The server cannot be reached, or another client holds the folder.
    """
    client, secrets = connect(address)
    try:
        points = QdrantPoints(address, client, secrets)
        named = "" not in points._dense(address.collection)
        if named and (not address.is_remote or _version(points, client) >= ADDS_VECTORS):
            return QdrantVectors(address, client, secrets)
        return QdrantCollections(address, client, secrets)
    except CompatStoreError:
        client.close()
        raise


def _version(points: QdrantPoints, client: Any) -> tuple[int, int]:
    with points._reporting("read the version of"):
        match = re.match(r"(\d+)\.(\d+)", client.info().version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


class QdrantVectors(QdrantPoints):
    """A collection with named vectors, of which a target is another one; see `VectorStore`."""

    scheme: ClassVar[str] = "qdrant"

    def __init__(self, address: Address, client: Any, secrets: tuple[str, ...]) -> None:
        super().__init__(address, client, secrets)
        self._name = self._alias_of(address.collection) or address.collection
        self._wanted, self._read_by_name = ANY, ""
        self._dims: dict[str, int] = {}

    def _vector(self, parts: Parts) -> str:
        return parts.vector or self._wanted.vector or self._named(self._name, "")

    def _target(self, target: str, parts: Parts = ANY) -> str:
        return f"{self._vector(parts)}_{target}"

    def _reads(self, parts: Parts = ANY) -> tuple[str, str]:
        return self._name, self._target(self._read_by_name, parts) if self._read_by_name else self._vector(parts)

    def describe(self, wanted: Parts = ANY) -> Description:
        """Describe the collection; see `VectorStore.describe`."""
        self._wanted = replace(wanted, vector=self._named(self._name, wanted.vector))
        values = self._describe(self._reads(), wanted)
        values["parts"] = replace(values["parts"], vector=self._wanted.vector)
        return description(values, beside="column", switch="", is_atomic=False)

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream all points; see `VectorStore.scan`."""
        place = self._named_place(parts)
        other = None if target is None else self._target(target, parts)
        vectors = [place[1], *([other] if other in self._dense(self._name) else [])]
        for page in self._scroll(self._name, None, True, vectors):
            yield self._table(page, place, parts, other)

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some points; see `VectorStore.read`."""
        place = self._named_place(parts)
        pages = [self._table(page, place, parts, None) for page in self._retrieve(self._name, ids, True, [place[1]])]
        return pa.concat_tables(pages) if pages else self._table([], place, parts, None)

    def _named_place(self, parts: Parts) -> tuple[str, str]:
        name, vector = self._reads(parts)
        return name, self._named(name, vector)

    def has(self, target: str) -> bool:
        """True if there is a vector of that name; see `VectorStore.has`."""
        parameters = self._parameters(self._name)
        name = self._target(target)
        return name in (parameters.vectors or {}) or name in (parameters.sparse_vectors or {})

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Add a named vector; see `VectorStore.prepare`."""
        if self.has(target):
            return
        settings = self._models.DenseVectorConfig(size=dim, distance=_distance(metric))
        with self._reporting(f"add the vector {self._target(target)} to"):
            config = self._models.DenseVectorNameConfig(dense=settings)
            self._client.create_vector_name(self._name, self._target(target), config)

    def write(self, target: str, rows: ArrowTable) -> Sequence[Id]:
        """Write vectors of points that are there; see `VectorStore.write`."""
        name, ids, vectors = self._target(target), rows[ID].to_pylist(), matrix(rows[VECTOR])
        written = list[Id]()
        for start in range(0, len(ids), PAGE):
            batch, rows_of = ids[start : start + PAGE], vectors[start : start + PAGE]
            for last in (*[False] * (TRIES - 1), True):
                there = self._present(batch)
                kept = [row for row, one in enumerate(batch) if one in there]
                points = [
                    self._models.PointVectors(id=self._native([batch[row]])[0], vector={name: rows_of[row].tolist()})
                    for row in kept
                ]
                try:
                    with self._reporting(f"write {name} to"):
                        if points:
                            self._client.update_vectors(self._name, points)
                except StorageError:
                    # All points but those that the app has just deleted are written then.
                    if last or self._present(batch) == there:
                        raise
                else:
                    written += [batch[row] for row in kept]
                    break
        return written

    def _present(self, ids: Sequence[Id]) -> set[Id]:
        """Ids of points that are there, in the form that was given."""
        found = {point.id for page in self._retrieve(self._name, ids, False, False) for point in page}
        return {one for one, native in zip(ids, self._native(ids), strict=True) if native in found}

    def read_target(self, target: str, ids: Sequence[Id] | None = None) -> Iterator[ArrowTable]:
        """Stream ids and vectors; see `VectorStore.read_target`."""
        name = self._named(self._name, self._target(target))
        dim, models = self._dense(self._name)[name].size, self._models
        condition = models.Filter(must=[models.HasVectorCondition(has_vector=name)])
        pages = (
            self._scroll(self._name, condition, False, [name])
            if ids is None
            else self._retrieve(self._name, ids, False, [name])
        )
        for page in pages:
            there = [point for point in page if (point.vector or {}).get(name) is not None]
            if there:
                yield pa.table(self._pairs(there, self._name, name, dim))

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Delete vectors of points; see `VectorStore.remove`."""
        name = self._target(target)
        for start in range(0, len(ids), PAGE):
            batch = ids[start : start + PAGE]
            for last in (*[False] * (TRIES - 1), True):
                there = self._present(batch)
                try:
                    with self._reporting(f"remove {name} from"):
                        if there:
                            self._client.delete_vectors(self._name, [name], self._native(list(there)))
                    break
                except StorageError:
                    if last or self._present(batch) == there:
                        raise

    def switch(self, target: str) -> None:
        """Read the target's vectors from now on; see `VectorStore.switch`."""
        self._read_by_name = target

    def switch_back(self, target: str) -> None:
        """Read the app's vectors again; see `VectorStore.switch_back`."""
        self._read_by_name = "" if self._read_by_name == target else self._read_by_name

    def is_switched(self, target: str) -> bool:
        """True if this object reads the target; see `VectorStore.is_switched`."""
        return self._read_by_name == target

    def app_change(self, target: str) -> str:
        """The name of the vector; see `VectorStore.app_change`."""
        return f'Let the app search and write with using="{self._target(target)}" in place of "{self._vector(ANY)}".'

    def place(self, target: str) -> tuple[str, Parts]:
        """Address and parts; see `VectorStore.place`."""
        return str(self._at), replace(self._wanted, vector=self._target(target))

    def before(self, target: str) -> str | None:
        """None: the app keeps writing its own vectors until it names the target; see `VectorStore.before`."""
        return None

    def drop(self, target: str) -> None:
        """Delete the named vector; see `VectorStore.drop`."""
        if self.is_switched(target):
            operation = f"remove the vectors of {target} from {self._at}"
            raise UpgradeError(operation, expected="a target that the app does not read", found="the app reads it")
        if self.has(target):
            with self._reporting(f"delete the vector {self._target(target)} of"):
                self._client.delete_vector_name(self._name, self._target(target))

    def drop_source(self, target: str) -> None:
        """Delete the vector that the app read before; see `VectorStore.drop_source`."""
        vector = self._vector(ANY)
        if self.is_switched(target) and vector in self._dense(self._name):
            with self._reporting(f"delete the vector {vector} of"):
                self._client.delete_vector_name(self._name, vector)

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest points; a condition is a filter of Qdrant as JSON. See `VectorStore.search`."""
        place = self._reads() if target is None else (self._name, self._target(target))
        return self._search(place, query, k, where)


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
        settings = self._models.VectorParams(size=dim, distance=_distance(metric))
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
        vector, dense = self._vector(), self._dense(name)
        pages = self._scroll(name, None, False, True) if ids is None else self._retrieve(name, ids, False, True)
        for page in pages:
            yield pa.table(self._pairs(page, name, vector, dense[vector].size))


def _distance(metric: Metric) -> str:
    return next(name for name, one in METRICS.items() if one == metric)
