"""Milvus: `milvus:PATH.db#collection` of Milvus Lite, `milvus+http://HOST:PORT#collection` of a server.

A target is a second collection with the schema of the app's and vectors of another length. The app is switched to it by
an alias, in one step, if it reads through one; otherwise it names the second collection itself.

Environment: MILVUS_TOKEN ("user:password", or an API key), MILVUS_DB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from compatstore import next_step
from compatstore.arrays import ArrowTable, FloatArray, Id
from compatstore.boundary import shown
from compatstore.errors import InvalidInput, NotFound, load_extra
from compatstore.stores.address import Address
from compatstore.stores.client_errors import reporting
from compatstore.stores.milvus_rows import DENSE, METRICS, TYPES, connect, literal, metric_type, table_of
from compatstore.stores.schemaless import SAMPLE, copied, named, require_source, types_of
from compatstore.stores.second_collection import AFTER_SWITCH, ANY, SecondCollection
from compatstore.stores.store import Description, Parts
from compatstore.versions import Metric

PAGE = 1_000  # rows of one request
# A page is the first rows by key, of all segments: an iterator's own options, whose cursor leaves quotes in keys.
ORDERED = {"iterator": "True", "reduce_stop_for_best": "True"}
MADE_IDS = "Milvus makes the ids of this collection: in the target's collection an app names them itself."


class Milvus(SecondCollection):
    """A collection of Milvus; see `VectorStore`.

    Args:
        address: Of the collection, or of an alias of it.

    Raises:
        NotFound: There is no such file.
        StorageError: The server cannot be reached.
    """

    scheme: ClassVar[str] = "milvus"

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._pymilvus = load_extra("pymilvus", "milvus")
        self._types: dict[str, str] | None = None
        self._client, self._secrets = connect(address)

    def _reporting(self, verb: str) -> AbstractContextManager[None]:
        return reporting(f"{verb} {self.address}", secrets=self._secrets)

    # The schema

    def _schema(self, name: str) -> dict[str, Any]:
        """Schema of a collection, which is loaded then.

        Raises:
            NotFound: There is none of that name.
        """
        self._require(name, f"read {self.address}")
        with self._reporting("describe"):
            self._client.load_collection(name)  # a no-op for one that is loaded, as that of a running app is
            schema: dict[str, Any] = self._client.describe_collection(name)
        return schema

    @cached_property
    def _key(self) -> dict[str, Any]:
        """Field of the ids."""
        fields = self._schema(self._reads())["fields"]
        key: dict[str, Any] = next(field for field in fields if field.get("is_primary"))
        return key

    @property
    def _key_name(self) -> str:
        return str(self._key["name"])

    def _vector(self, wanted: str = "") -> str:
        """Name of the vectors' field: the wanted one, or the only one."""
        wanted, operation = wanted or self._wanted.vector, f"describe {self.address}"
        dense = [field["name"] for field in self._schema(self._reads())["fields"] if field["type"].name in DENSE]
        if wanted and wanted not in dense:
            found = f"{shown(wanted)}, among {', '.join(dense)}"
            raise NotFound(operation, expected="a field of float vectors", found=found)
        if not wanted and len(dense) != 1:
            fix = f"Name the one to upgrade: {next_step.option('vector')}"
            raise InvalidInput(
                operation, expected="one field of float vectors", found=", ".join(dense) or "none", fix=fix
            )
        return wanted or str(dense[0])

    def _metric(self, name: str, vector: str) -> Metric:
        with self._reporting("describe"):
            indexes = self._client.list_indexes(name, field_name=vector)
            found = str(self._client.describe_index(name, indexes[0])["metric_type"]) if indexes else "no index"
        if found not in METRICS:
            expected = f"an index on {vector} with a metric of {', '.join(METRICS)}"
            raise InvalidInput(f"describe {self.address}", expected=expected, found=found)
        return METRICS[found]

    def _sampled(self, schema: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
        """Types of what a row holds besides its id and vectors, and notes on what cannot be copied."""
        types = {field["name"]: TYPES.get(field["type"].name, "") for field in schema["fields"]}
        left_out = [
            f"{field['name']!r} ({field['type'].name.lower()})"
            for field in schema["fields"]
            if not types[field["name"]] and not field["type"].name.endswith("VECTOR")
        ]
        notes = [f"Metadata that cannot be copied: {', '.join(left_out)}."] if left_out else []
        named = {name: kind for name, kind in types.items() if kind and name != self._key_name}
        if not schema.get("enable_dynamic_field"):
            return named, notes
        rows = self._query(schema["collection_name"], "", ["*"], limit=SAMPLE)
        free, more = types_of({key: value for key, value in row.items() if key not in types} for row in rows)
        return {**named, **free}, [*notes, *more]

    def describe(self, wanted: Parts = ANY) -> Description:
        """Describe the collection; see `VectorStore.describe`."""
        name, vector = self._reads(), self._vector(wanted.vector)
        if wanted.id not in ("", self._key_name):
            raise NotFound(f"describe {self.address}", expected=repr(self._key_name), found=repr(wanted.id))
        self._wanted = replace(wanted, id=self._key_name, vector=vector)
        schema, switch = self._schema(name), self.switches_by
        self._types, notes = self._sampled(schema)
        metadata, left_out = copied(self._types)
        dim = next(int(field["params"]["dim"]) for field in schema["fields"] if field["name"] == vector)
        id_type = "string" if self._key["type"].name == "VARCHAR" else "int64"
        rows = int(self._query(name, "", ["count(*)"])[0]["count(*)"])
        free = named(wanted) if schema.get("enable_dynamic_field") and not rows else {}
        return Description(
            address=str(self.address),
            parts=Parts(self._key_name, vector, None, metadata),
            id_type="string" if id_type == "string" else "int64",
            dim=dim,
            metric=self._metric(name, vector),
            rows=rows,
            columns={self._key_name: id_type, vector: f"float32[{dim}]", **free, **self._types},
            beside="collection",
            switch=switch,
            is_atomic=bool(switch),
            is_conditional=False,
            notes=(*notes, *left_out, *([MADE_IDS] if schema["auto_id"] else []), AFTER_SWITCH),
        )

    # Rows

    def _query(self, name: str, condition: str, fields: Sequence[str], **options: Any) -> list[dict[str, Any]]:
        with self._reporting("read"):
            return list(
                self._client.query(
                    name, filter=condition, output_fields=list(fields), consistency_level="Strong", **options
                )
            )

    def _pages(self, name: str, ids: Sequence[Id] | None, fields: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        """Rows of a collection: all, by a cursor over their keys, which writes of the app do not shift; or some."""
        if ids is not None:
            for start in range(0, len(ids), PAGE):
                page = self._query(name, self._among(ids[start : start + PAGE]), fields)
                if page:
                    yield page
            return
        condition = ""
        while page := self._query(name, condition, fields, limit=PAGE, **ORDERED):
            yield page
            condition = f"{self._key_name} > {literal(page[-1][self._key_name])}"

    def _among(self, ids: Sequence[Id]) -> str:
        return f"{self._key_name} in [{', '.join(map(literal, ids))}]"

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream all rows; see `VectorStore.scan`."""
        yield from self._tables(None, parts)

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some rows; see `VectorStore.read`."""
        tables = list(self._tables(ids, parts))
        return pa.concat_tables(tables) if tables else self._table([], self._reads(), self._vector(parts.vector), parts)

    def _tables(self, ids: Sequence[Id] | None, parts: Parts) -> Iterator[ArrowTable]:
        name, vector, source = self._reads(), self._vector(parts.vector), parts.source
        if self._types is None:
            self._types, _ = self._sampled(self._schema(name))
        fields = dict.fromkeys([self._key_name, vector, *([source] if source else []), *parts.metadata])
        for page in self._pages(name, ids, list(fields)):
            require_source(parts, self._types, page, f"read {self.address}")
            yield self._table(page, name, vector, parts)

    def _table(self, page: Sequence[dict[str, Any]], name: str, vector: str, parts: Parts) -> ArrowTable:
        field = next(each for each in self._schema(name)["fields"] if each["name"] == vector)
        return table_of(page, self._key, field, parts, self._types or {})

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest rows; a condition is a filter expression of Milvus. See `VectorStore.search`."""
        name, vector = self._reads() if target is None else self._place(target), self._vector()
        metric = self._metric(name, vector)
        with self._reporting("search"):
            hits = self._client.search(
                name,
                data=[np.asarray(query, np.float32).tolist()],
                anns_field=vector,
                limit=k,
                filter=where or "",
                consistency_level="Strong",
            )[0]
        scores = np.array([hit["distance"] for hit in hits], np.float32)
        return [hit[self._key_name] for hit in hits], scores if metric == "l2" else 1 - scores

    def close(self) -> None:
        """Let go of the file or the connection."""
        self._client.close()

    # Collections

    def _aliased(self, name: str) -> str | None:
        if not self._exists(name):
            return None
        with self._reporting("describe"):
            real = str(self._client.describe_collection(name)["collection_name"])
        return None if real == name else real

    def _exists(self, name: str) -> bool:
        with self._reporting("describe"):
            return bool(self._client.has_collection(name))

    def _create(self, name: str, dim: int, metric: Metric) -> None:
        app, vector = self._reads(), self._vector()
        described = self._schema(app)
        with self._reporting(f"make the collection {name} beside"):
            schema = self._pymilvus.CollectionSchema.construct_from_dict({**described, "auto_id": False})
            schema.auto_id = False
            indexes = self._client.prepare_index_params()
            for field in schema.fields:
                if field.is_primary:
                    field.auto_id = False  # the ids are those of the app's collection
                if field.name == vector:
                    field.params["dim"] = dim
                    indexes.add_index(vector, index_type="AUTOINDEX", metric_type=metric_type(metric))
                elif field.dtype.name.endswith("VECTOR"):
                    for index in self._client.list_indexes(app, field_name=field.name):
                        settings = self._client.describe_index(app, index)
                        indexes.add_index(field.name, index_type="AUTOINDEX", metric_type=settings["metric_type"])
            level = described.get("consistency_level", "Strong")
            self._client.create_collection(name, schema=schema, index_params=indexes, consistency_level=level)

    def _delete(self, name: str) -> None:
        with self._reporting(f"delete the collection {name} of"):
            self._client.drop_collection(name)

    def _point_alias(self, name: str) -> None:
        with self._reporting(f"let the alias name {name} of"):
            self._client.alter_alias(collection_name=name, alias=self.address.collection)

    def _payloads(self, name: str, ids: Sequence[Id]) -> dict[Id, Any]:
        vector = self._vector()
        return {
            row[self._key_name]: {key: value for key, value in row.items() if key != vector}
            for page in self._pages(name, ids, ["*"])
            for row in page
        }

    def _put(self, name: str, ids: Sequence[Id], vectors: FloatArray, payloads: Sequence[Any] | None) -> None:
        if payloads is None:
            held = self._payloads(name, ids)
            there = [row for row, one in enumerate(ids) if one in held]
            payloads, vectors = [held[ids[row]] for row in there], vectors[there]
        vector = self._vector()
        with self._reporting(f"write to {name} of"):
            for start in range(0, len(payloads), PAGE):
                part = range(start, min(start + PAGE, len(payloads)))
                self._client.upsert(name, [{**payloads[row], vector: vectors[row].tolist()} for row in part])

    def _erase(self, name: str, ids: Sequence[Id]) -> None:
        with self._reporting(f"delete from {name} of"):
            for start in range(0, len(ids), PAGE):
                self._client.delete(name, filter=self._among(ids[start : start + PAGE]))

    def _vectors(self, name: str, ids: Sequence[Id] | None) -> Iterator[ArrowTable]:
        vector = self._vector()
        self._require(name, f"read {self.address}")
        for page in self._pages(name, ids, [self._key_name, vector]):
            yield self._table(page, name, vector, ANY)
