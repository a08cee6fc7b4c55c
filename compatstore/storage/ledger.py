"""The ledger of a backfill: its spending, and the items it could not embed, durable beside the table.

One small file, replaced as a whole: after every batch both parts are of the same moment, and a gallery that is
served gets no table version for it.

Each lease has a ledger of its own, which begins as a copy of the one before; that of the latest lease counts. A
worker charges a batch to its ledger, checks its lease, and stores the batch. So its successor has read of every stored
batch; and no worker reads entries that another wrote after losing its lease.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict

import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowTable, ArrowType, Digests, Id
from compatstore.documents import parse, read_record
from compatstore.errors import StorageError
from compatstore.paths import refused
from compatstore.storage.catalog import Catalog, id_arrow_type
from compatstore.storage.lease_table import LEDGER, LeaseFiles
from compatstore.storage.location import Location
from compatstore.storage.records import RunRecord, Spent
from compatstore.storage.registry import Registry
from compatstore.storage.store import Fence

_SPENT, _RUN = b"spent", b"run"
_SEAL = 32  # bytes of a SHA-256


class Ledger:
    """Reads and writes the ledger of one target version.

    Args:
        location: The gallery.
        target: Name of the version.
        id_type: Arrow type of the ids.
        run: Identity of this run; the ledger of an earlier one to the same target is forgotten.
        fence: The lease that is written under; None for those who only read.
    """

    def __init__(
        self, location: Location, target: str, id_type: ArrowType, run: str, fence: Fence | None = None
    ) -> None:
        self._location, self._run, self.target = location, run, target
        self._files = LeaseFiles(location, LEDGER, target, fence)
        self._schema = pa.schema([("id", id_type), ("input_hash", pa.uint64()), ("reason", pa.string())])

    def load(self) -> tuple[Spent, ArrowTable]:
        """The used budget, and the items that could not be embedded: Arrow table of id, input_hash, reason.

        The input hash is that of the item as it was tried. Nothing if no backfill of this run has been.

        Raises:
            StorageError: The file is damaged.
        """
        latest = self._files.own
        try:
            names = self._files.names()
            if not names:
                return Spent(), self._schema.empty_table()
            latest = names[-1]
            table = pa.ipc.open_file(unsealed(self._files.files.read(latest))).read_all()
            run, spent = table.schema.metadata[_RUN].decode(), table.schema.metadata[_SPENT]
            if run != self._run:
                return Spent(), self._schema.empty_table()
            return read_record(Spent, parse(spent), "spent"), table.cast(self._schema)
        except PermissionError as error:
            operation = f"read the ledger of a backfill beside {self._location.name}"
            raise refused(operation, self._files.files.address(latest), error) from error
        except (OSError, ValueError, TypeError, KeyError) as error:  # Arrow's errors are ValueErrors
            raise StorageError(
                f"read the ledger of a backfill beside {self._location.name}",
                expected="a ledger written by a backfill",
                found=str(error),
                fix="Remove it, which loses the record of spending and of failed items and keeps all vectors: "
                f"rm {shlex.quote(self._files.files.address(latest))}",
            ) from error

    def save(self, spent: Spent, failed: ArrowTable) -> None:
        """Replace the ledger; durable and atomic.

        Raises:
            LeaseLost: The lease is lost; nothing was written.
            StorageError: It cannot be written.
        """
        metadata = {_SPENT: json.dumps(asdict(spent)), _RUN: self._run}
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(sink, self._schema.with_metadata(metadata), options=options) as writer:
            writer.write_table(failed)
        self._files.require_entitled()
        try:
            self._files.files.write(self._files.own, sealed(sink.getvalue().to_pybytes()))
            self._remove(self._files.names()[:-1])
        except OSError as error:
            operation = f"write the ledger of a backfill beside {self._location.name}"
            raise refused(operation, self._files.files.address(self._files.own), error) from error

    def clear(self) -> None:
        """Forget it all.

        Raises:
            LeaseLost: The lease is lost; nothing was removed.
        """
        self._files.require_entitled()
        self._remove(self._files.names())

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._files.files.delete(name)

    def rows(self, ids: Sequence[Id], input_hash: Digests, reasons: Sequence[str]) -> ArrowTable:
        """Items that could not be embedded, as an Arrow table of id, input_hash, reason."""
        columns = {"id": list(ids), "input_hash": input_hash, "reason": list(reasons)}
        return pa.table(columns, schema=self._schema)


def sealed(content: bytes) -> bytes:
    """The content of a file with its SHA-256 behind it."""
    return content + hashlib.sha256(content).digest()


def unsealed(data: bytes) -> bytes:
    """The content of a file that ends with its SHA-256."""
    content = data[:-_SEAL]
    if hashlib.sha256(content).digest() != data[-_SEAL:]:
        raise ValueError("content of another SHA-256 than was written")
    return content


def without(failed: ArrowTable, ids: Sequence[Id]) -> ArrowTable:
    """The rows of a ledger's table that are not of these ids."""
    if not failed.num_rows or not len(ids):
        return failed
    return failed.filter(
        pc.invert(pc.is_in(failed["id"], value_set=pa.array(list(ids), failed.schema.field("id").type)))
    )


def ledger_of(catalog: Catalog, registry: Registry, run: RunRecord) -> Ledger:
    """The ledger of a run."""
    store = catalog.store
    return Ledger(store.location, run.target, id_arrow_type(registry), run.identity, store.fence_of(run.target))
