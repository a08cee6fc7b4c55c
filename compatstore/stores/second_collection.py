"""A target as a second collection beside the app's: same ids, vectors of the target, and the same documents.

The app can be switched to the second collection as a whole, so each write copies what the app's collection holds of a
row besides its vector, and `refresh` copies what changed there since; a switch in the store does so first. A row that
the app has deleted is not written. The switch is an alias, moved in one step, where the app reads through one;
otherwise the app names the second collection.

The collection of target `v2` beside `docs` is `docs_v2`. An alias on `docs_v2` is switched to v2: its name says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.boundary import shown
from compatstore.errors import NotFound, UpgradeError
from compatstore.stores.address import Address
from compatstore.stores.store import ID, VECTOR, Parts, Switch, matrix
from compatstore.versions import Metric

ANY = Parts()  # nothing named
WRITTEN = 2_000  # rows of one request
AFTER_SWITCH = (
    "Rows that the app adds after the switch are in the target's collection alone: the app does not find them "
    "after a rollback."
)


class SecondCollection(ABC):
    """Places, writes and switches of a store whose targets are collections of their own.

    Args:
        address: Of the app's collection, or of an alias of it.
    """

    scheme: ClassVar[str]

    def __init__(self, address: Address) -> None:
        self.address = address
        self._wanted = ANY  # of the last `describe`
        self._read_by_name: str | None = None  # target whose collection the app names itself

    # The collections of a client

    @abstractmethod
    def _aliased(self, name: str) -> str | None:
        """Collection of an alias; None if the name is that of a collection, or of nothing."""

    @abstractmethod
    def _exists(self, name: str) -> bool:
        """True if there is such a collection."""

    @abstractmethod
    def _create(self, name: str, dim: int, metric: Metric) -> None:
        """Make a collection that can hold what the app's holds, with vectors of a target."""

    @abstractmethod
    def _delete(self, name: str) -> None:
        """Delete a collection."""

    def _point_alias(self, name: str) -> None:
        """Let the app's alias name another collection, in one step; of stores that have aliases.

        Raises:
            UpgradeError: The store has none.
        """
        raise UpgradeError(f"switch {self.address} to {name}", expected="a store with aliases", found="one without")

    @abstractmethod
    def _payloads(self, name: str, ids: Sequence[Id]) -> dict[Id, Any]:
        """Rows of a collection without their vectors, by id; ids that are not there are left out."""

    @abstractmethod
    def _put(self, name: str, ids: Sequence[Id], vectors: FloatArray, payloads: Sequence[Any] | None) -> None:
        """Insert or replace rows; without payloads, replace vectors of rows that are there and nothing else."""

    @abstractmethod
    def _erase(self, name: str, ids: Sequence[Id]) -> None:
        """Delete rows; ids that are not there are ignored."""

    @abstractmethod
    def _vectors(self, name: str, ids: Sequence[Id] | None) -> Iterator[ArrowTable]:
        """Stream `id` and `vector` of a collection: of all rows, or of some ids."""

    # Places

    @property
    def switches_by(self) -> Switch:
        """How the app is switched."""
        return "alias" if self._aliased(self.address.collection) else ""

    def _reads(self) -> str:
        """Collection that the app reads now."""
        if self._read_by_name is not None:
            return self._place(self._read_by_name)
        return self._aliased(self.address.collection) or self.address.collection

    def _place(self, target: str) -> str:
        """Collection of a target."""
        real = self._aliased(self.address.collection)
        return real if real and self.is_switched(target) else f"{real or self.address.collection}_{target}"

    def _own(self, target: str) -> str:
        """Collection that the app reads without the target."""
        return self._place(target).removesuffix(f"_{target}")

    def has(self, target: str) -> bool:
        """True if there is a collection of that name; see `VectorStore.has`."""
        return self._exists(self._place(target))

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Make the collection of a target; see `VectorStore.prepare`."""
        if not self._exists(self._place(target)):
            self._create(self._place(target), dim, metric)

    def place(self, target: str) -> tuple[str, Parts]:
        """Address and parts of the target for an app; see `VectorStore.place`."""
        name = self.address.collection if self.switches_by else self._place(target)
        return str(replace(self.address, collection=name)), self._wanted

    def before(self, target: str) -> str | None:
        """None: the app's own vectors are not in the rows of the target; see `VectorStore.before`."""
        return None

    # Rows

    def write(self, target: str, rows: ArrowTable) -> Sequence[Id]:
        """Write vectors with what the app's collection holds of their rows; see `VectorStore.write`."""
        reads, place = self._reads(), self._place(target)
        ids, vectors = rows[ID].to_pylist(), matrix(rows[VECTOR])
        written = list[Id]()
        for start in range(0, len(ids), WRITTEN):
            batch = ids[start : start + WRITTEN]
            payloads = self._payloads(reads, batch)
            there = [row for row, name in enumerate(batch) if name in payloads]
            names = [batch[row] for row in there]
            copied = None if place == reads else [payloads[name] for name in names]
            if names:
                self._put(place, names, vectors[start : start + WRITTEN][there], copied)
            written += names
        return written

    def read_target(self, target: str, ids: Sequence[Id] | None = None) -> Iterator[ArrowTable]:
        """Stream ids and vectors; see `VectorStore.read_target`."""
        return self._vectors(self._place(target), ids)

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Delete rows of the target's collection, unless the app reads it; see `VectorStore.remove`."""
        if not self.is_switched(target):
            for start in range(0, len(ids), WRITTEN):
                self._erase(self._place(target), ids[start : start + WRITTEN])

    def refresh(self, target: str) -> None:
        """Copy what the app changed of rows besides their vectors since these were written; a no-op after a switch."""
        if self.is_switched(target):
            return
        reads, place = self._reads(), self._place(target)
        for table in self._vectors(place, None):
            ids, vectors = table[ID].to_pylist(), matrix(table[VECTOR])
            for start in range(0, len(ids), WRITTEN):
                batch = ids[start : start + WRITTEN]
                app, copies = self._payloads(reads, batch), self._payloads(place, batch)
                stale = [row for row, name in enumerate(batch) if name in app and app[name] != copies.get(name)]
                if stale:
                    names = [batch[row] for row in stale]
                    self._put(place, names, vectors[start : start + WRITTEN][stale], [app[name] for name in names])

    # The app

    def is_switched(self, target: str) -> bool:
        """True if the app reads the target's collection; see `VectorStore.is_switched`."""
        real = self._aliased(self.address.collection)
        return real.endswith(f"_{target}") if real else self._read_by_name == target

    def switch(self, target: str) -> None:
        """Let the alias name the target's collection, or read it from now on; see `VectorStore.switch`."""
        if self.is_switched(target):
            return
        if not self.switches_by:
            # Each later call does this too: to copy rows then would undo what the app changed in the target's.
            self._read_by_name = target
            return
        place = self._place(target)
        self._require(place, f"switch {self.address} to {target}")
        self.refresh(target)
        self._point_alias(place)

    def switch_back(self, target: str) -> None:
        """Let the alias name the app's own collection again; see `VectorStore.switch_back`."""
        if not self.is_switched(target):
            return
        own = self._own(target)
        self._require(own, f"switch {self.address} back from {target}")
        if self.switches_by:
            self._point_alias(own)
        self._read_by_name = None

    def app_change(self, target: str) -> str:
        """The collection that the app names; see `VectorStore.app_change`."""
        return f"Let the app read the collection {self._place(target)!r} in place of {self._own(target)!r}."

    def drop(self, target: str) -> None:
        """Delete the target's collection; see `VectorStore.drop`."""
        self._refuse_if_read(target)
        if self._exists(self._place(target)):
            self._delete(self._place(target))

    def drop_source(self, target: str) -> None:
        """Delete the collection that the app read before the switch; see `VectorStore.drop_source`."""
        if self.is_switched(target) and self._exists(self._own(target)):
            self._delete(self._own(target))

    def _require(self, name: str, operation: str) -> None:
        if not self._exists(name):
            raise NotFound(operation, expected=f"a collection {shown(name)}", found="none of that name")

    def _refuse_if_read(self, target: str) -> None:
        if self.is_switched(target):
            operation = f"remove the vectors of {target} from {self.address}"
            raise UpgradeError(operation, expected="a target that the app does not read", found="the app reads it")
