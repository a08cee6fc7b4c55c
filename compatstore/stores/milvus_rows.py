"""Milvus's client, keys in its expressions, and its rows as tables of a scan."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, Id
from compatstore.errors import NotFound, load_extra
from compatstore.stores.address import Address
from compatstore.stores.client_errors import reporting
from compatstore.stores.schemaless import column
from compatstore.stores.store import ID, SOURCE, VECTOR, Parts, vector_column
from compatstore.versions import Metric

METRICS: dict[str, Metric] = {"COSINE": "cosine", "L2": "l2", "IP": "dot"}
TYPES = {"VARCHAR": "string", "BOOL": "bool", "FLOAT": "double", "DOUBLE": "double"}
TYPES |= {f"INT{bits}": "int64" for bits in (8, 16, 32, 64)}
DENSE = {"FLOAT_VECTOR": np.float32, "FLOAT16_VECTOR": np.float16}
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def connect(address: Address) -> tuple[Any, tuple[str, ...]]:
    """A client, and the secrets that it knows.

    Raises:
        NotFound: There is no such file.
        StorageError: The server cannot be reached.
    """
    milvus = load_extra("pymilvus", "milvus")
    if not address.is_remote:
        if not Path(address.place).exists():
            raise NotFound(f"open {address}", expected="a file of Milvus Lite", found="nothing there")
        load_extra("milvus_lite", "milvus")
        with reporting(f"open {address}"):
            return milvus.MilvusClient(address.place), ()
    url = urlsplit(address.place)
    password = unquote(url.password or "")
    token = os.environ.get("MILVUS_TOKEN") or (f"{unquote(url.username or '')}:{password}" if password else "")
    secrets = (token, token.partition(":")[2], password)
    plain = urlunsplit((url.scheme, f"{url.hostname}:{url.port or 19530}", url.path, "", ""))
    with reporting(f"open {address}", secrets=secrets):
        return milvus.MilvusClient(plain, token=token, db_name=os.environ.get("MILVUS_DB", "")), secrets


def table_of(
    page: Sequence[Mapping[str, Any]],
    key: Mapping[str, Any],
    field: Mapping[str, Any],
    parts: Parts,
    types: Mapping[str, str],
) -> ArrowTable:
    """Rows of a query as a table of a scan.

    Args:
        page: The rows.
        key: Field of the ids.
        field: Field of the vectors.
        parts: Source and metadata.
        types: Types of these.
    """
    dim, values = int(field["params"]["dim"]), [_numbers(row.get(field["name"]), field["type"].name) for row in page]
    present = [value is not None for value in values]
    rows = np.array([np.zeros(dim) if value is None else value for value in values], np.float32).reshape(-1, dim)
    columns = {
        ID: pa.array([row[key["name"]] for row in page], pa.string() if key["type"].name == "VARCHAR" else pa.int64()),
        VECTOR: vector_column(rows, dim, None if all(present) else present),
    }
    if parts.source:
        columns[SOURCE] = column([row.get(parts.source) for row in page], "string")
    for name in parts.metadata:
        columns[name] = column([row.get(name) for row in page], types.get(name, "string"))
    return pa.table(columns)


def literal(value: Id) -> str:
    """A key in an expression of Milvus, with the escapes that both the server and Milvus Lite know."""
    if isinstance(value, int):
        return str(value)
    return f'"{value.translate(ESCAPES)}"'


def _numbers(value: Any, kind: str) -> Any:
    """A vector as a query returns it: a list, or the bytes of one of half precision."""
    if isinstance(value, bytes):
        return np.frombuffer(value, DENSE[kind])
    return value


def metric_type(metric: Metric) -> str:
    """Milvus's name of a metric."""
    return next(name for name, one in METRICS.items() if one == metric)
