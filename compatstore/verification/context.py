"""A gallery as the checks see it: one table version, the registry in it, and the files beside it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.misfits import Misfit
from compatstore.storage.records import RunRecord, VersionRecord
from compatstore.storage.registry import Registry
from compatstore.storage.store import storage_errors
from compatstore.upgrade.states import run_of

BATCH_ROWS = 4096


@dataclass(frozen=True)
class CheckContext:
    """What every check reads; nothing of it writes.

    Attributes:
        catalog: The gallery.
        snapshot: The table version that is checked.
        registry: The registry in it.
    """

    catalog: Catalog
    snapshot: Any
    registry: Registry

    @classmethod
    def of(cls, catalog: Catalog) -> CheckContext:
        """The gallery as of now."""
        snapshot = catalog.store.snapshot()
        return cls(catalog, snapshot, catalog.recorded(snapshot))

    @property
    def sound(self) -> list[tuple[VersionRecord, VersionColumns]]:
        """Live versions whose columns are all there and can be read as what they should be."""
        lost = {misfit.version for misfit in self.misfits}
        live = [(record, record.columns) for record in self.registry.live if record.columns is not None]
        return [(record, columns) for record, columns in live if record.name not in lost]

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Columns that the registry names and the table has not, or has of another type."""
        return self.catalog.misfits(self.snapshot)

    def run(self, version: str) -> RunRecord | None:
        """The open upgrade to a version, or None."""
        return run_of(self.registry, version)

    def count(self, condition: str) -> int:
        """Rows that fulfil an SQL condition."""
        with storage_errors(f"count rows of {self.catalog.store.location.name}"):
            return int(self.snapshot.count_rows(condition))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Read columns of all rows, a few thousand rows at a time."""
        with storage_errors(f"read {', '.join(columns)} of {self.catalog.store.location.name}"):
            yield from self.snapshot.to_batches(
                columns=list(dict.fromkeys(columns)), batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
            )

    def command(self, verb: str, *words: str) -> str:
        """A command line on this gallery."""
        return shlex.join(["compatstore", verb, self.catalog.store.location.uri, *words])
