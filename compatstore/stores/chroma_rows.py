"""Chroma's client, and its rows as tables of a scan."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable
from compatstore.errors import InvalidInput, NotFound, load_extra
from compatstore.stores.address import Address
from compatstore.stores.client_errors import reporting
from compatstore.stores.schemaless import column
from compatstore.stores.store import ID, SOURCE, VECTOR, Parts, vector_column
from compatstore.versions import Metric

FILE = "chroma.sqlite3"
EMBEDDING, DOCUMENT, URI = "embedding", "document", "uri"
METRICS: dict[str, Metric] = {"l2": "l2", "cosine": "cosine", "ip": "dot"}
ROWS = ["documents", "metadatas", "uris"]


def connect(address: Address) -> tuple[Any, tuple[str, ...]]:
    """A client, and the secrets that it knows.

    Raises:
        NotFound: There is no database in the folder.
        StorageError: The server cannot be reached.
    """
    chroma = load_extra("chromadb", "chroma")
    names = {
        "tenant": os.environ.get("CHROMA_TENANT", chroma.config.DEFAULT_TENANT),
        "database": os.environ.get("CHROMA_DATABASE", chroma.config.DEFAULT_DATABASE),
    }
    if not address.is_remote:
        if not (Path(address.place) / FILE).is_file():
            raise NotFound(f"open {address}", expected="a folder of Chroma", found=f"no {FILE} there")
        with reporting(f"open {address}"):
            return chroma.PersistentClient(address.place, **names), ()
    url, headers, token = urlsplit(address.place), dict[str, str](), os.environ.get("CHROMA_TOKEN", "")
    password = unquote(url.password or "")
    if token:
        headers = {"Authorization": f"Bearer {token}", "x-chroma-token": token}
    elif password:
        login = base64.b64encode(f"{unquote(url.username or '')}:{password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}"}
    ssl, secrets = url.scheme == "https", (token, password)
    with reporting(f"open {address}", secrets=secrets):
        port = url.port or (443 if ssl else 8000)
        return chroma.HttpClient(url.hostname, port, ssl=ssl, headers=headers, **names), secrets


def metric_of(collection: Any, operation: str) -> Metric:
    """Metric of a collection."""
    settings = collection.configuration_json
    index = settings.get("hnsw") or settings.get("spann") or {}
    space = index.get("space") or (collection.metadata or {}).get("hnsw:space", "l2")
    if space not in METRICS:
        raise InvalidInput(operation, expected=f"a space of {', '.join(METRICS)}", found=repr(space))
    return METRICS[space]


def table_of(found: Mapping[str, Any], parts: Parts, types: Mapping[str, str]) -> ArrowTable:
    """Rows of a `get` as a table of a scan."""
    ids, vectors = found["ids"], found["embeddings"]
    rows = np.asarray(vectors, np.float32) if ids else np.zeros((0, 1), np.float32)  # an empty one has no length
    columns = {ID: pa.array(ids, pa.string()), VECTOR: vector_column(rows, rows.shape[1])}
    metadatas = [row or {} for row in found.get("metadatas") or [None] * len(ids)]
    texts = {DOCUMENT: found.get("documents"), URI: found.get("uris")}
    names = [*([(SOURCE, parts.source)] if parts.source else []), *((name, name) for name in parts.metadata)]
    for name, of in names:
        if of in texts:
            columns[name] = pa.array(texts[of] or [None] * len(ids), pa.string())
        else:
            kind = "string" if name == SOURCE else types.get(of, "string")
            columns[name] = column([row.get(of) for row in metadatas], kind)
    return pa.table(columns)


def is_less(new: Sequence[Any], held: Sequence[Any]) -> bool:
    """True if a row's document, metadata or URI lacks something that is held."""
    (document, metadata, uri), (document_held, metadata_held, uri_held) = new, held
    is_shorter = not set(metadata_held or {}) <= set(metadata or {})
    return is_shorter or (document is None and document_held is not None) or (uri is None and uri_held is not None)


def condition_of(where: str, operation: str) -> Any:
    """A condition of a search."""
    try:
        return json.loads(where)
    except ValueError:
        expected = 'a condition of Chroma as JSON, such as {"lang": "de"}'
        raise InvalidInput(operation, expected=expected, found=repr(where)) from None
