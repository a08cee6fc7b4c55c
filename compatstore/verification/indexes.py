"""Indexes: a version that searches use is indexed as its source is, and its index is up to date."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.storage import vector_index
from compatstore.storage.columns import VersionColumns
from compatstore.upgrade.states import CUTOVER
from compatstore.verification.finding import Finding, Severity
from compatstore.verification.scene import Scene

UNINDEXED_SHARE = 0.1  # of a version's vectors; so many double the time of a search


def check_indexes(scene: Scene) -> Iterator[Finding]:
    """A target that is in use has an index where its source has one; few rows wait to be indexed."""
    store = scene.catalog.store
    for record, columns in scene.sound:
        vectors = scene.count(columns.present)
        # Rows without a vector count as not indexed.
        waiting = vector_index.unindexed_rows(store, columns.vector) - scene.count(columns.missing)
        if waiting > UNINDEXED_SHARE * vectors:
            what = f"{waiting} of {vectors} vectors of {record.name} are not in its index, so searches are slow"
            yield _slow("note", what, _index(scene, record.name))
        elif vectors >= vector_index.MINIMUM_ROWS and _lacks_index(scene, record.name, columns):
            yield _slow("warning", f"{record.name} has no index, its source has one", _index(scene, record.name))


def _lacks_index(scene: Scene, version: str, columns: VersionColumns) -> bool:
    store, run = scene.catalog.store, scene.run(version)
    if run is None or run.state != CUTOVER:  # before its cutover, that builds it
        return False
    source = scene.registry.record(run.source).columns
    if source is None or vector_index.describe(store, columns.vector) is not None:
        return False
    return vector_index.describe(store, source.vector) is not None


def _index(scene: Scene, version: str) -> str:
    return f'Build it: compatstore.Gallery.open("{scene.catalog.store.location.uri}").create_index("{version}")'


def _slow(severity: Severity, what: str, repair: str) -> Finding:
    return Finding(check="indexes", severity=severity, what=what, repair=repair)
