"""Qdrant's local mode with named vectors: what an app does, without compatstore.

A folder is for one client at a time. App and store share the engine's client here, as the clients of a server share it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compatstore.stores.store import Parts

qdrant_client = pytest.importorskip("qdrant_client")
models = qdrant_client.models
Client = qdrant_client.QdrantClient

DISTANCES = {"cosine": "Cosine", "l2": "Euclid", "dot": "Dot"}


class Shared(Client):
    """A client that stays open when a store lets go of it."""

    def close(self, **options):
        pass


class Engine:
    name = "qdrant"
    vector = "text"  # name of the vector; "" for one without a name
    parts = Parts(vector="text", source="text", metadata=("lang",))
    text_ids = "uuid"
    types_ids_by_rows = True
    odd_names = ("a b", "x" * 200, "ü-漢字", "a.b", "a;b'")

    def __init__(self, folder: Path):
        self.folder = folder
        self.client = Shared(path=str(folder))
        qdrant_client.QdrantClient = lambda path=None, **options: self.client if path else Client(**options)

    def create(self, collection, dim, metric="cosine", id_type="string", rows=None, float16=False):
        datatype = models.Datatype.FLOAT16 if float16 else None
        settings = models.VectorParams(size=dim, distance=DISTANCES[metric], datatype=datatype)
        self.client.create_collection(collection, vectors_config={self.vector: settings} if self.vector else settings)
        self.put(collection, rows or [])

    def load(self, collection, ids, vectors, texts):
        """Upsert points in batches."""
        for at in range(0, len(ids), 1_000):
            part = slice(at, at + 1_000)
            payloads = [{"text": text, "lang": "en"} for text in texts[part]]
            named = {self.vector: vectors[part].tolist()}
            self.client.upsert(collection, models.Batch(ids=ids[part], vectors=named, payloads=payloads))

    def scan(self, collection):
        """Stream all ids, vectors and texts by pages."""
        after = None
        while True:
            page, after = self.client.scroll(collection, limit=5_000, offset=after, with_vectors=True)
            vectors = np.array([point.vector[self.vector] for point in page], np.float32)
            yield [point.id for point in page], vectors, pa.array([point.payload["text"] for point in page])
            if after is None:
                return

    def place(self, collection, dim):
        """Make a place for second vectors."""
        settings = models.DenseVectorNameConfig(dense=models.DenseVectorConfig(size=dim, distance="Cosine"))
        self.client.create_vector_name(collection, "own", settings)

    def write(self, collection, ids, vectors, texts):
        """Write second vectors at once."""
        for at in range(0, len(ids), 1_000):
            part = zip(ids[at : at + 1_000], vectors[at : at + 1_000].tolist(), strict=True)
            points = [models.PointVectors(id=one, vector={"own": vector}) for one, vector in part]
            self.client.update_vectors(collection, points)

    def displace(self, collection):
        """Remove the place of second vectors."""
        if f"{collection} own" in self.objects():
            self.client.delete_vector_name(collection, "own")

    def address(self, collection):
        return f"qdrant:{self.folder}#{collection}"

    def put(self, collection, rows):
        points = []
        for row in rows:
            payload = {key: row[key] for key in ("text", "lang") if row.get(key) is not None}
            vector = None if row.get("vector") is None else np.asarray(row["vector"], np.float32).tolist()
            named = {} if vector is None else {self.vector: vector} if self.vector else vector
            points.append(models.PointStruct(id=row["id"], vector=named, payload=payload))
        if points:
            self.client.upsert(collection, points)

    def delete(self, collection, ids):
        self.client.delete(collection, models.PointIdsList(points=list(ids)))

    def points(self, collection):
        return self.client.scroll(collection, limit=100_000, with_vectors=True)[0]

    def rows(self, collection, target=None):
        rows = {}
        for point in self.points(collection):
            payload = point.payload or {}
            row = {"vector": self.of(point, self.vector), "text": payload.get("text"), "lang": payload.get("lang")}
            rows[point.id] = row
            if target is not None:
                row["target"] = self.of(point, f"{self.vector}_{target}")
        return rows

    def of(self, point, name):
        vectors = point.vector if isinstance(point.vector, dict) else {"": point.vector}
        return None if vectors.get(name) is None else np.asarray(vectors[name], np.float32)

    def objects(self):
        names = [each.name for each in self.client.get_collections().collections]
        aliases = {f"alias {each.alias_name} of {each.collection_name}" for each in self.client.get_aliases().aliases}
        vectors = set()
        for name in names:
            settings = self.client.get_collection(name).config.params.vectors
            vectors |= {f"{name} {key}" for key in (settings if isinstance(settings, dict) else {"": settings})}
        return {*names, *aliases, *vectors}

    def close(self):
        qdrant_client.QdrantClient = Client
        Client.close(self.client)
