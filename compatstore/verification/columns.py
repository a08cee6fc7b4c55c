"""Columns: each live version's are there with their types, and none of ours is there for nobody."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.storage.misfits import way_out
from compatstore.verification.finding import Finding
from compatstore.verification.scene import Scene


def check_columns(scene: Scene) -> Iterator[Finding]:
    """Id, source and every live version's columns exist with the types that the registry says."""
    found, location = scene.misfits, scene.catalog.store.location
    for misfit in found:
        repair = way_out(misfit, found, scene.registry, scene.snapshot, location)
        yield Finding(check="columns", severity="error", what=str(misfit), repair=repair)


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
