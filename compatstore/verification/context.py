"""Input and output of checks: one table version with its registry and the files beside it; findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowBatch, BoolArray, RowNumbers
from compatstore.storage.app_columns import Misfit
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionColumns
from compatstore.storage.ids import NAMED, named
from compatstore.storage.records import RunRecord, VersionRecord
from compatstore.storage.registry import Registry
from compatstore.storage.snapshot import Snapshot
from compatstore.upgrade.states import run_of

Severity = Literal["error", "warning", "note"]
Observation: TypeAlias = tuple[Severity, str, str]  # severity, description and repair


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault of a gallery.

    Attributes:
        check: Name of the check that found it.
        severity: "error": results are wrong or something cannot be read; "warning": something is incomplete, stale or
            slow; "note": harmless.
        what: Description of the fault, and its place.
        repair: The fix, a command if there is one.
    """

    check: str
    severity: Severity
    what: str
    repair: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The findings in a gallery, as of one table version.

    Attributes:
        gallery: Its address.
        table_version: Lance's version number of the table.
        rows: Items.
        checks: Names of the checks that were made.
        findings: Their findings, in their order.
    """

    gallery: str
    table_version: int
    rows: int
    checks: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def clean(self) -> bool:
        """True if all findings are notes."""
        return all(finding.severity == "note" for finding in self.findings)


Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Diagnosis:
    """One examined part of the environment.

    Attributes:
        topic: Its name.
        level: "ok"; "warning": something is slow, missing or may go wrong; "problem": something cannot work.
        what: Description of its state.
        fix: The fix; with "ok", a possible improvement.
    """

    topic: str
    level: Level
    what: str
    fix: str = ""

    @classmethod
    def of(cls, topic: str, holds: bool, what: str, fix: str, level: Level = "warning") -> Diagnosis:
        """The diagnosis of a part that is as it should be, or of that level and with that fix."""
        return cls(topic, "ok", what) if holds else cls(topic, level, what, fix)


@dataclass(frozen=True, kw_only=True)
class Examination:
    """Diagnoses of an examination, in order."""

    diagnoses: tuple[Diagnosis, ...]

    @property
    def fit(self) -> bool:
        """True if there is no problem."""
        return all(diagnosis.level != "problem" for diagnosis in self.diagnoses)


BATCH_ROWS = 4096


@dataclass
class Tally:
    """Rows with one flaw: how many, and the ids or positions of the first.

    Attributes:
        rows: Number of rows.
        first: The first of them.
    """

    rows: int = 0
    first: list[Any] = field(default_factory=list)

    def add(self, flawed: BoolArray, names: ArrowArray | RowNumbers) -> None:
        """Count the flawed rows of a batch, by the n ids or positions of all its rows."""
        self.rows += int(flawed.sum())
        if len(self.first) < NAMED:
            chosen = names.take(np.flatnonzero(flawed)[: NAMED - len(self.first)])
            self.first += chosen.tolist() if isinstance(chosen, np.ndarray) else chosen.to_pylist()

    def __str__(self) -> str:
        return f"{self.rows} items ({named(self.first, self.rows)})"


@dataclass(frozen=True)
class CheckContext:
    """The input of every check; read-only.

    Attributes:
        catalog: The gallery.
        snapshot: The table version that is checked.
        registry: The registry in it.
    """

    catalog: Catalog
    snapshot: Snapshot
    registry: Registry

    @classmethod
    def of(cls, catalog: Catalog) -> CheckContext:
        """Context of a gallery's latest table version."""
        snapshot = catalog.store.snapshot()
        return cls(catalog, snapshot, catalog.recorded(snapshot))

    @property
    def sound(self) -> list[tuple[VersionRecord, VersionColumns]]:
        """Live versions whose columns are complete and have the registered types."""
        lost = {misfit.version for misfit in self.misfits}
        stored = self.registry.stored.items()
        return [(self.registry.record(name), columns) for name, columns in stored if name not in lost]

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Columns that the registry names and the table has not, or has of another type."""
        return self.catalog.misfits(self.snapshot)

    def run(self, version: str) -> RunRecord | None:
        """The open upgrade to a version, or None."""
        return run_of(self.registry, version)

    def count(self, condition: str) -> int:
        """Rows that fulfil an SQL condition."""
        return int(self.snapshot.count_rows(condition))

    def batches(self, columns: Sequence[str]) -> Iterator[ArrowBatch]:
        """Read columns of all rows, a few thousand rows at a time."""
        wanted = list(dict.fromkeys(columns))
        yield from self.snapshot.to_batches(
            columns=wanted, batch_size=BATCH_ROWS, batch_readahead=2, fragment_readahead=1
        )

    def call(self, verb: str, *operands: object, **options: object) -> str:
        """A call of a verb on this gallery."""
        return next_step.call(verb, *operands, at=self.catalog.store.location.uri, **options)  # type: ignore[arg-type]
