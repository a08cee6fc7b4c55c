"""A digest of every staged row, kept beside it: Lance's files carry no checksum of what is in them."""

from __future__ import annotations

import shlex

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowTable, Digests
from compatstore.digests import hash_rows, mix
from compatstore.errors import StorageError
from compatstore.storage.arrow_values import to_matrix
from compatstore.storage.input_hash import hash_values

CHECK = "check"


def checked(rows: ArrowTable) -> ArrowTable:
    """Staged rows (`id`, `basis`, which is the input hash, `vector`, perhaps `side`) with their digests in a column."""
    return rows.append_column(pa.field(CHECK, pa.uint64()), pa.array(_digests(rows), pa.uint64()))


def require_unchanged(rows: ArrowTable, address: str) -> ArrowTable:
    """Rows that were read, once each is what `checked` was given; those of earlier releases have no digest.

    Args:
        rows: An Arrow table.
        address: Of the table beside the gallery that they come from.

    Raises:
        StorageError: Some are not.
    """
    if CHECK not in rows.schema.names:
        return rows
    rows = rows.combine_chunks()
    damaged = int((rows[CHECK].to_numpy() != _digests(rows)).sum())
    if damaged:
        raise StorageError(
            f"read vectors staged in {address}",
            expected="what was staged",
            found=f"{damaged} rows of other content",
            fix=removal(address),
        )
    return rows


def removal(address: str) -> str:
    """How to be rid of staged rows that are damaged."""
    return f"Remove them, and `upgrade` embeds these items again: rm -r {shlex.quote(address)}"


def _digests(rows: ArrowTable) -> Digests:
    """(n,) uint64 of whole rows; a change of a single value never goes unseen."""
    digests = hash_values(rows["id"]) ^ mix(rows["basis"].to_numpy())
    for name in ("vector", "side"):
        if name in rows.schema.names:
            # Null lists are zeros here, as they are wherever staged rows are read.
            matrix, valid = to_matrix(rows[name], rows.schema.field(name).type.list_size)
            digests = mix(digests) + mix(hash_rows(matrix) + valid.astype(np.uint64))
    return digests
