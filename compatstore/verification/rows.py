"""Rows: the vector, origin, uncertainty, input hash and side-information of an item fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowBatch, BoolArray
from compatstore.errors import Incompatible, InvalidInput, first_offenders
from compatstore.storage.columns import NATIVE, VersionColumns
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import unsearchable
from compatstore.storage.same_model import compare
from compatstore.storage.vector_form import to_matrix
from compatstore.verification.context import CheckContext, Finding, Severity

NORM_TOLERANCE = {"float32": 1e-3, "float16": 5e-3}
NAMED = 5


@dataclass
class Tally:
    """Rows with one flaw: how many, and the ids of the first."""

    rows: int = 0
    first: list[Any] = field(default_factory=list)

    def add(self, flawed: BoolArray, ids: ArrowArray) -> None:
        """Count the flawed rows of a batch."""
        self.rows += int(flawed.sum())
        if len(self.first) < NAMED:
            self.first += ids.take(np.flatnonzero(flawed)[: NAMED - len(self.first)]).to_pylist()

    def __str__(self) -> str:
        more = [""] * (self.rows - len(self.first))
        return f"{self.rows} items ({first_offenders([*self.first, *more], NAMED)})"


@dataclass(frozen=True)
class VersionRows:
    """A version's columns in one batch.

    Attributes:
        context: The gallery.
        record: The version.
        columns: Its columns.
        base: Columns of the version whose vectors its input hash digests, or None.
        batch: Arrow batch of them, the ids, and what the input hash digests.
    """

    context: CheckContext
    record: VersionRecord
    columns: VersionColumns
    base: VersionColumns | None
    batch: ArrowBatch

    def has(self, column: str | None) -> BoolArray:
        """(n,) bool, whether a value is there; of a column that the version has not, none is."""
        if column is None:
            return np.zeros(self.batch.num_rows, bool)
        return _bools(self.batch[column].is_valid())

    def half_written(self) -> BoolArray:
        """A vector without its origin or input hash, or these or an uncertainty without a vector.

        The input hash of a version that was made from no other says nothing, and apps leave it out.
        """
        present = self.has(self.columns.vector)
        wrong = np.zeros(len(present), bool)
        for column in (self.columns.origin, self.columns.input_hash if self.base else None):
            if column is not None:
                wrong |= present != self.has(column)
        return wrong | (self.has(self.columns.uncertainty) & ~present)

    def uncertain_natives(self) -> BoolArray:
        """An uncertainty where nothing was transformed."""
        return self.natives() & self.has(self.columns.uncertainty)

    def natives(self) -> BoolArray:
        """(n,) bool, true where a model made the vector; of a version without origins, nowhere."""
        if self.columns.origin is None:
            return np.zeros(self.batch.num_rows, bool)
        return _bools(pc.equal(self.batch[self.columns.origin], NATIVE).fill_null(False))

    def not_finite(self) -> BoolArray:
        """NaN or infinite values, in the vector, the side-information or the uncertainty."""
        finite = _finite(self.batch[self.columns.vector], self.columns.width)
        side = self.columns.read_items(self.batch).side
        if side is not None:
            finite &= np.asarray(np.isfinite(side).all(axis=1), bool)
        if self.columns.uncertainty is not None:
            finite &= _bools(pc.is_finite(self.batch[self.columns.uncertainty]).fill_null(True))
        return ~finite

    def not_normalised(self) -> BoolArray:
        """Not of unit length, where the version's vectors are."""
        if not self.record.normalised:
            return np.zeros(self.batch.num_rows, bool)
        vectors, valid = to_matrix(self.batch[self.columns.vector], self.columns.dim)
        off = np.abs(np.linalg.norm(vectors, axis=1) - 1) > NORM_TOLERANCE[self.columns.dtype]
        return np.asarray(valid & off & np.isfinite(vectors).all(axis=1), bool)

    def padded_wrongly(self) -> BoolArray:
        """Other values than zeros behind the vector's own, or the side-information's."""
        wrong = self._behind(self.columns.vector, self.columns.dim, self.columns.width)
        if self.columns.side and self.columns.side_dim and self.columns.side_width:
            wrong |= self._behind(self.columns.side, self.columns.side_dim, self.columns.side_width)
        return wrong

    def _behind(self, column: str, dim: int, width: int) -> BoolArray:
        """(n,) bool, whether a list has anything but zeros behind its first `dim` values."""
        return np.asarray(to_matrix(self.batch[column], width)[0][:, dim:].any(axis=1), bool)

    def stale(self) -> BoolArray:
        """Made from another source vector, or another `source`, than the item has now."""
        input_hash = self.columns.input_hash
        if self.base is None or input_hash is None:
            return np.zeros(self.batch.num_rows, bool)
        now = self.base.input_hashes(self.batch, self.context.registry.source_column)
        then = self.batch[input_hash].fill_null(0).to_numpy(zero_copy_only=False)
        return np.asarray(self.has(self.columns.vector) & self.has(input_hash) & ~now.fit(then, self.natives()))


