"""Natives on their way into the table: finished batches, durable before the next one starts.

A backfill in priority order touches rows all over the gallery, and each fragment's columns are rewritten as a
whole. So batches are appended to a small table beside the gallery and folded in fragment by fragment, once per wave.
A staged row says which basis it belongs to; one whose item changed meanwhile is dropped when the wave folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compatstore.digests import Digests
from compatstore.encoders.protocol import FloatArray
from compatstore.storage.blobs import FOLDER
from compatstore.storage.columns import to_matrix, to_vectors
from compatstore.storage.files import Files
from compatstore.storage.full_disk import require_whole
from compatstore.storage.lance_engine import lance, write_fragments
from compatstore.storage.location import Location
from compatstore.storage.store import storage_errors

PREFIX, SUFFIX = "staged-", ".lance"


class Staging:
    """Native vectors of one target version that wait to be folded in.

    Args:
        location: The gallery.
        target: Name of the version.
        dim: Values of a vector.
        id_type: Arrow type of the ids.
        side_dim: Values of the side-information that comes with a vector, or None.
    """

    def __init__(self, location: Location, target: str, dim: int, id_type: Any, side_dim: int | None = None) -> None:
        self._location = location
        self._name = f"{PREFIX}{target}{SUFFIX}"
        self._files = Files(location, FOLDER)
        self._uri = self._files.address(self._name)
        self._dim, self._side_dim = dim, side_dim
        lists = {"vector": dim} | ({} if side_dim is None else {"side": side_dim})
        vectors = [pa.field(name, pa.list_(pa.float32(), size)) for name, size in lists.items()]
        self._schema = pa.schema([pa.field("id", id_type), pa.field("basis", pa.uint64()), *vectors])

    def append(self, ids: Sequence[Any], vectors: FloatArray, basis: Digests, side: FloatArray | None = None) -> None:
        """Make a batch durable, in one commit.

        Args:
            ids: n ids.
            vectors: (n, dim) float32.
            basis: (n,) uint64, of the rows that the vectors were made from.
            side: (n, side_dim) float32, NaN where an item has none; None for none at all.

        Raises:
            StorageError: They cannot be written.
        """
        columns = [
            pa.array(list(ids), self._schema.field("id").type),
            pa.array(basis, pa.uint64()),
            to_vectors(vectors, self._dim, "float32"),
        ]
        if self._side_dim is not None:
            none = np.full((len(basis), self._side_dim), np.nan, np.float32)
            columns.append(to_vectors(none if side is None else side, self._side_dim, "float32"))
        with storage_errors(f"stage {len(basis)} vectors beside {self._location.name}"):
            self._commit(pa.table(columns, schema=self._schema))

    def _commit(self, table: Any) -> None:
        """Append rows, once they are on disk as a whole."""
        before = self._open() if self._exists() else None
        mode = "create" if before is None else "append"
        table = table if before is None else table.select(before.schema.names)
        written = write_fragments(table, self._uri, mode=mode, storage_options=self._options)
        for file in (file for fragment in written for file in fragment.files):
            require_whole(self._location, f"{FOLDER}/{self._name}/data/{file.path}")
        operations = lance.LanceOperation
        operation = operations.Overwrite(self._schema, written) if before is None else operations.Append(written)
        read_version = None if before is None else before.version
        lance.LanceDataset.commit(self._uri, operation, read_version=read_version, storage_options=self._options)

    def __len__(self) -> int:
        """Staged rows; they are counted, not read."""
        if not self._exists():
            return 0
        return int(self._open().count_rows())

    def keys(self) -> tuple[Any, Digests]:
        """All staged rows but for their vectors: (Arrow array of n ids, (n,) uint64), oldest first."""
        if not self._exists():
            return pa.array([], self._schema.field("id").type), np.zeros(0, np.uint64)
        table = self._open().to_table(columns=["id", "basis"]).combine_chunks()
        return table["id"].combine_chunks(), table["basis"].to_numpy()

    def vectors(self, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Vectors of some staged rows, by their positions among all: (k,) int64 -> (k, dim) float32."""
        table = self._open().take(rows.tolist(), columns=["vector"])
        return to_matrix(table["vector"], self._dim)[0]

    def side(self, rows: npt.NDArray[np.int64]) -> FloatArray | None:
        """Side-information of some staged rows: (k,) int64 -> (k, side_dim) float32, NaN where an item has none."""
        staged = self._open()
        if self._side_dim is None or "side" not in staged.schema.names:  # earlier releases staged vectors alone
            return None
        table = staged.take(rows.tolist(), columns=["side"])
        return to_matrix(table["side"], self._side_dim)[0]

    def clear(self) -> None:
        """Remove all staged rows, once they are in the table.

        What names the rows goes before the rows: a process that is killed here leaves no table that cannot be read.
        """
        if self._exists():
            self._files.delete_folder(f"{self._name}/_versions")
            self._files.delete_folder(self._name)

    def _open(self) -> Any:
        with storage_errors(f"read vectors staged beside {self._location.name}"):
            return lance.dataset(self._uri, storage_options=self._options)

    @property
    def _options(self) -> dict[str, str] | None:
        return self._location.storage_options or None

    def _exists(self) -> bool:
        return self._files.has_folder(f"{self._name}/_versions")


def staged_version(name: str) -> str | None:
    """Version whose natives a table beside the gallery stages, by the table's name; None where it is another's."""
    staged = name.startswith(PREFIX) and name.endswith(SUFFIX)
    return name.removeprefix(PREFIX).removesuffix(SUFFIX) if staged else None
