"""Columns: each live version has its own with their types and its index; ids and origins hold what they must."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import Digests
from compatstore.errors import first_offenders
from compatstore.storage import indexes
from compatstore.storage.app_columns import overwritten_at, way_out
from compatstore.storage.columns import NATIVE, VersionColumns
from compatstore.storage.index_status import index_status
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.records import ArtifactRecord
from compatstore.storage.row_digests import hash_values
from compatstore.upgrade.leases.lease import leases_in
from compatstore.upgrade.states import CUTOVER
from compatstore.verification.context import CheckContext, Finding, Severity


def check_columns(context: CheckContext) -> Iterator[Finding]:
    """Id, source and every live version's columns exist with the types that the registry says."""
    found, location = context.misfits, context.catalog.store.location
    for misfit in found:
        repair = way_out(misfit, found, context.registry, context.snapshot, location)
        yield Finding(check="columns", severity="error", what=str(misfit), repair=repair)


def check_overwritten(context: CheckContext) -> Iterator[Finding]:
    """The app has not replaced the whole table since it was adopted: other vectors may be of another model."""
    registry, uri = context.registry, context.catalog.store.location.uri
    version = overwritten_at(registry, context.snapshot) if registry.adopted else None
    if version is not None:
        yield Finding(
            check="overwritten",
            severity="error",
            what=f"the table was overwritten in version {version}, after it was adopted: nothing tells of which model "
            "its vectors are",
            repair=f"Adopt it again, as it is now: {next_step.adopting(uri, again=True)}",
        )


def check_unused_columns(context: CheckContext) -> Iterator[Finding]:
    """No column of ours is left that no version uses: a retire that was killed leaves them."""
    registry, unused = context.registry, _unused(context)
    if unused:  # between the two commits of a retirement it is so for a moment
        time.sleep(0.2)
        unused = tuple(name for name in _unused(CheckContext.of(context.catalog)) if name in unused)
    if unused:
        absent = next((record.name for record in registry.versions.values() if record.columns is None), "VERSION")
        yield Finding(
            check="unused columns",
            severity="warning",
            what=f"{', '.join(unused)}: no version uses them",
            repair=f"Drop them: {context.call('retire', absent)}",
        )


def _unused(context: CheckContext) -> tuple[str, ...]:
    """Columns of ours that no version has, without those that somebody who works now is about to record."""
    names = context.snapshot.schema.names
    unused = context.registry.unused(names)
    held = unused and any(lease.held for lease in leases_in(LeaseTable(context.catalog.store.location).read()))
    return context.registry.droppable(names) if held else unused


PART_ROWS = 8_000_000  # digests that are held and sorted at a time, 64 MB


def check_ids(context: CheckContext) -> Iterator[Finding]:
    """No id is null or occurs twice."""
    nulls = context.count(f"`{context.registry.id_column}` IS NULL")
    if nulls:
        yield _wrong(f"{nulls} items have no id", "Remove them, or give them ids, where the table is written.")
    repeated = _repeated(context)
    if repeated:
        named = first_offenders(sorted(repeated, key=str))
        repair = f"Keep one of each: delete the id with Gallery.delete, then {context.call('add', next_step.FILE)}"
        yield _wrong(f"{len(repeated)} ids occur more than once: {named}", repair)


def _wrong(what: str, repair: str) -> Finding:
    return Finding(check="ids", severity="error", what=what, repair=repair)


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


KEPT = 100  # distinct origins that are told apart; a sound gallery has a few


def check_origins(context: CheckContext) -> Iterator[Finding]:
    """Every origin is `native` or a chain of linked artifacts that ends at its version."""
    for record, columns in context.sound:
        if columns.origin is None:
            continue
        for origin, rows in _count(context, columns.origin).items():
            why = _objection(context, record.name, origin)
            if why:
                yield Finding(
                    check="origins",
                    severity="error",
                    what=f"{rows} vectors of {record.name} say that {origin!r} made them: {why}",
                    repair=f"Link the artifact that did: {context.call('link', next_step.ARTIFACT)}",
                )


def _count(context: CheckContext, column: str) -> Counter[str]:
    """Rows of each origin, of the first `KEPT` that occur."""
    found: Counter[str] = Counter()
    for batch in context.batches([column]):
        for entry in pc.value_counts(batch.column(0).drop_null()).to_pylist():
            if entry["values"] in found or len(found) < KEPT:
                found[entry["values"]] += entry["counts"]
    return found


def _objection(context: CheckContext, version: str, origin: str) -> str:
    """What is wrong with an origin; "" where nothing is."""
    if origin == NATIVE:
        return ""
    chain = []
    for short in origin.split("+"):
        linked = [record for full, record in context.registry.artifacts.items() if short and full.startswith(short)]
        if len(linked) != 1:
            return f"{len(linked)} linked artifacts have the id {short!r}"
        chain += linked
    return _broken(chain, version)


def _broken(chain: Sequence[ArtifactRecord], version: str) -> str:
    ends = [record.target for record in chain]
    starts = [*(record.source for record in chain[1:]), version]
    steps = [f"{record.source} -> {record.target}" for record in chain]
    return "" if ends == starts else f"{first_offenders(steps)} does not lead to {version}"


UNINDEXED_SHARE = 0.1  # of a version's vectors; at this share a search takes twice as long


def check_indexes(context: CheckContext) -> Iterator[Finding]:
    """A target that is in use has an index where its source has one; few rows wait to be indexed."""
    store = context.catalog.store
    for record, columns in context.sound:
        vectors = context.count(columns.present)
        index = index_status(store, record.name, context.snapshot)
        if index.kind and index.unindexed_rows > UNINDEXED_SHARE * vectors:
            what = f"{index.unindexed_rows} of {vectors} vectors of {record.name} are not in its index"
            repair = f"Take them in: {context.call('index refresh', record.name)}"
            yield _slow("note", f"{what}, so searches are slow", repair)
        elif vectors >= indexes.MINIMUM_ROWS and _lacks_index(context, record.name, columns):
            repair = f"Build it: {context.call('index create', record.name)}"
            yield _slow("warning", f"{record.name} has no index, its source has one", repair)


def _lacks_index(context: CheckContext, version: str, columns: VersionColumns) -> bool:
    store, run = context.catalog.store, context.run(version)
    if run is None or run.state != CUTOVER:  # before its cutover, that builds it
        return False
    source = context.registry.record(run.source).columns
    if source is None or indexes.describe(store, columns.vector) is not None:
        return False
    return indexes.describe(store, source.vector) is not None


def _slow(severity: Severity, what: str, repair: str) -> Finding:
    return Finding(check="indexes", severity=severity, what=what, repair=repair)
