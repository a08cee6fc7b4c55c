"""Points of a collection of Qdrant: connect, describe, scan, read and search.

Ids are integers or UUIDs. Vectors are read as Qdrant returns them: it normalises those of a cosine collection when it
stores them. The second place of a target is in `qdrant.py`.

Environment: QDRANT_API_KEY.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.boundary import shown
from compatstore.errors import InvalidInput, NotFound, StorageError, load_extra
from compatstore.stores.address import Address
from compatstore.stores.client_errors import reporting
from compatstore.stores.schemaless import SAMPLE, column, copied, named, require_source, types_of
from compatstore.stores.store import ID, IN_TARGET, SOURCE, VECTOR, Description, Parts, vector_column
from compatstore.versions import Metric

META = "meta.json"  # of a folder of the local mode
PAGE = 1_000  # points of one request
METRICS: dict[str, Metric] = {"Cosine": "cosine", "Euclid": "l2", "Dot": "dot"}
NIL = "00000000-0000-0000-0000-000000000000"  # the first of all UUIDs; integers come before it
NORMALISED = "Qdrant normalises vectors of a cosine collection: lengths are those of what it returns."
EMPTY = "The collection is empty, and its ids are taken for UUIDs: mirror one of integers when it has rows."
ONE_CLIENT = "A folder of Qdrant is for one client at a time: stop the app meanwhile, or run a Qdrant server."


def connect(address: Address) -> tuple[Any, tuple[str, ...]]:
    """A client, and the secrets that it knows.

    Raises:
        NotFound: There is no folder of Qdrant.
        StorageError: Another client holds the folder.
    """
    qdrant = load_extra("qdrant_client", "qdrant")
    if not address.is_remote:
        if not (Path(address.place) / META).is_file():
            found = f"no {META} there"
            raise NotFound(f"open {address}", expected="a folder of Qdrant's local mode", found=found)
        with reporting(f"open {address}"):
            return qdrant.QdrantClient(path=address.place), ()
    url = urlsplit(address.place)
    key, password = os.environ.get("QDRANT_API_KEY"), unquote(url.password or "")
    port = url.port or (443 if url.scheme == "https" else 6333)
    plain = urlunsplit((url.scheme, f"{url.hostname}:{port}", url.path, "", ""))
    login = (unquote(url.username or ""), password) if password else None
    options: dict[str, Any] = {"auth": login} if login else {}
    with reporting(f"open {address}", secrets=(key or "", password)):
        # The check of versions asks the server in a thread of its own, whose failure is a warning.
        client = qdrant.QdrantClient(url=plain, api_key=key, timeout=60, check_compatibility=False, **options)
    return client, (key or "", password)


class QdrantPoints:
    """A collection of Qdrant; the place that the app reads is `_reads()`, a collection and a vector's name.

    Args:
        address: Of the collection, or of an alias of it.
        client: Connected.
        secrets: That no message may hold.
    """

    def __init__(self, address: Address, client: Any, secrets: tuple[str, ...]) -> None:
        self._models = load_extra("qdrant_client.models", "qdrant")
        self._at, self._client, self._secrets = address, client, secrets
        self._types: dict[str, str] | None = None
        self._id_type: str | None = None

    def _reporting(self, verb: str) -> AbstractContextManager[None]:
        return reporting(f"{verb} {self._at}", secrets=self._secrets)

    def _parameters(self, name: str) -> Any:
        """Settings of a collection.

        Raises:
            NotFound: There is none of that name.
        """
        with self._reporting("describe"):
            if not self._client.collection_exists(name) and self._alias_of(name) is None:
                found = "none of that name"
                raise NotFound(f"describe {self._at}", expected=f"a collection {shown(name)}", found=found)
            return self._client.get_collection(name).config.params

    def _alias_of(self, name: str) -> str | None:
        with self._reporting("read the aliases of"):
            aliases = {each.alias_name: each.collection_name for each in self._client.get_aliases().aliases}
        return aliases.get(name)

    def dense(self, name: str) -> dict[str, Any]:
        """Name to settings of the dense vectors of a collection; "" is that of a collection with one alone."""
        vectors = self._parameters(name).vectors
        named = vectors if isinstance(vectors, dict) else {} if vectors is None else {"": vectors}
        return {key: each for key, each in named.items() if each.multivector_config is None}

    def _named(self, name: str, wanted: str) -> str:
        """Name of the vector to read: the wanted one, or the only one.

        Raises:
            NotFound: There is none of that name.
            InvalidInput: There are several, and none is wanted.
        """
        dense, operation = self.dense(name), f"describe {self._at}"
        if wanted and wanted not in dense:
            found = f"{shown(wanted)}, among {', '.join(map(repr, dense))}"
            raise NotFound(operation, expected="a dense vector of the collection", found=found)
        if wanted:
            return wanted
        if len(dense) != 1:
            raise InvalidInput(
                operation,
                expected="one dense vector",
                found=", ".join(dense) or "none",
                fix=f"Name the one to upgrade: {next_step.option('vector')}",
            )
        return next(iter(dense))

    def _describe(self, place: tuple[str, str], wanted: Parts) -> dict[str, Any]:
        """What a description says of the points of a place."""
        name, vector = place
        if wanted.id not in ("", ID):
            raise NotFound(f"describe {self._at}", expected=repr(ID), found=repr(wanted.id))
        settings = self.dense(name)[vector]
        metric, operation = str(settings.distance.value), f"describe {self._at}"
        if metric not in METRICS:
            raise InvalidInput(operation, expected=f"a distance of {', '.join(METRICS)}", found=metric)
        with self._reporting("describe"):
            sample, _ = self._client.scroll(name, limit=SAMPLE, with_payload=True, with_vectors=False)
            rows = self._client.count(name, exact=True).count
        shown_as = f"{VECTOR} {vector}".strip()  # a payload may have a key of the same name
        self._types, notes = types_of((point.payload or {} for point in sample), (ID, shown_as))
        self._id_type = None
        metadata, left_out = copied(self._types)
        if METRICS[metric] == "cosine":
            notes = [NORMALISED, *notes]
        if not self._at.is_remote:
            notes = [ONE_CLIENT, *notes]
        if not rows:
            notes = [EMPTY, *notes]
        return {
            "address": str(self._at),
            "parts": Parts("", vector, None, metadata),
            "id_type": self._ids_of(name),
            "dim": settings.size,
            "metric": METRICS[metric],
            "rows": rows,
            "columns": {
                ID: self._ids_of(name),
                shown_as: f"float32[{settings.size}]",
                **self._types,
                **({} if rows else named(wanted)),
            },
            "is_conditional": False,
            "notes": (*notes, *left_out),
        }

    def _ids_of(self, name: str) -> str:
        """Type of the ids: "int64" if all are integers, else "string"."""
        if self._id_type is None:
            with self._reporting("read"):
                uuids, _ = self._client.scroll(name, limit=1, offset=NIL, with_payload=False)
                first, _ = self._client.scroll(name, limit=1, with_payload=False)
            self._id_type = "string" if uuids or not first else "int64"
        return self._id_type

    @staticmethod
    def _native(ids: Sequence[Id]) -> list[Id]:
        """Ids as Qdrant has them: texts of digits are integers."""
        return [int(one) if isinstance(one, str) and one.isdecimal() else one for one in ids]

    def _scroll(self, name: str, condition: Any, payload: bool, vectors: Any) -> Iterator[list[Any]]:
        """Pages of points by id: rows that are deleted or added meanwhile shift none."""
        offset = None
        while True:
            with self._reporting("read"):
                page, offset = self._client.scroll(
                    name,
                    scroll_filter=condition,
                    limit=PAGE,
                    offset=offset,
                    with_payload=payload,
                    with_vectors=vectors,
                )
            if page:
                yield page
            if offset is None:
                return

    def _retrieve(self, name: str, ids: Sequence[Id], payload: bool, vectors: Any) -> Iterator[list[Any]]:
        native = self._native(ids)
        for start in range(0, len(native), PAGE):
            with self._reporting("read"):
                page = self._client.retrieve(
                    name, native[start : start + PAGE], with_payload=payload, with_vectors=vectors
                )
            if page:
                yield page

    def _table(self, points: Sequence[Any], place: tuple[str, str], parts: Parts, target: str | None) -> ArrowTable:
        """Points as a table of a scan."""
        name, vector = place
        types = self._types if self._types is not None else self._sampled(name)
        columns = dict(self._pairs(points, name, vector, self.dense(name)[vector].size))
        payloads = [point.payload or {} for point in points]
        if parts.source:
            require_source(parts, types, payloads, f"read {self._at}")
            columns[SOURCE] = column([row.get(parts.source) for row in payloads], "string")
        for key in parts.metadata:
            columns[key] = column([row.get(key) for row in payloads], types.get(key, "string"))
        if target is not None:
            columns[IN_TARGET] = pa.array([_vector(point, target) is not None for point in points], pa.bool_())
        return pa.table(columns)

    def _sampled(self, name: str) -> dict[str, str]:
        with self._reporting("read"):
            sample, _ = self._client.scroll(name, limit=SAMPLE, with_payload=True, with_vectors=False)
        self._types, _ = types_of(point.payload or {} for point in sample)
        return self._types

    def _pairs(self, points: Sequence[Any], name: str, vector: str, dim: int) -> dict[str, Any]:
        """Columns `id` and `vector` of points."""
        is_text = self._ids_of(name) == "string"
        vectors = [_vector(point, vector) for point in points]
        present = [one is not None for one in vectors]
        rows = np.array([np.zeros(dim) if one is None else one for one in vectors], np.float32).reshape(-1, dim)
        ids = [str(point.id) if is_text else point.id for point in points]
        try:
            column_of_ids = pa.array(ids, pa.string() if is_text else pa.int64())
        except (OverflowError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            expected = "ids that are integers below 2**63, or UUIDs from the first row on"
            raise StorageError(f"read {self._at}", expected=expected, found=str(error)) from None
        return {ID: column_of_ids, VECTOR: vector_column(rows, dim, None if all(present) else present)}

    def _search(
        self, place: tuple[str, str], query: FloatArray, k: int, where: str | None
    ) -> tuple[list[Id], FloatArray]:
        """Nearest points; squared distances of l2, 1 minus the similarity of others."""
        name, vector = place
        settings = self.dense(name).get(vector)
        if settings is None:
            raise NotFound(f"search {self._at}", expected=f"a vector {vector!r}", found="none of that name")
        condition = None
        if where is not None:
            try:
                condition = self._models.Filter.model_validate_json(where)
            except ValueError as error:
                expected = "a filter of Qdrant as JSON"
                raise InvalidInput(f"search {self._at}", expected=expected, found=str(error)) from None
        with self._reporting("search"):
            found = self._client.query_points(
                name,
                query=np.asarray(query, np.float32).tolist(),
                using=vector or None,
                limit=k,
                query_filter=condition,
                with_payload=False,
            ).points
        scores = np.array([point.score for point in found], np.float32)
        is_text = self._ids_of(name) == "string"
        ids = [str(point.id) if is_text else point.id for point in found]
        return ids, scores**2 if METRICS[settings.distance.value] == "l2" else 1 - scores

    def close(self) -> None:
        """Let go of the folder or the connection."""
        self._client.close()


def _vector(point: Any, name: str) -> Any:
    """A vector of a point; None if it has none of that name."""
    vectors = point.vector
    if isinstance(vectors, dict):
        return vectors.get(name)
    return vectors if name == "" and vectors else None


def distance_of(metric: Metric) -> str:
    """Qdrant's name of a metric."""
    return next(name for name, one in METRICS.items() if one == metric)


def description(values: dict[str, Any], **more: Any) -> Description:
    """A description of what points and their second place say."""
    notes = (*values.pop("notes"), *more.pop("notes", ()))
    return Description(**values, **more, notes=notes)
