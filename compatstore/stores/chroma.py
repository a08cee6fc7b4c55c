"""Chroma: `chroma:PATH#collection` in the app's folder, `chroma+http://HOST:PORT#collection` of a server.

A collection has vectors of one length, so a target is a second collection. The app is switched to it by two renames:
`docs` becomes `docs_before_v2`, then `docs_v2` becomes `docs`. Between the two a reader finds no `docs`, and a call
that goes on after a kill there finds the app's own under its new name. The metadata of the target's collection name it.

Environment: CHROMA_TOKEN, CHROMA_TENANT, CHROMA_DATABASE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.errors import NotFound, UpgradeError, load_extra
from compatstore.stores.address import Address
from compatstore.stores.chroma_rows import (
    DOCUMENT,
    EMBEDDING,
    METRICS,
    ROWS,
    URI,
    condition_of,
    connect,
    is_less,
    metric_of,
    table_of,
)
from compatstore.stores.client_errors import reporting
from compatstore.stores.schemaless import SAMPLE, copied, named, require_source, types_of
from compatstore.stores.second_collection import AFTER_SWITCH, ANY, SecondCollection
from compatstore.stores.store import BATCH, ID, Description, Parts, Switch
from compatstore.versions import Metric

MARK = "compatstore"  # in the metadata of a target's collection: the target
HELD_OPEN = "An app that runs holds the collection that it got: it reads the target when it gets the collection again."
ONE_PROCESS = "Chroma's files are for one process at a time: stop the app meanwhile, or run a Chroma server."


class Chroma(SecondCollection):
    """A collection of Chroma; see `VectorStore`.

    Args:
        address: Of the collection.

    Raises:
        NotFound: There is no database in the folder.
        StorageError: The server cannot be reached.
    """

    scheme: ClassVar[str] = "chroma"

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._chromadb = load_extra("chromadb", "chroma")
        self._types: dict[str, str] | None = None
        self._client, self._secrets = connect(address)

    def _reporting(self, verb: str) -> AbstractContextManager[None]:
        absent = (self._chromadb.errors.NotFoundError,)
        return reporting(f"{verb} {self.address}", absent=absent, secrets=self._secrets)

    def describe(self, wanted: Parts = ANY) -> Description:
        """Describe the collection; see `VectorStore.describe`."""
        for given, name in ((wanted.id, ID), (wanted.vector, EMBEDDING)):
            if given not in ("", name):
                raise NotFound(f"describe {self.address}", expected=repr(name), found=repr(given))
        self._wanted = wanted
        with self._reporting("describe"):
            collection = self._collection(self._reads())
            sample = collection.get(limit=SAMPLE, include=ROWS)
            first = collection.get(limit=1, include=["embeddings"])["embeddings"]
            rows = collection.count()
        self._types, notes = types_of((row or {} for row in sample["metadatas"] or ()), (ID, EMBEDDING, DOCUMENT, URI))
        dim = len(first[0]) if len(first) else 0
        texts = {DOCUMENT: "string"} | ({URI: "string"} if any(sample["uris"] or ()) else {})
        has_text = not rows or any(text is not None for text in sample["documents"] or ())
        metadata, left_out = copied(self._types)
        parts = Parts("", "", DOCUMENT if has_text else None, metadata)
        columns = {
            ID: "string",
            EMBEDDING: f"float32[{dim}]",
            **texts,
            **({} if rows else named(wanted)),
            **self._types,
        }
        where = [] if self.address.is_remote else [ONE_PROCESS]
        return Description(
            address=str(self.address),
            parts=parts,
            id_type="string",
            dim=dim,
            metric=metric_of(collection, f"describe {self.address}"),
            rows=rows,
            columns=columns,
            beside="collection",
            switch=self.switches_by,
            is_atomic=False,
            is_conditional=False,
            notes=(*where, *notes, *left_out, HELD_OPEN, AFTER_SWITCH),
        )

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream all rows; see `VectorStore.scan`."""
        # Pages by offset shift when rows are deleted meanwhile: ids are listed first, and rows are read by id.
        with self._reporting("read"):
            ids = self._collection(self._reads()).get(include=[])["ids"]
        for start in range(0, len(ids), BATCH):
            table = self.read(ids[start : start + BATCH], parts)
            if table.num_rows:
                yield table

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some rows; see `VectorStore.read`."""
        columns = self._columns()
        tables = list[ArrowTable]()
        with self._reporting("read"):
            collection = self._collection(self._reads())
            for start in range(0, len(ids), BATCH):
                found = collection.get(ids=list(ids[start : start + BATCH]), include=["embeddings", *ROWS])
                if found["ids"]:
                    metadatas = [row or {} for row in found["metadatas"]]
                    require_source(parts, {DOCUMENT: "", URI: "", **columns}, metadatas, f"read {self.address}")
                    tables.append(table_of(found, parts, columns))
            if tables:
                return pa.concat_tables(tables)
            first = table_of(collection.get(limit=1, include=["embeddings", *ROWS]), parts, columns)
            return first.slice(0, 0)

    def _columns(self) -> Mapping[str, str]:
        if self._types is None:
            self.describe(self._wanted)
        return self._types or {}

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest rows; a condition is Chroma's `where` as JSON. See `VectorStore.search`."""
        condition = None if where is None else condition_of(where, f"search {self.address}")
        with self._reporting("search"):
            collection = self._collection(self._reads() if target is None else self._place(target))
            found = collection.query(
                query_embeddings=[np.asarray(query, np.float32)], n_results=k, where=condition, include=["distances"]
            )
        return found["ids"][0], np.asarray(found["distances"][0], np.float32)

    def close(self) -> None:
        """Let go of the files or the connection."""
        self._client.close()

    # Collections

    def _collection(self, name: str) -> Any:
        # Without an embedding function: the app's own may need a key or a package.
        return self._client.get_collection(name, embedding_function=None)

    def _marked(self, name: str) -> str | None:
        """Target whose collection has a name; None if there is no such collection, or it is no target's."""
        try:
            with self._reporting("read"):
                mark = (self._collection(name).metadata or {}).get(MARK)
        except NotFound:
            return None
        return None if mark is None else str(mark)

    def _aliased(self, name: str) -> str | None:
        return None  # Chroma has no aliases

    def _exists(self, name: str) -> bool:
        try:
            with self._reporting("read"):
                self._collection(name)
        except NotFound:
            return False
        return True

    def _create(self, name: str, dim: int, metric: Metric) -> None:
        space = next(space for space, one in METRICS.items() if one == metric)
        mark = {MARK: name.removeprefix(f"{self.address.collection}_")}
        with self._reporting(f"make the collection {name} of"):
            self._client.create_collection(
                name, configuration={"hnsw": {"space": space}}, metadata=mark, embedding_function=None
            )

    def _delete(self, name: str) -> None:
        with self._reporting(f"delete the collection {name} of"):
            self._client.delete_collection(name)

    def _rename(self, name: str, to: str) -> None:
        with self._reporting(f"rename {name} to {to} in"):
            self._collection(name).modify(name=to)

    def _payloads(self, name: str, ids: Sequence[Id]) -> dict[Id, Any]:
        with self._reporting("read"):
            found = (
                self._collection(name).get(ids=list(ids), include=ROWS) if ids else {"ids": [], **dict.fromkeys(ROWS)}
            )
        rows = zip(*((found[key] or [None] * len(found["ids"])) for key in ROWS), strict=True)
        return dict(zip(found["ids"], rows, strict=True))

    def _put(self, name: str, ids: Sequence[Id], vectors: FloatArray, payloads: Sequence[Any] | None) -> None:
        with self._reporting(f"write to {name} of"):
            collection = self._collection(name)
            if payloads is None:
                collection.update(ids=list(ids), embeddings=vectors)
                return
            # An upsert merges: what the app's row has no longer would stay.
            held = self._payloads(name, ids)
            shrunk = [one for one, new in zip(ids, payloads, strict=True) if one in held and is_less(new, held[one])]
            if shrunk:
                collection.delete(ids=shrunk)
            documents, metadatas, uris = ([row[at] for row in payloads] for at in range(len(ROWS)))
            collection.upsert(
                ids=list(ids),
                embeddings=vectors,
                documents=documents if any(text is not None for text in documents) else None,
                metadatas=metadatas if any(metadatas) else None,
                uris=uris if any(text is not None for text in uris) else None,
            )

    def _erase(self, name: str, ids: Sequence[Id]) -> None:
        with self._reporting(f"delete from {name} of"):
            self._collection(name).delete(ids=list(ids))

    def _vectors(self, name: str, ids: Sequence[Id] | None) -> Iterator[ArrowTable]:
        with self._reporting("read"):
            collection = self._collection(name)
            names = collection.get(include=[])["ids"] if ids is None else list(ids)
        for start in range(0, len(names), BATCH):
            with self._reporting("read"):
                found = collection.get(ids=names[start : start + BATCH], include=["embeddings"])
            if found["ids"]:
                yield table_of(found, ANY, {})

    # The switch: two renames

    @property
    def switches_by(self) -> Switch:
        """How the app is switched."""
        return "rename"

    def _before(self, target: str) -> str:
        return f"{self.address.collection}_before_{target}"

    def _reads(self) -> str:
        name = self.address.collection
        if self._exists(name):
            return name
        with self._reporting("read"):
            names = {each.name for each in self._client.list_collections()}
        for moved in names:
            target = moved.removeprefix(f"{name}_before_")
            if target != moved and self._marked(f"{name}_{target}") == target:
                return str(moved)  # killed between the two renames
        return name

    def _place(self, target: str) -> str:
        name = self.address.collection
        return name if self.is_switched(target) else f"{name}_{target}"

    def _own(self, target: str) -> str:
        return self._before(target) if self.is_switched(target) else self._reads()

    def has(self, target: str) -> bool:
        """True if the name of the target's collection, or that of the app's own after a switch, is taken."""
        return self._exists(self._place(target)) or self._exists(self._before(target))

    def is_switched(self, target: str) -> bool:
        """True if the collection of the app's name is the target's; see `VectorStore.is_switched`."""
        return self._marked(self.address.collection) == target

    def switch(self, target: str) -> None:
        """Rename the app's collection, then the target's; see `VectorStore.switch`."""
        if self.is_switched(target):
            return
        name, place = self.address.collection, self._place(target)
        self._require(place, f"switch {self.address} to {target}")
        self.refresh(target)
        if self._exists(name):
            self._rename(name, self._before(target))
        self._rename(place, name)

    def switch_back(self, target: str) -> None:
        """Rename the target's collection, then the app's; see `VectorStore.switch_back`."""
        name, before = self.address.collection, self._before(target)
        if self.is_switched(target):
            self._require(before, f"switch {self.address} back from {target}")
            self._rename(name, f"{name}_{target}")
        if not self._exists(name):
            self._rename(before, name)

    def drop(self, target: str) -> None:
        """Delete the target's collection; see `VectorStore.drop`."""
        self._refuse_if_read(target)
        if not self._exists(self.address.collection) and self._exists(self._before(target)):
            operation = f"remove the vectors of {target} from {self.address}"
            found = "a switch that was stopped between its two renames"
            raise UpgradeError(operation, expected="no switch under way", found=found, fix="Cut over or roll back.")
        super().drop(target)
