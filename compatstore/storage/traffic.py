"""How often items were candidates of searches: a small file beside the table, for the order of a backfill.

It is a statistic: of two processes that add to it at the same moment one may be lost, and where there are more items
than it holds, those that were candidates least often are forgotten.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from compatstore.arrays import ArrowTable, ArrowType, Id
from compatstore.errors import StorageError
from compatstore.paths import refused
from compatstore.storage.files import FOLDER, Files
from compatstore.storage.ledger import sealed, unsealed
from compatstore.storage.location import Location

MOST_ITEMS = 100_000
_RUN = b"run"


class Traffic:
    """Reads and adds to the counts of one target version.

    Args:
        location: The gallery.
        target: Name of the version.
        id_type: Arrow type of the ids.
        run: What tells this upgrade from an earlier one to the same target, which is forgotten.
    """

    def __init__(self, location: Location, target: str, id_type: ArrowType, run: str) -> None:
        self._files, self._name, self._run = Files(location, FOLDER), f"traffic-{target}.arrow", run
        self._schema = pa.schema([("id", id_type), ("seen", pa.int64())])

    def load(self) -> ArrowTable:
        """The counts: Arrow table of id, seen; each id once.

        Raises:
            StorageError: The file cannot be read.
        """
        address, asked = self._files.address(self._name), "read how often items were candidates of searches"
        try:
            if not self._files.exists(self._name):
                return self._schema.empty_table()
            table = pa.ipc.open_file(unsealed(self._files.read(self._name))).read_all()
            if table.schema.metadata[_RUN].decode() != self._run:
                return self._schema.empty_table()
            return table.cast(self._schema)
        except PermissionError as error:
            raise refused(asked, address, error) from error
        except (OSError, ValueError, TypeError, KeyError) as error:  # Arrow's errors are ValueErrors
            fix = f"Remove it, and items are counted from 0: rm {shlex.quote(address)}"
            raise StorageError(asked, expected="what searches wrote", found=str(error), fix=fix) from error

    def add(self, seen: Mapping[Id, int]) -> None:
        """Add counts; the file is replaced as a whole, and one that is damaged counts for nothing.

        Raises:
            StorageError: It cannot be written.
        """
        if not seen:
            return
        before = self._schema.empty_table()
        with suppress(StorageError):
            before = self.load()
        more = pa.table([pa.array(list(seen), self._schema.field("id").type), list(seen.values())], self._schema.names)
        both = pa.concat_tables([before, more.cast(self._schema)]).group_by("id").aggregate([("seen", "sum")])
        counts = both.select(["id", "seen_sum"]).rename_columns(self._schema.names).cast(self._schema)
        if counts.num_rows > MOST_ITEMS:
            counts = counts.take(pc.sort_indices(counts, [("seen", "descending"), ("id", "ascending")])[:MOST_ITEMS])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self._schema.with_metadata({_RUN: self._run})) as writer:
            writer.write_table(counts)
        address, asked = self._files.address(self._name), "write how often items were candidates of searches"
        try:
            self._files.write(self._name, sealed(sink.getvalue().to_pybytes()))
        except PermissionError as error:
            raise refused(asked, address, error) from error
        except OSError as error:
            raise StorageError(asked, expected="a folder that can be written", found=str(error)) from error

    def clear(self) -> None:
        """Forget them."""
        self._files.delete(self._name)
