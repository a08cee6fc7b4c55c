"""Indexes: a version that searches use is indexed as its source is, and its index is up to date."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.storage import vector_index
from compatstore.storage.columns import VersionColumns
from compatstore.upgrade.states import CUTOVER
from compatstore.verification.context import CheckContext
from compatstore.verification.finding import Finding, Severity

UNINDEXED_SHARE = 0.1  # of a version's vectors; so many double the time of a search


def check_indexes(context: CheckContext) -> Iterator[Finding]:
    """A target that is in use has an index where its source has one; few rows wait to be indexed."""
    store = context.catalog.store
    for record, columns in context.sound:
        vectors = context.count(columns.present)
        # Rows without a vector count as not indexed.
        waiting = vector_index.unindexed_rows(store, columns.vector) - context.count(columns.missing)
        if waiting > UNINDEXED_SHARE * vectors:
            what = f"{waiting} of {vectors} vectors of {record.name} are not in its index, so searches are slow"
            yield _slow("note", what, _index(context, record.name))
        elif vectors >= vector_index.MINIMUM_ROWS and _lacks_index(context, record.name, columns):
            yield _slow("warning", f"{record.name} has no index, its source has one", _index(context, record.name))


def _lacks_index(context: CheckContext, version: str, columns: VersionColumns) -> bool:
    store, run = context.catalog.store, context.run(version)
    if run is None or run.state != CUTOVER:  # before its cutover, that builds it
        return False
    source = context.registry.record(run.source).columns
    if source is None or vector_index.describe(store, columns.vector) is not None:
        return False
    return vector_index.describe(store, source.vector) is not None


def _index(context: CheckContext, version: str) -> str:
    return f'Build it: compatstore.Gallery.open("{context.catalog.store.location.uri}").create_index("{version}")'


def _slow(severity: Severity, what: str, repair: str) -> Finding:
    return Finding(check="indexes", severity=severity, what=what, repair=repair)
