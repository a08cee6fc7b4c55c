"""Rows and their changes: digests by which a stale vector is found, and rows that changed between two versions.

Apps that own an adopted table change items through plain LanceDB, which knows nothing of our columns: a new source
vector can stand beside a target vector that was made from the previous one. Each target vector therefore carries a
64-bit digest of what it was made from; where the two disagree the target vector is stale. A transformed vector is made
from the source vector (and the `source` value), a native one from the `source` value alone. Staged rows carry a digest
of all that is in them: Lance's files have no checksum.

Data files and marks of deleted rows never change. So a fragment whose columns lie in the same files has the same
values, and one with other marks has lost rows.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowBatch, ArrowTable, BoolArray, Digests, FloatArray
from compatstore.digests import hash_rows, mix
from compatstore.errors import StorageError
from compatstore.storage.fragments import field_ids
from compatstore.storage.ids import ADDRESS
from compatstore.storage.snapshot import Snapshot
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
            matrix, valid = to_matrix(rows[name], stored_type(rows.schema.field(name).type).list_size)
            digests = mix(digests) + mix(hash_rows(matrix) + valid.astype(np.uint64))
    return digests


_BATCH_ROWS = 8192


@dataclass(frozen=True)
class HeldFragment:
    """What was read of a fragment.

    Attributes:
        files: Which file holds which of the columns.
        deleted: Names its deleted rows.
    """

    files: frozenset[str]
    deleted: str


def held_fragments(snapshot: Snapshot, columns: Iterable[str]) -> dict[int, HeldFragment]:
    """The fragments of a table version, by their numbers, as what some columns of them are read from."""
    wanted, numbers = frozenset(columns), field_ids(snapshot)
    fields = {numbers[name] for name in wanted}
    held = {}
    for fragment in snapshot.get_fragments():
        metadata = fragment.metadata
        files = {f"{file.path}:{field}" for file in metadata.files for field in file.fields if field in fields}
        files |= {f"overlay:{overlay!r}" for overlay in getattr(metadata, "overlays", None) or ()}
        marks = metadata.deletion_file
        deleted = "" if marks is None else f"{marks.read_version}-{marks.id}"
        held[fragment.fragment_id] = HeldFragment(frozenset(files), deleted)
    return held


@dataclass(frozen=True)
class ChangedFragments:
    """How the fragments of one table version differ from those of an earlier one, by their numbers.

    Attributes:
        left: Fragments whose rows, as they were read, count no more.
        shrunk: Fragments that lost rows, and changed in nothing else.
        fresh: Fragments that are to be read.
    """

    left: tuple[int, ...]
    shrunk: tuple[int, ...]
    fresh: tuple[int, ...]

    @classmethod
    def between(cls, before: Mapping[int, HeldFragment], now: Mapping[int, HeldFragment]) -> ChangedFragments:
        """Compare two states of `held_fragments`."""
        kept = {number for number, held in before.items() if number in now and now[number].files == held.files}
        return cls(
            left=tuple(before.keys() - kept),
            shrunk=tuple(number for number in sorted(kept) if now[number].deleted != before[number].deleted),
            fresh=tuple(sorted(now.keys() - kept)),
        )


def read_fragments(
    snapshot: Snapshot, numbers: Sequence[int], columns: Sequence[str], condition: str | None
) -> Iterator[ArrowBatch]:
    """Rows of some fragments that fulfil an SQL condition, in order, with `_rowaddr`."""
    if not numbers:
        return
    scanner = snapshot.scanner(
        fragments=[snapshot.get_fragment(number) for number in numbers],
        columns=list(columns),
        filter=condition,
        batch_size=_BATCH_ROWS,
        scan_in_order=True,
        with_row_address=True,
    )
    yield from scanner.to_batches()


def addresses(snapshot: Snapshot, condition: str | None = None, numbers: Sequence[int] | None = None) -> Digests:
    """Addresses of rows that fulfil an SQL condition, of all fragments or of some: (n,) uint64, in any order."""
    chosen = None if numbers is None else [snapshot.get_fragment(number) for number in numbers]
    found = snapshot.scanner(columns=[], filter=condition, fragments=chosen, with_row_address=True).to_table()
    rows: Digests = found[ADDRESS].to_numpy()
    return rows
