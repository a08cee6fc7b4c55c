"""Staged natives: embedded batches in a small table beside the gallery, before they are written into the gallery.

A backfill in priority order takes rows from all fragments, and the columns of a fragment can only be rewritten as a
whole. So each batch is appended to the staging table, where it is durable, and the staged rows are folded into the
gallery fragment by fragment, once for several batches. A staged row holds the input hash of its item: if the item
has another hash at the fold, the staged vector is dropped.

Each lease has a staging table of its own. The holder of the present lease folds and removes those of earlier leases.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowArray, ArrowTable, ArrowType, Digests, FloatArray, Id, RowNumbers
from compatstore.digests import hash_rows, mix
from compatstore.errors import StorageError
from compatstore.storage.catalog import id_arrow_type
from compatstore.storage.columns import hash_values
from compatstore.storage.files import FOLDER, Files
from compatstore.storage.fragments import write_whole
from compatstore.storage.ids import UNKNOWN
from compatstore.storage.lease_table import STAGED, LeaseFiles, target_of
from compatstore.storage.location import Location
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import lance
from compatstore.storage.store import Fence, Store, storage_errors
from compatstore.storage.vector_form import stored_type, to_matrix, to_vectors

ADDRESS = "address"  # column of a staging table: where the row was in the gallery
KEYS = ["id", "input_hash", ADDRESS]


@dataclass(frozen=True, eq=False)
class NativeBatch:
    """Native vectors of n items.

    Attributes:
        ids: Arrow array of n ids. In an app's table an id may be in several rows, and here several times.
        input_hash: (n,) uint64, of the rows that the vectors were made from.
        read: Reads some of them: (k,) positions -> (k, dim) float32, and their side-information, (k, side_dim) float32
            with NaN if an item has none, or None.
        addresses: (n,) int64, row addresses at the read; None if unknown.
    """

    ids: ArrowArray
    input_hash: Digests
    read: Callable[[RowNumbers], tuple[FloatArray, FloatArray | None]]
    addresses: RowNumbers | None = None

    @classmethod
    def of(cls, ids: ArrowArray, vectors: FloatArray, hashes: Digests, side: FloatArray | None = None) -> NativeBatch:
        """Natives in memory, by a list or Arrow array of ids."""
        return cls(pa.array(ids), hashes, lambda rows: (vectors[rows], None if side is None else side[rows]))

    def in_memory(self, positions: RowNumbers) -> NativeBatch:
        """Some of them, read at once."""
        vectors, side = self.read(positions)
        return NativeBatch.of(self.ids.take(pa.array(positions)), vectors, self.input_hash[positions], side)

    def slice(self, start: int, rows: int) -> NativeBatch:
        """Some of them, one after the other."""
        return NativeBatch(
            self.ids.slice(start, rows),
            self.input_hash[start : start + rows],
            lambda positions: self.read(positions + start),
            None if self.addresses is None else self.addresses[start : start + rows],
        )

    def positions(self, ids: ArrowArray, input_hash: Digests) -> RowNumbers:
        """Position of the vector of each row of the table: (rows,) int64, -1 for none.

        A row whose item was changed after the vector was made has none.

        Args:
            ids: Arrow array of the rows' ids.
            input_hash: (rows,) uint64, of the rows as they are now.
        """
        ids = ids.cast(self.ids.type)
        found: RowNumbers = pc.index_in(ids, value_set=self.ids).fill_null(-1).to_numpy(zero_copy_only=False)
        fits = (
            (found >= 0) & (self.input_hash[found] == input_hash)
            if len(self.input_hash)
            else np.zeros(len(found), bool)
        )
        positions = np.where(fits, found, -1).astype(np.int64)
        for row in np.flatnonzero((found >= 0) & ~fits) if self._repeats else ():
            positions[row] = self._repeated.get((ids[int(row)].as_py(), int(input_hash[row])), -1)
        return positions

    @cached_property
    def _repeats(self) -> bool:
        return len(self.ids.unique()) < len(self.ids)

    @cached_property
    def _repeated(self) -> dict[tuple[Id, int], int]:
        """Positions by id and input hash."""
        keys = zip(self.ids.to_pylist(), self.input_hash.tolist(), strict=True)
        return {key: position for position, key in enumerate(keys)}


class Staging:
    """Native vectors of one target version that wait to be folded in.

    Args:
        location: The gallery.
        target: Name of the version.
        dim: Values of a vector.
        id_type: Arrow type of the ids.
        side_dim: Values of the side-information that comes with a vector, or None.
        fence: The lease that is written under; None for those who only read.
        since: Number of the first lease whose rows count. Rows that a worker stages after its upgrade was abandoned
            do not count.
    """

    def __init__(
        self,
        location: Location,
        target: str,
        dim: int,
        id_type: ArrowType,
        side_dim: int | None = None,
        fence: Fence | None = None,
        since: int = 0,
    ) -> None:
        self._location, self._since = location, since
        self._files = LeaseFiles(location, STAGED, target, fence)
        self._dims = {"vector": dim} | ({} if side_dim is None else {"side": side_dim})
        vectors = [pa.field(name, pa.list_(pa.float32(), size)) for name, size in self._dims.items()]
        keys = [pa.field("id", id_type), pa.field("input_hash", pa.uint64()), pa.field(ADDRESS, pa.int64())]
        self._schema = pa.schema([*keys, *vectors])
        self._stored = self._schema.append(pa.field(CHECK, pa.uint64()))

    @classmethod
    def of(cls, store: Store, registry: Registry, version: str, run: RunRecord | None) -> Staging:
        """The staged natives of a version, under the lease that the table is written under.

        Args:
            store: The gallery's table.
            registry: The gallery's registry.
            version: Name of the version, which may be none any more.
            run: The upgrade whose rows count; None for those of all leases.
        """
        record, since = registry.versions.get(version), 0 if run is None else run.lease
        dim, side_dim = (1, None) if record is None else (record.dim, record.side_dim)
        ids, fence = id_arrow_type(registry), store.fence_of(version)
        return cls(store.location, version, dim, ids, side_dim, fence, since)

    def store(self, batch: NativeBatch) -> int:
        """Make n natives durable, in one commit.

        Returns:
            n.

        Raises:
            LeaseLost: The lease is lost; nothing was written.
            StorageError: They cannot be written.
        """
        n, (vectors, side) = len(batch.ids), batch.read(np.arange(len(batch.ids)))
        columns = [
            batch.ids.cast(self._schema.field("id").type),
            pa.array(batch.input_hash, pa.uint64()),
            pa.array(np.full(n, UNKNOWN) if batch.addresses is None else batch.addresses, pa.int64()),
            to_vectors(vectors, self._dims["vector"], "float32"),
        ]
        if (side_dim := self._dims.get("side")) is not None:
            none = np.full((n, side_dim), np.nan, np.float32)
            columns.append(to_vectors(none if side is None else side, side_dim, "float32"))
        with storage_errors(f"stage {n} vectors beside {self._location.name}"):
            rows = pa.table(columns, schema=self._schema)
            self._commit(rows.append_column(self._stored.field(CHECK), pa.array(_digests(rows), pa.uint64())))
        return n

    def _commit(self, table: ArrowTable) -> None:
        """Append rows, once they are on disk as a whole."""
        name = self._files.own
        before = self._open(name) if self._is_table(name) else None
        uri, mode = self._files.files.address(name), "create" if before is None else "append"
        written = write_whole(self._location, f"{FOLDER}/{name}/data", table, uri, mode=mode)
        operations = lance.LanceOperation
        operation = operations.Overwrite(self._stored, written) if before is None else operations.Append(written)
        read_version = None if before is None else before.version
        self._files.require_entitled()
        lance.LanceDataset.commit(uri, operation, read_version=read_version, storage_options=self._location.options)

    def __len__(self) -> int:
        """Staged rows; they are counted, not read."""
        return sum(int(table.count_rows()) for table in self._opened().values())

    def read(self) -> NativeBatch:
        """Read the ids of staged rows, those of the oldest lease first; their vectors are read on demand."""
        opened, parts = self._opened(), [pa.schema([self._schema.field(name) for name in KEYS]).empty_table()]
        for table in opened.values():
            with storage_errors(f"read vectors staged beside {self._location.name}"):
                parts.append(table.to_table(columns=KEYS).cast(parts[0].schema))
        keys = pa.concat_tables(parts).combine_chunks()
        hashes, addresses = keys["input_hash"].to_numpy(), keys[ADDRESS].to_numpy()
        return NativeBatch(keys["id"].combine_chunks(), hashes, partial(self._values, opened), addresses)

    def _values(self, opened: Mapping[str, Any], rows: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray | None]:
        """Vectors and side-information of some rows of open tables, by their positions, as `NativeBatch.read` has them.

        Raises:
            StorageError: They cannot be read, or were changed.
        """
        values, first = {n: np.full((len(rows), dim), np.nan, np.float32) for n, dim in self._dims.items()}, 0
        for name, table in opened.items():
            with storage_errors(f"read vectors staged beside {self._location.name}"):
                end = first + int(table.count_rows())
                mine = np.flatnonzero((rows >= first) & (rows < end))
                if len(mine):
                    taken = require_unchanged(table.take((rows[mine] - first).tolist()), self.address(name))
                    for column, dim in self._dims.items():
                        values[column][mine] = to_matrix(taken[column], dim)[0]
            first = end
        return values["vector"], values.get("side")

    def address(self, name: str) -> str:
        """Path or URI of a table that holds staged rows."""
        return self._files.files.address(name)

    def examine(self, name: str) -> int:
        """Read all rows of a table that holds staged rows, and check that they are unchanged.

        Returns:
            Data files that no row is in: of an append that was killed, or of a commit that was lost.

        Raises:
            StorageError: Rows cannot be read, or were changed.
        """
        files = Files(self._location, FOLDER, name, "data").names()
        if not self._is_table(name):
            return len(files)
        table = self._open(name)
        with storage_errors(f"read vectors staged beside {self._location.name}"):
            for batch in table.to_batches():
                require_unchanged(pa.Table.from_batches([batch]), self.address(name))
        return len(set(files) - {file.path for fragment in table.get_fragments() for file in fragment.data_files()})

    def counts(self, name: str) -> bool:
        """True if the rows of a staging table count; False if its writer had lost the lease."""
        return name in self._files.names(self._since)

    def tables(self) -> list[str]:
        """Names of the tables that hold staged rows, the oldest lease's first."""
        return [name for name in self._files.names(self._since) if self._is_table(name)]

    def clear(self) -> None:
        """Remove all staged rows, once they are in the table.

        What names the rows goes before the rows: a process that is killed here leaves no table that cannot be read.

        Raises:
            LeaseLost: The lease is lost; nothing was removed.
        """
        self._files.require_entitled()
        self._since = self._files.number
        for name in self._files.names():
            self._files.files.delete_folder(f"{name}/_versions")
            self._files.files.delete_folder(name)

    def _opened(self) -> dict[str, Any]:
        """Tables that hold staged rows, by name; one that another process removes meanwhile is left out."""
        opened = {}
        for name in self.tables():
            try:
                opened[name] = self._open(name)
            except (StorageError, ValueError):  # Lance's own if the whole folder is gone
                if self._is_table(name):
                    raise
        return opened

    def _open(self, name: str) -> Any:
        with storage_errors(f"read vectors staged beside {self._location.name}"):
            return lance.dataset(self._files.files.address(name), storage_options=self._location.options)

    def _is_table(self, name: str) -> bool:
        # A process that is killed as it makes or removes a table leaves the folder of its manifests, and no manifest.
        return any(one.endswith(".manifest") for one in Files(self._location, FOLDER, name, "_versions").names())


def staged_version(name: str) -> str | None:
    """Version whose natives a table beside the gallery stages, by the table's name; None if it is another's."""
    return target_of(name, STAGED)


CHECK = "check"


def require_unchanged(rows: ArrowTable, address: str) -> ArrowTable:
    """Rows that were read, once each has the digest that `Staging.store` wrote.

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
        operation, found = f"read vectors staged in {address}", f"{damaged} rows of other content"
        raise StorageError(operation, expected="unchanged rows", found=found, fix=removal(address))
    return rows


def removal(address: str) -> str:
    """The fix for damaged staged rows."""
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
