"""A target of Qdrant as a second named vector of the same points: `text_v2` beside `text`.

The app reads it by its name: nothing in the store is switched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.errors import StorageError, UpgradeError
from compatstore.stores.address import Address
from compatstore.stores.qdrant_points import PAGE, QdrantPoints, description, distance_of
from compatstore.stores.second_collection import ANY
from compatstore.stores.store import ID, VECTOR, Description, Parts, matrix
from compatstore.versions import Metric

TRIES = 5  # of a write of which the app deletes rows meanwhile


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
        vectors = [place[1], *([other] if other in self.dense(self._name) else [])]
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
        settings = self._models.DenseVectorConfig(size=dim, distance=distance_of(metric))
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
        dim, models = self.dense(self._name)[name].size, self._models
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
        if self.is_switched(target) and vector in self.dense(self._name):
            with self._reporting(f"delete the vector {vector} of"):
                self._client.delete_vector_name(self._name, vector)

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest points; a condition is a filter of Qdrant as JSON. See `VectorStore.search`."""
        place = self._reads() if target is None else (self._name, self._target(target))
        return self._search(place, query, k, where)