def _bools(array: ArrowArray) -> BoolArray:
    return np.asarray(array.to_numpy(zero_copy_only=False), bool)


def _finite(array: ArrowArray, width: int) -> BoolArray:
    """(n,) bool, whether all values of a row's list are finite; a null list is."""
    return np.asarray(np.isfinite(to_matrix(array, width)[0]).all(axis=1), bool)


@dataclass(frozen=True)
class Flaw:
    """A kind of flaw: which rows have it, how bad it is, and how to say so."""

    rows: Callable[[VersionRows], BoolArray]
    severity: Severity
    what: str


FLAWS = (
    Flaw(
        VersionRows.half_written, "error", "have a vector without its origin and input hash, or these without a vector"
    ),
    Flaw(VersionRows.uncertain_natives, "error", "have an uncertainty, but no transformed vector"),
    Flaw(VersionRows.not_finite, "error", "have NaN or infinite values"),
    Flaw(VersionRows.not_normalised, "warning", "have vectors that are not of unit length, as the version's are"),
    Flaw(VersionRows.padded_wrongly, "error", "have other values than zeros behind their vectors"),
    Flaw(VersionRows.stale, "warning", "have a stale vector: the item changed after it was made"),
)


def check_rows(context: CheckContext) -> Iterator[Finding]:
    """What the table keeps of every item in every live version fits together."""
    sound = {record.name: columns for record, columns in context.sound}
    for record, columns in context.sound:
        base = sound.get(record.input_version or "")
        tallies = {flaw: Tally() for flaw in FLAWS}
        for batch in context.batches(_names(context, columns, base)):
            rows = VersionRows(context, record, columns, base, batch)
            for flaw, tally in tallies.items():
                tally.add(flaw.rows(rows), batch[context.registry.id_column])
        for flaw, tally in tallies.items():
            if tally.rows:
                yield Finding(
                    check="rows",
                    severity=flaw.severity,
                    what=f"{tally} {flaw.what}, in {record.name}",
                    repair=_repair(context, record, flaw),
                )


def _names(context: CheckContext, columns: VersionColumns, base: VersionColumns | None) -> list[str]:
    """Columns to read: the version's, the ids, and what its input hash digests."""
    registry = context.registry
    return [registry.id_column, *columns.names, *([] if base is None else base.hashed_names(registry.source_column))]


def _repair(context: CheckContext, record: VersionRecord, flaw: Flaw) -> str:
    if flaw.rows is VersionRows.stale:
        return f"Make them again: {context.call('upgrade', record.name)}"
    if context.run(record.name) is not None and record.name != context.registry.active:
        again = next_step.both(context.call("retire", record.name), context.call("upgrade", record.name))
        return f"Write these items again, or begin the upgrade again: {again}"
    return f"Write these items again: {context.call('add', next_step.FILE, upsert=True)}"


def check_missing(context: CheckContext) -> Iterator[Finding]:
    """Every item has a vector in the active version, or searches do not find it."""
    active = context.registry.active
    condition = unsearchable(context.registry, active)
    missing = context.count(condition)
    if not missing:
        return
    run, repair = context.run(active), f"Write them again: {context.call('add', next_step.FILE, upsert=True)}"
    if run is not None:
        source = context.registry.record(run.source).columns
        hopped = run.path and source is not None and context.count(f"({condition}) AND ({source.present})") == missing
        share = None if hopped else 1.0  # the path makes vectors of the source's, as long as these are there
        again = context.call("upgrade", active, backfill=share)
        repair = f"{'Transform' if hopped else 'Embed'} them: {again}; or w{repair[1:]}"
    yield Finding(
        check="missing",
        severity="warning",
        what=f"{missing} items have no vector in {active}: searches do not find them",
        repair=repair,
    )


def check_vectors(context: CheckContext) -> Iterator[Finding]:
    """A few native items of each version, embedded again, have the vectors that are stored."""
    for record, columns in context.sound:
        try:
            encoder = context.catalog.encoder(record.name)
        except Incompatible as error:  # code that is not trusted
            yield Finding(check="vectors", severity="note", what=f"{record.name}: {error}", repair=error.fix)
            continue
        if encoder is None:
            what = f"{record.name} has no encoder here; its vectors were not compared with its model"
            model = next_step.either(
                shell=f"--encoder {record.name}=ENCODER",
                python=f"Gallery.open(..., encoders={{'{record.name}': ...}})",
            )
            fix = f"Name its model: {model}, and give {next_step.same()} again."
            yield Finding(check="vectors", severity="note", what=what, repair=fix)
            continue
        try:
            found = compare(context.snapshot, context.registry, columns, encoder)
        except InvalidInput as error:  # no item that can be embedded again
            yield Finding(check="vectors", severity="note", what=f"{record.name}: {error}", repair=error.fix)
            continue
        if found.same < found.items:
            yield Finding(
                check="vectors",
                severity="warning" if found.is_same else "error",
                what=f"{found.items - found.same} of {found.items} items of {record.name} have other vectors than its "
                "model gives",
                repair="Name the model that made them, or embed them again: "
                f"{context.call('add', next_step.FILE, upsert=True)}",
            )
