"""Digests of rows: the input hash, by which a stale vector is found, and the digest of a staged row.

Apps that own an adopted table change items through plain LanceDB, which knows nothing of our columns: a new source
vector can stand beside a target vector that was made from the previous one. Each target vector therefore carries a
64-bit digest of what it was made from; where the two disagree the target vector is stale. A transformed vector is made
from the source vector (and the `source` value), a native one from the `source` value alone. Staged rows carry a digest
of all that is in them: Lance's files have no checksum.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowTable, BoolArray, Digests, FloatArray
from compatstore.digests import hash_rows, mix
from compatstore.errors import StorageError
from compatstore.storage.vector_form import stored_type, to_matrix

CHUNK = 65_536  # texts that are Python objects at once
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class InputHashes:
    """Digests of what the target vectors of n rows are made from, as the rows are now.

    Equal rows have equal digests; a row that differs in one value has another digest for sure, one that differs in
    several has the same with a chance of 2^-64.

    Attributes:
        transformed: (n,) uint64, of the source vector and the `source` value.
        native: (n,) uint64, of the `source` value alone, since a model reads nothing else; of a row without one, as
            for transformed vectors.
    """

    transformed: Digests
    native: Digests

    @classmethod
    def of(cls, vectors: FloatArray, valid: BoolArray, sources: ArrowArray | None) -> InputHashes:
        """Digest rows.

        Args:
            vectors: (n, dim) float32, of the source version.
            valid: (n,) bool; a row without a vector counts as such.
            sources: Arrow array of n `source` values, or None.
        """
        digests = np.where(valid, hash_rows(vectors), np.uint64(1))
        if sources is None:
            both = mix(digests)
            return cls(both, both)
        values = hash_values(sources)
        both = mix(mix(digests) + values)
        return cls(both, np.where(values == 0, both, mix(values)))

    def fit(self, stored: Digests, native: BoolArray) -> BoolArray:
        """True for rows whose target vector was made from what they hold now.

        Args:
            stored: (n,) uint64, the digests beside the target vectors.
            native: (n,) bool, rows whose vector is native. One that was derived from a native vector of the source
                carries the digest of a transformed one.
        """
        return np.asarray((stored == self.transformed) | (native & (stored == self.native)))


def hash_values(values: ArrowArray) -> Digests:
    """Digest strings or numbers of an Arrow array: (n,) uint64, null as 0."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks() if values.num_chunks != 1 else values.chunk(0)
    if pa.types.is_integer(values.type):
        return mix(values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64) + _GOLDEN)
    parts = (values.slice(start, CHUNK).to_pylist() for start in range(0, len(values), CHUNK))
    return np.fromiter((_hash_text(value) for part in parts for value in part), np.uint64, len(values))


def _hash_text(value: Any) -> int:
    if value is None:
        return 0
    data = value if isinstance(value, bytes) else str(value).encode()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


CHECK = "check"


def checked(rows: ArrowTable) -> ArrowTable:
    """Staged rows (`id`, `input_hash`, `vector`, perhaps `side`) with their digests in a column."""
    return rows.append_column(pa.field(CHECK, pa.uint64()), pa.array(_digests(rows), pa.uint64()))


def require_unchanged(rows: ArrowTable, address: str) -> ArrowTable:
    """Rows that were read, once each is what `checked` was given.

    Args:
        rows: An Arrow table.
        address: Of the table beside the gallery that they come from.

    Raises:
        StorageError: Some are not.
    """
    rows = rows.combine_chunks()
    known = CHECK in rows.schema.names
    damaged = int((rows[CHECK].to_numpy() != _digests(rows)).sum()) if known else len(rows)
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
    digests = hash_values(rows["id"]) ^ mix(rows["input_hash"].to_numpy())
    for name in ("vector", "side"):
        if name in rows.schema.names:
            # Null lists are zeros here, as they are wherever staged rows are read.
            matrix, valid = to_matrix(rows[name], stored_type(rows.schema.field(name).type).list_size)
            digests = mix(digests) + mix(hash_rows(matrix) + valid.astype(np.uint64))
    return digests
