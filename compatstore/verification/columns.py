"""Columns and rows of each live version: types, index, ids and origins, and that the parts of an item fit together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowBatch, BoolArray, Digests
from compatstore.errors import Incompatible, InvalidInput, first_offenders
from compatstore.storage import indexes
from compatstore.storage.app_columns import overwritten_at, way_out
from compatstore.storage.columns import NATIVE, VersionColumns, hash_values
from compatstore.storage.index_status import index_status
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.records import VersionRecord
from compatstore.storage.registry import unsearchable
from compatstore.storage.same_model import compare
from compatstore.storage.vector_form import to_matrix
from compatstore.upgrade.leases.lease import leases_in
from compatstore.upgrade.states import CUTOVER
from compatstore.verification.context import CheckContext, Observation, Severity, Tally


def check_columns(context: CheckContext) -> Iterator[Observation]:
    """Id, source and every live version's columns exist with the types of the registry."""
    found, location = context.misfits, context.catalog.store.location
    for misfit in found:
        yield "error", str(misfit), way_out(misfit, found, context.registry, context.snapshot, location)


def check_overwritten(context: CheckContext) -> Iterator[Observation]:
    """The app has not replaced the whole table since it was adopted: other vectors may be of another model."""
    registry, uri = context.registry, context.catalog.store.location.uri
    version = overwritten_at(registry, context.snapshot) if registry.adopted else None
    if version is not None:
        after = f"the table was overwritten in version {version}, after it was adopted"
        what = f"{after}: the model of its vectors is unknown"
        yield "error", what, f"Adopt it again, as it is now: {next_step.adopting(uri, again=True)}"


def check_unused_columns(context: CheckContext) -> Iterator[Observation]:
    """No column of ours is left that no version uses: a retire that was killed leaves them."""
    registry, unused = context.registry, _unused(context)
    if unused:  # between the two commits of a retirement it is so for a moment
        time.sleep(0.2)
        unused = tuple(name for name in _unused(CheckContext.of(context.catalog)) if name in unused)
    if unused:
        absent = next((record.name for record in registry.versions.values() if record.columns is None), "VERSION")
        yield "warning", f"{', '.join(unused)}: no version uses them", f"Drop them: {context.call('retire', absent)}"


def _unused(context: CheckContext) -> tuple[str, ...]:
    """Columns of ours that no version has, without those that an active worker is about to record."""
    names = context.snapshot.schema.names
    unused = context.registry.unused(names)
    held = unused and any(lease.held for lease in leases_in(LeaseTable(context.catalog.store.location).read()))
    return context.registry.droppable(names) if held else unused


PART_ROWS = 8_000_000  # digests that are held and sorted at a time, 64 MB


def check_ids(context: CheckContext) -> Iterator[Observation]:
    """No id is null or occurs twice."""
    nulls = context.count(f"`{context.registry.id_column}` IS NULL")
    if nulls:
        yield "error", f"{nulls} items have no id", "Remove them, or give them ids, where the table is written."
    repeated = _repeated(context)
    if repeated:
        what = f"{len(repeated)} ids occur more than once: {first_offenders(sorted(repeated, key=str))}"
        again = context.call("add", next_step.FILE)
        yield "error", what, f"Keep one of each: delete the id with Gallery.delete, then {again}"


def _repeated(context: CheckContext) -> list[object]:
    """Ids that occur more than once.

    Found by their digests, a part of all digests at a time, so that memory does not grow with the gallery; then
    counted by themselves, as two ids may share a digest.
    """
    parts = 1 + context.snapshot.count_rows() // PART_ROWS
    suspects = np.concatenate([_repeated_digests(context, part, parts) for part in range(parts)])
    if not len(suspects):
        return []
    counts: Counter[object] = Counter()
    for batch in context.batches([context.registry.id_column]):
        ids = batch.column(0)
        counts.update(ids.filter(np.isin(hash_values(ids), suspects)).to_pylist())
    return [item for item, count in counts.items() if count > 1 and item is not None]


