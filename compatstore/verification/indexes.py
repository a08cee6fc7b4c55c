"""Indexes: a version in use is indexed as its source is; few vectors wait to be indexed; the files are whole."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.errors import first_offenders
from compatstore.storage import indexes
from compatstore.storage.columns import VersionColumns
from compatstore.storage.failures import ends_whole
from compatstore.storage.files import Files
from compatstore.upgrade.states import CUTOVER
from compatstore.verification.context import CheckContext, Finding, Severity

UNINDEXED_SHARE = 0.1  # of a version's vectors; at this share a search takes twice as long


def check_indexes(context: CheckContext) -> Iterator[Finding]:
    """A target that is in use has an index where its source has one; few rows wait to be indexed."""
    store = context.catalog.store
    for record, columns in context.sound:
        vectors = context.count(columns.present)
        # Rows without a vector count as not indexed.
        waiting = indexes.unindexed_rows(store, columns.vector) - context.count(columns.missing)
        if waiting > UNINDEXED_SHARE * vectors:
            what = f"{waiting} of {vectors} vectors of {record.name} are not in its index, so searches are slow"
            yield _slow("note", what, _index(context, record.name))
        elif vectors >= indexes.MINIMUM_ROWS and _lacks_index(context, record.name, columns):
            yield _slow("warning", f"{record.name} has no index, its source has one", _index(context, record.name))


def _lacks_index(context: CheckContext, version: str, columns: VersionColumns) -> bool:
    store, run = context.catalog.store, context.run(version)
    if run is None or run.state != CUTOVER:  # before its cutover, that builds it
        return False
    source = context.registry.record(run.source).columns
    if source is None or indexes.describe(store, columns.vector) is not None:
        return False
    return indexes.describe(store, source.vector) is not None


def _index(context: CheckContext, version: str) -> str:
    return f'Build it: compatstore.Gallery.open("{context.catalog.store.location.uri}").create_index("{version}")'


def _slow(severity: Severity, what: str, repair: str) -> Finding:
    return Finding(check="indexes", severity=severity, what=what, repair=repair)


def check_index_files(context: CheckContext) -> Iterator[Finding]:
    """No file of an index is gone or cut short."""
    store = context.catalog.store
    for index in context.snapshot.describe_indices():
        for segment in index.segments:
            if getattr(segment, "base_id", None) is not None:
                continue
            files = Files(store.location, "_indices", str(segment.uuid))
            sizes = [files.size(name) for name in files.names()]
            kept = sum(size for size in sizes if size is not None)
            short = [name for name in files.names() if not ends_whole(files, name)]
            lacking = None not in sizes and segment.size_bytes is not None and kept != segment.size_bytes
            if short or lacking or not sizes:
                yield Finding(
                    check="index files",
                    severity="error",
                    what=f"files of the index {index.name} are gone or cut short: {first_offenders(short)}",
                    repair=f"Build it again: {_building(context, list(index.field_names))}",
                )


def _building(context: CheckContext, columns: list[str]) -> str:
    """How to build the index on a column again."""
    uri, registry = context.catalog.store.location.uri, context.registry
    if columns == [registry.id_column]:
        return f'lance.dataset("{uri}").create_scalar_index("{columns[0]}", "BTREE", replace=True)'
    for record in registry.live:
        if record.columns is not None and columns == [record.columns.vector]:
            return f'compatstore.Gallery.open("{uri}").create_index("{record.name}")'
    return f'as it was built: lance.dataset("{uri}").create_index("{columns[0]}", ..., replace=True)'
