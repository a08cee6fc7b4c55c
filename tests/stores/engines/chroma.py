"""Chroma in a folder: what an app does, without compatstore."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from compatstore.stores.store import Parts

chromadb = pytest.importorskip("chromadb")

SPACES = {"cosine": "cosine", "l2": "l2", "dot": "ip"}


class Engine:
    name = "chroma"
    parts = Parts(source="document", metadata=("lang",))
    id_types = ("string",)
    keeps_nulls = False
    refused_ids = ("",)
    odd_names = ("a.b-c_d", "x" * 500, "Docs")

    def __init__(self, folder: Path):
        self.folder = folder
        self.client = chromadb.PersistentClient(str(folder))

    def collection(self, name):
        return self.client.get_collection(name, embedding_function=None)

    def create(self, collection, dim, metric="cosine", id_type="string", rows=None, float16=False):
        configuration = {"hnsw": {"space": SPACES[metric]}}
        self.client.create_collection(collection, configuration=configuration, embedding_function=None)
        self.put(collection, rows or [])

    def load(self, collection, ids, vectors, texts):
        """Upsert rows, as many at once as Chroma takes."""
        held = self.collection(collection)
        for at in range(0, len(ids), 5_000):
            part, language = slice(at, at + 5_000), [{"lang": "en"}] * len(ids[at : at + 5_000])
            held.upsert(ids[part], vectors[part], language, texts[part])

    def scan(self, collection):
        """Stream all ids, vectors and texts by pages."""
        held = self.collection(collection)
        for at in range(0, held.count(), 5_000):
            found = held.get(limit=5_000, offset=at, include=["embeddings", "documents"])
            yield pa.array(found["ids"]), np.asarray(found["embeddings"], np.float32), pa.array(found["documents"])

    def place(self, collection, dim):
        """Make a place for second vectors."""
        self.create(f"{collection}_own", dim)

    def write(self, collection, ids, vectors, texts):
        """Write second vectors at once."""
        self.load(f"{collection}_own", ids, vectors, texts)

    def displace(self, collection):
        """Remove the place of second vectors."""
        if f"collection {collection}_own" in self.objects():
            self.client.delete_collection(f"{collection}_own")

    def address(self, collection):
        return f"chroma:{self.folder}#{collection}"

    def put(self, collection, rows):
        if not rows:
            return
        held = self.collection(collection)
        ids = [row["id"] for row in rows]
        held.delete(ids=ids)  # an upsert would keep what a row has no longer
        held.add(
            ids=ids,
            embeddings=[row["vector"] for row in rows],
            documents=[row.get("text") for row in rows],
            metadatas=[{"lang": row["lang"]} if row.get("lang") is not None else None for row in rows],
        )

    def delete(self, collection, ids):
        self.collection(collection).delete(ids=list(ids))

    def rows(self, collection, target=None):
        found = self.collection(collection).get(include=["embeddings", "documents", "metadatas"])
        rows = {
            key: {"vector": np.asarray(vector, np.float32), "text": text, "lang": (metadata or {}).get("lang")}
            for key, vector, text, metadata in zip(
                found["ids"], found["embeddings"], found["documents"], found["metadatas"], strict=True
            )
        }
        if target is not None:
            other = self.collection(f"{collection}_{target}").get(include=["embeddings"])
            vectors = dict(zip(other["ids"], np.asarray(other["embeddings"], np.float32), strict=True))
            assert set(vectors) <= set(rows)
            for key, row in rows.items():
                row["target"] = vectors.get(key)
        return rows

    def objects(self):
        return {f"collection {each.name}" for each in self.client.list_collections()}

    def close(self):
        self.client.close()