def _repeated_digests(context: CheckContext, part: int, parts: int) -> Digests:
    """Digests that occur more than once, of those that leave `part` when divided by `parts`."""
    kept = [np.zeros(0, np.uint64)]
    for batch in context.batches([context.registry.id_column]):
        digests = hash_values(batch.column(0).drop_null())
        kept.append(digests[digests % np.uint64(parts) == part])
    ordered = np.sort(np.concatenate(kept))
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


KEPT = 100  # distinct origins that are counted; a sound gallery has a few


def check_origins(context: CheckContext) -> Iterator[Observation]:
    """Every origin is `native` or a chain of linked artifacts that ends at its version."""
    for record, columns in context.sound:
        if columns.origin is None:
            continue
        for origin, rows in _count(context, columns.origin).items():
            why = _objection(context, record.name, origin)
            if why:
                what = f"{rows} vectors of {record.name} say that {origin!r} made them: {why}"
                yield "error", what, f"Link the artifact that did: {context.call('link', next_step.ARTIFACT)}"


def _count(context: CheckContext, column: str) -> Counter[str]:
    """Rows of each origin, of the first `KEPT` that occur."""
    found: Counter[str] = Counter()
    for batch in context.batches([column]):
        for entry in pc.value_counts(batch.column(0).drop_null()).to_pylist():
            if entry["values"] in found or len(found) < KEPT:
                found[entry["values"]] += entry["counts"]
    return found


def _objection(context: CheckContext, version: str, origin: str) -> str:
    """The fault of an origin; "" for none."""
    if origin == NATIVE:
        return ""
    chain = []
    for short in origin.split("+"):
        linked = [record for full, record in context.registry.artifacts.items() if short and full.startswith(short)]
        if len(linked) != 1:
            return f"{len(linked)} linked artifacts have the id {short!r}"
        chain += linked
    ends = [record.target for record in chain]
    starts = [*(record.source for record in chain[1:]), version]
    steps = [f"{record.source} -> {record.target}" for record in chain]
    return "" if ends == starts else f"{first_offenders(steps)} does not lead to {version}"


UNINDEXED_SHARE = 0.1  # of a version's vectors; at this share a search takes twice as long


def check_indexes(context: CheckContext) -> Iterator[Observation]:
    """A target that is in use has an index where its source has one; few rows wait to be indexed."""
    store = context.catalog.store
    for record, columns in context.sound:
        vectors = context.count(columns.present)
        index = index_status(store, record.name, context.snapshot)
        if index.kind and index.unindexed_rows > UNINDEXED_SHARE * vectors:
            what = f"{index.unindexed_rows} of {vectors} vectors of {record.name} are not in its index"
            yield "note", f"{what}, so searches are slow", f"Take them in: {context.call('index refresh', record.name)}"
        elif vectors >= indexes.MINIMUM_ROWS and _lacks_index(context, record.name, columns):
            repair = f"Build it: {context.call('index create', record.name)}"
            yield "warning", f"{record.name} has no index, its source has one", repair


def _lacks_index(context: CheckContext, version: str, columns: VersionColumns) -> bool:
    run = context.run(version)
    if run is None or run.state != CUTOVER:  # the cutover builds it
        return False
    source = context.registry.record(run.source).columns
    own, its = (each and indexes.describe(context.catalog.store, each.vector) for each in (columns, source))
    return own is None and its is not None


NORM_TOLERANCE = {"float32": 1e-3, "float16": 5e-3}


