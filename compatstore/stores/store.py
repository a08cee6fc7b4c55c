"""The protocol of a store: a vector database that an app owns, and what a mirror reads and writes there.

The app's part of a store is its *place*: the vector column of a table, a collection, a file. The vectors of an
upgrade's target go to a second place beside it, whose name the store derives: another column of the same rows where
the store has that, else another collection or file with the same ids. A store never changes the app's place, except
by `switch`, `switch_back` and `drop_source`, which the user asks for.

One file is one store. Each imports its client within its functions. `tests/stores/contract.py` holds every store to
this page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from compatstore.arrays import ArrowArray, ArrowTable, BoolArray, FloatArray, Id
from compatstore.versions import Metric

ID, VECTOR, SOURCE = "id", "vector", "source"  # columns of a scan; the others are metadata under their own names
MADE_FROM, KNOWN = "made_from", "known"  # of rows to write: the source vector, and the digest of what is there
IN_TARGET = "in_target"  # of a scan of a store that keeps both vectors in one row: the row has a target vector
BATCH = 5_000  # rows of a batch

Switch: TypeAlias = Literal["rename", "alias", "file", ""]


@dataclass(frozen=True)
class Parts:
    """Columns that the mirror of a store reads.

    Attributes:
        id: Of the ids; "" where the store has ids of its own.
        vector: Of the vectors of the app; "" where a collection has one vector alone.
        source: Of the text, or the path or URI, that a vector was made from; None if the store keeps none.
        metadata: Of the values to copy beside them.
    """

    id: str = ""
    vector: str = ""
    source: str | None = None
    metadata: tuple[str, ...] = ()


@dataclass(frozen=True)
class Description:
    """A collection as its store describes it; read-only.

    Attributes:
        address: Of the collection, without secrets.
        parts: What was found: ids and vectors, and every other column as metadata. `source` is set only where the
            store itself says which column the text is.
        id_type: "string" or "int64".
        dim: Length of the vectors, in values; 0 if the collection is empty and does not say.
        metric: Distance of the collection.
        rows: Number of rows.
        columns: Name to type, in the words of the store, for messages.
        beside: Where a target vector lies: "column" of the same row, "collection", "table" or "file".
        switch: How the store switches an app to the target: "rename" or "alias" or "file", or "" if the app does.
        is_atomic: True if that switch is one step, so that no reader meets neither name.
        is_conditional: True if a target vector is written only where the source vector is still the one it was made
            of, in one step.
        notes: What is not as a user would expect it, a sentence each: printed before anything is written.
        tracking: What a change capture adds to the store, a clause; "" if the store can record no changes. See
            `tracking.CapturingStore`.
    """

    address: str
    parts: Parts
    id_type: Literal["string", "int64"]
    dim: int
    metric: Metric
    rows: int
    columns: dict[str, str]
    beside: Literal["column", "collection", "table", "file"]
    switch: Switch
    is_atomic: bool
    is_conditional: bool
    notes: tuple[str, ...] = ()
    tracking: str = ""


class VectorStore(Protocol):
    """A collection in a vector database. One object is used by one thread at a time.

    All methods raise `StorageError` if the store refuses or cannot be reached, with its own reason and no secret;
    `NotFound` if the collection is gone. Reads see every write that was acknowledged before they began.
    """

    scheme: ClassVar[str]  # of its addresses

    def describe(self, wanted: Parts = Parts()) -> Description:
        """Describe the collection; read-only.

        Args:
            wanted: Columns of ids and vectors that the user named, "" where the store is to find them. Later calls
                of this object mean the same ones.

        Raises:
            NotFound: There is no such collection or column.
            InvalidInput: It cannot be mirrored: a view, a composite key, two vectors and none named, no unique ids.
        """
        ...

    def scan(self, parts: Parts, target: str | None = None) -> Iterator[ArrowTable]:
        """Stream all rows, in batches of about `BATCH`, with memory bounded by a batch.

        A row that is there all the time comes at least once, also while the app writes; it may come twice.

        Args:
            parts: Columns to read.
            target: Version whose presence is read too, where it is a column of the same row.

        Yields:
            (n, ...) `id` (string or int64), `vector` (fixed-size list of float32, null for a row without one), `source`
            (string) if the parts name one, each column of the metadata, and `in_target` (bool) if a target is named
            and lies in the same row.
        """
        ...

    def read(self, ids: Sequence[Id], parts: Parts) -> ArrowTable:
        """Read some rows, as of `scan`, in any order; ids that are not there are left out."""
        ...

    def has(self, target: str) -> bool:
        """True if the place of a target's vectors is there, made by anyone."""
        ...

    def prepare(self, target: str, dim: int, metric: Metric) -> None:
        """Make the place of a target's vectors, (dim,) float32 each; a no-op if it is there."""
        ...

    def write(self, target: str, rows: ArrowTable) -> Sequence[Id]:
        """Write target vectors, in one step or row by row; the same call again changes nothing.

        Args:
            target: The version.
            rows: (n, ...) `id`, `vector` (fixed-size list of float32), `made_from` (the source vector, null if the
                row has none), `known` (binary, the digest of the target vector that is there, null for none).

        Returns:
            Ids that were written. Rows that the app deleted, whose source vector is another one now, or, where the
            store can tell, whose target vector is not the known one, are left out. A store that is not conditional
            writes all of them, and the caller reads the rows again.
        """
        ...

    def read_target(self, target: str, ids: Sequence[Id] | None = None) -> Iterator[ArrowTable]:
        """Stream `id` and `vector` of the rows that have a target vector: of all, or of some ids."""
        ...

    def remove(self, target: str, ids: Sequence[Id]) -> None:
        """Remove target vectors; the app's rows stay. Ids that have none are ignored."""
        ...

    def switch(self, target: str) -> None:
        """Give the app the target under the name that it reads, and keep the app's own under another; idempotent.

        A store without a switch changes nothing there: from now on this object scans and reads the target's place,
        as the app does from then on.
        """
        ...

    def switch_back(self, target: str) -> None:
        """Undo a switch; idempotent."""
        ...

    def is_switched(self, target: str) -> bool:
        """True if the app reads the target by the name that it knows."""
        ...

    def app_change(self, target: str) -> str:
        """The one line that an app changes to read the target, for a store that has no switch: a sentence."""
        ...

    def place(self, target: str) -> tuple[str, Parts]:
        """Address and parts under which an app reads a target after the switch."""
        ...

    def before(self, target: str) -> str | None:
        """Column of the app's own vectors after a switch, for `Parts`; None where they are not in the same row."""
        ...

    def drop(self, target: str) -> None:
        """Remove the place of a target's vectors, and what was made for it; idempotent."""
        ...

    def drop_source(self, target: str) -> None:
        """After a switch, remove the vectors that the app read before it; idempotent."""
        ...

    def search(
        self, target: str | None, query: FloatArray, k: int, where: str | None = None
    ) -> tuple[Sequence[Id], FloatArray]:
        """Nearest rows by the store's own index.

        Args:
            target: Version whose vectors are searched, or None for the app's.
            query: (dim,) float32.
            k: Number of rows.
            where: Condition in the store's own language, or None.

        Returns:
            Ids, and (k,) float32 distances, the smaller the nearer.
        """
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


