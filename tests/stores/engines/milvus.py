"""Milvus Lite: what an app does, without compatstore."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compatstore.stores.store import Parts

pymilvus = pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")

METRICS = {"cosine": "COSINE", "l2": "L2", "dot": "IP"}
EVERYTHING = {"filter": "", "limit": 16_000, "consistency_level": "Strong"}


class Engine:
    name = "milvus"
    parts = Parts(id="key", vector="embedding", source="text", metadata=("lang",))
    keeps_nulls = False  # Milvus Lite returns zeros for them

    def __init__(self, folder: Path):
        self.path = folder / "app.db"
        self.client = pymilvus.MilvusClient(str(self.path))

    def create(self, collection, dim, metric="cosine", id_type="string", rows=None, float16=False):
        kinds = pymilvus.DataType
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=True)
        if id_type == "int64":
            schema.add_field("key", kinds.INT64, is_primary=True)
        else:
            schema.add_field("key", kinds.VARCHAR, is_primary=True, max_length=1_000)
        schema.add_field("embedding", kinds.FLOAT_VECTOR, dim=dim)
        schema.add_field("text", kinds.VARCHAR, max_length=2_000, nullable=True)
        indexes = self.client.prepare_index_params()
        indexes.add_index("embedding", index_type="AUTOINDEX", metric_type=METRICS[metric])
        self.client.create_collection(collection, schema=schema, index_params=indexes, consistency_level="Strong")
        self.put(collection, rows or [])

    def load(self, collection, ids, vectors, texts):
        """Upsert rows in batches."""
        for at in range(0, len(ids), 5_000):
            part = zip(*(values[at : at + 5_000] for values in (ids, vectors, texts)), strict=True)
            rows = [{"key": one, "embedding": vector, "text": text, "lang": "en"} for one, vector, text in part]
            self.client.upsert(collection, rows)

    def scan(self, collection):
        """Stream all ids, vectors and texts by an iterator."""
        names = {"output_fields": ["key", "embedding", "text"], "consistency_level": "Strong"}
        pages = self.client.query_iterator(collection, batch_size=5_000, **names)
        while page := pages.next():
            vectors = np.array([row["embedding"] for row in page], np.float32)
            yield pa.array([row["key"] for row in page]), vectors, pa.array([row["text"] for row in page])
        pages.close()

    def place(self, collection, dim):
        """Make a place for second vectors."""
        self.create(f"{collection}_own", dim)

    def write(self, collection, ids, vectors, texts):
        """Write second vectors at once."""
        self.load(f"{collection}_own", ids, vectors, texts)

    def displace(self, collection):
        """Remove the place of second vectors."""
        if self.client.has_collection(f"{collection}_own"):
            self.client.drop_collection(f"{collection}_own")

    def address(self, collection):
        return f"milvus:{self.path}#{collection}"

    def put(self, collection, rows):
        written = []
        for row in rows:
            vector = np.asarray(row["vector"], np.float32).tolist()
            lang = {} if row.get("lang") is None else {"lang": row["lang"]}
            written.append({"key": row["id"], "embedding": vector, "text": row.get("text"), **lang})
        for start in range(0, len(written), 5_000):
            self.client.upsert(collection, written[start : start + 5_000])

    def delete(self, collection, ids):
        self.client.delete(collection, ids=list(ids))

    def rows(self, collection, target=None):
        found = self.client.query(collection, output_fields=["*"], **EVERYTHING)
        rows = {
            row["key"]: {
                "vector": np.array(row["embedding"], np.float32),
                "text": row["text"],
                "lang": row.get("lang"),
            }
            for row in found
        }
        if target is not None:
            other = self.client.query(f"{collection}_{target}", output_fields=["key", "embedding"], **EVERYTHING)
            vectors = {row["key"]: np.array(row["embedding"], np.float32) for row in other}
            assert set(vectors) <= set(rows)
            for key, row in rows.items():
                row["target"] = vectors.get(key)
        return rows

    def objects(self):
        names = self.client.list_collections()
        aliases = {f"alias {alias}" for name in names for alias in self.client.list_aliases(name)["aliases"]}
        return {*names, *aliases}

    def close(self):
        self.client.close()