@dataclass(frozen=True)
class VersionRows:
    """A version's columns in one batch.

    Attributes:
        context: The gallery.
        record: The version.
        columns: Its columns.
        base: Columns of the version whose vectors its input hash digests, or None.
        batch: Arrow batch of them, the ids, and the inputs of the input hash.
    """

    context: CheckContext
    record: VersionRecord
    columns: VersionColumns
    base: VersionColumns | None
    batch: ArrowBatch

    def has(self, column: str | None) -> BoolArray:
        """Mask of present values, (n,) bool; False for a column that the version lacks."""
        if column is None:
            return np.zeros(self.batch.num_rows, bool)
        return _bools(self.batch[column].is_valid())

    def half_written(self) -> BoolArray:
        """A vector without its origin or input hash, or these or an uncertainty without a vector.

        The input hash of a version that was made from no other is meaningless, and apps leave it out.
        """
        present = self.has(self.columns.vector)
        wrong = self.has(self.columns.uncertainty) & ~present
        for column in (self.columns.origin, self.columns.input_hash if self.base else None):
            if column is not None:
                wrong |= present != self.has(column)
        return wrong

    def uncertain_natives(self) -> BoolArray:
        """An uncertainty where nothing was transformed."""
        return self.natives() & self.has(self.columns.uncertainty)

    def natives(self) -> BoolArray:
        """Mask of vectors made by a model, (n,) bool; all False for a version without origins."""
        if self.columns.origin is None:
            return np.zeros(self.batch.num_rows, bool)
        return _bools(pc.equal(self.batch[self.columns.origin], NATIVE).fill_null(False))

    def not_finite(self) -> BoolArray:
        """NaN or infinite values, in the vector, the side-information or the uncertainty."""
        finite = np.asarray(np.isfinite(to_matrix(self.batch[self.columns.vector], self.columns.width)[0]).all(axis=1))
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
        """Mask of lists with other values than zeros after the first `dim`, (n,) bool."""
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


@dataclass(frozen=True)
class Flaw:
    """A kind of flaw: the mask of its rows, its severity, and its message."""

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


def check_rows(context: CheckContext) -> Iterator[Observation]:
    """The columns of every item in every live version fit together."""
    sound = {record.name: columns for record, columns in context.sound}
    for record, columns in context.sound:
        base = sound.get(record.input_version or "")
        tallies = {flaw: Tally() for flaw in FLAWS}
        read = [] if base is None else base.hashed_names(context.registry.source_column)
        for batch in context.batches([context.registry.id_column, *columns.names, *read]):
            rows = VersionRows(context, record, columns, base, batch)
            for flaw, tally in tallies.items():
                tally.add(flaw.rows(rows), batch[context.registry.id_column])
        for flaw, tally in tallies.items():
            if tally.rows:
                yield flaw.severity, f"{tally} {flaw.what}, in {record.name}", _repair(context, record, flaw)


def _repair(context: CheckContext, record: VersionRecord, flaw: Flaw) -> str:
    if flaw.rows is VersionRows.stale:
        return f"Make them again: {context.call('upgrade', record.name)}"
    if context.run(record.name) is not None and record.name != context.registry.active:
        again = next_step.both(context.call("retire", record.name), context.call("upgrade", record.name))
        return f"Write these items again, or begin the upgrade again: {again}"
    return f"Write these items again: {context.call('add', next_step.FILE, upsert=True)}"


def check_missing(context: CheckContext) -> Iterator[Observation]:
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
    yield "warning", f"{missing} items have no vector in {active}: searches do not find them", repair


def check_vectors(context: CheckContext) -> Iterator[Observation]:
    """A few native items of each version, embedded again, have the vectors that are stored."""
    for record, columns in context.sound:
        try:
            encoder = context.catalog.encoder(record.name)
            found = None if encoder is None else compare(context.snapshot, context.registry, columns, encoder)
        except (Incompatible, InvalidInput) as error:  # code that is not trusted; no item that can be embedded again
            yield "note", f"{record.name}: {error}", error.fix
            continue
        if found is None:
            what = f"{record.name} has no encoder here; its vectors were not compared with its model"
            model = next_step.either(
                shell=f"--encoder {record.name}=ENCODER", python=f"Gallery.open(..., encoders={{'{record.name}': ...}})"
            )
            yield "note", what, f"Name its model: {model}, and give {next_step.same()} again."
            continue
        if found.same < found.items:
            others = f"{found.items - found.same} of {found.items} items of {record.name}"
            again = context.call("add", next_step.FILE, upsert=True)
            yield (
                "warning" if found.is_same else "error",
                f"{others} have other vectors than its model gives",
                f"Name the model that made them, or embed them again: {again}",
            )