def digests(vectors: ArrowArray) -> list[bytes | None]:
    """Digests of vectors: a column of fixed-size lists of float32 -> 16 bytes each, None where there is none.

    Zeros of both signs and the same values in any Arrow layout have one digest.
    """
    column = _whole(vectors)
    rows = matrix(column) + np.float32(0)  # -0.0 + 0.0 is 0.0
    size, data = rows.shape[1] * 4, rows.reshape(-1).view(np.uint8).data
    hashed = [hashlib.blake2b(data[at * size : (at + 1) * size], digest_size=16).digest() for at in range(len(rows))]
    if not column.null_count:
        return [*hashed]
    return [one if there else None for one, there in zip(hashed, np.asarray(column.is_valid()), strict=True)]


def matrix(column: ArrowArray) -> FloatArray:
    """Values of a column of fixed-size lists of float32, (n, dim); zeros where a row has none."""
    column = _whole(column)
    if column.null_count:
        column = column.fill_null([0.0] * column.type.list_size)
    values: FloatArray = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)
    return values


def _whole(column: ArrowArray) -> ArrowArray:
    """Return a column as one array: its only chunk, or a copy of all its chunks in a row."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def vector_column(rows: FloatArray, dim: int, present: Sequence[bool] | BoolArray | None = None) -> ArrowArray:
    """A column of fixed-size lists of float32: (n, dim) numbers, and (n,) bool, False for a row without a vector."""
    flat = pa.array(np.ascontiguousarray(rows, np.float32).reshape(-1))
    mask = None if present is None else pa.array(~np.asarray(present, bool))
    return pa.FixedSizeListArray.from_arrays(flat, dim, mask=mask)
