"""Columns: each live version's are there with their types, and none of ours is there for nobody."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.storage.columns import VersionColumns
from compatstore.storage.records import VersionRecord
from compatstore.verification.finding import Finding
from compatstore.verification.scene import Scene


def check_columns(scene: Scene) -> Iterator[Finding]:
    """Id, source and every live version's columns exist with the types that the registry says."""
    registry = scene.registry
    for name in (registry.id_column, registry.source_column):
        if name is not None and name not in scene.snapshot.schema.names:
            yield _lost(f"column {name} of the items is gone", "Restore a table version that has it.")
    for record in registry.live:
        if record.columns is not None:
            yield from _of_version(scene, record, record.columns)


def _of_version(scene: Scene, record: VersionRecord, columns: VersionColumns) -> Iterator[Finding]:
    repair = (
        "Restore a table version that has it."
        if record.name == scene.registry.active
        else f"Make it anew: {scene.command('retire', record.name)} && {scene.command('upgrade', record.name)}"
    )
    for field, found in scene.unfit(columns):
        is_found = "is gone" if found is None else f"is {found}, expected {field.type}"
        yield _lost(f"column {field.name} of {record.name} {is_found}", repair)


def _lost(what: str, repair: str) -> Finding:
    return Finding(check="columns", severity="error", what=what, repair=repair)


def check_unused_columns(scene: Scene) -> Iterator[Finding]:
    """No column of ours is left that no version uses: a retire that was killed leaves them."""
    registry = scene.registry
    unused = registry.unused(scene.snapshot.schema.names)
    if unused:
        absent = next((record.name for record in registry.versions.values() if record.columns is None), "VERSION")
        yield Finding(
            check="unused columns",
            severity="warning",
            what=f"{', '.join(unused)}: no version uses them",
            repair=f"Drop them: {scene.command('retire', absent)}",
        )
