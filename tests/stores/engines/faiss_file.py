"""FAISS as an app keeps it: an index in a file, and a Parquet file of ids and texts in the order of its vectors."""

from __future__ import annotations

import os

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from compatstore.stores.store import Parts

SUFFIX = ".ids.parquet"


class Engine:
    name = "faiss"
    parts = Parts(source="text", metadata=("lang",))
    keeps_nulls = False
    pauses = (0.2, 0.5)  # a write is a whole file
    odd_names = ("of my 'notes'", "注釈")

    def __init__(self, folder):
        self.folder = folder

    def create(self, collection, dim, metric="cosine", id_type="string", rows=None, float16=False):
        number = faiss.METRIC_L2 if metric == "l2" else faiss.METRIC_INNER_PRODUCT
        index = faiss.index_factory(dim, "SQfp16" if float16 else "Flat", number)
        rows = [row for row in rows or [] if row["vector"] is not None]
        self._write(collection, index, rows, pa.int64() if id_type == "int64" else pa.string())

    def load(self, collection, ids, vectors, texts):
        """Write an index and its ids at once."""
        index = faiss.IndexFlatIP(vectors.shape[1])
        index.add(vectors)
        table = pa.table({"id": ids, "text": texts, "lang": pa.array(["en"] * len(ids))})
        pq.write_table(table, f"{self._path(collection)}{SUFFIX}")
        faiss.write_index(index, str(self._path(collection)))

    def scan(self, collection):
        """Read all ids, vectors and texts."""
        index, table = self._read(collection)
        yield table["id"], index.reconstruct_n(0, index.ntotal), table["text"]

    def place(self, collection, dim):
        """Make a place for second vectors: a file needs none."""

    def write(self, collection, ids, vectors, texts):
        """Write second vectors at once."""
        self.load(f"{collection}_own", ids, vectors, texts)

    def displace(self, collection):
        """Remove the place of second vectors."""
        for path in self.folder.glob(f"{collection}_own.*"):
            path.unlink()

    def address(self, collection):
        return f"faiss:{self._path(collection)}"

    def put(self, collection, rows):
        kept = self.rows(collection) | {row["id"]: row for row in rows if row["vector"] is not None}
        self._rewrite(collection, kept)

    def delete(self, collection, ids):
        kept = {key: row for key, row in self.rows(collection).items() if key not in ids}
        self._rewrite(collection, kept)

    def rows(self, collection, target=None):
        index, table = self._read(collection)
        vectors = index.reconstruct_n(0, index.ntotal).tolist()
        rows = {row["id"]: {**row, "vector": vector} for row, vector in zip(table.to_pylist(), vectors, strict=True)}
        if target is not None:
            index, table = self._read(f"{collection}_{target}")
            beside = dict(zip(table["id"].to_pylist(), index.reconstruct_n(0, index.ntotal).tolist(), strict=True))
            rows = {key: {**row, "target": beside.get(key)} for key, row in rows.items()}
        return rows

    def objects(self):
        return {path.name for path in self.folder.iterdir()}

    def close(self):
        pass

    def _path(self, collection):
        return self.folder / f"{collection}.faiss"

    def _read(self, collection):
        path = self._path(collection)
        return faiss.read_index(str(path)), pq.read_table(f"{path}{SUFFIX}")

    def _rewrite(self, collection, rows):
        index, table = self._read(collection)
        index.reset()
        self._write(collection, index, list(rows.values()), table.schema.field("id").type)

    def _write(self, collection, index, rows, id_type):
        if rows:
            vectors = np.array([row["vector"] for row in rows], np.float32)
            index.train(vectors)
            index.add(vectors)
        columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in ("text", "lang")}
        table = pa.table({"id": pa.array([row["id"] for row in rows], id_type), **columns})
        path = self._path(collection)
        pq.write_table(table, f"{path}{SUFFIX}.new")
        faiss.write_index(index, f"{path}.new")
        os.replace(f"{path}{SUFFIX}.new", f"{path}{SUFFIX}")
        os.replace(f"{path}.new", path)
