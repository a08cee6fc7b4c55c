"""Columns: each live version's are there with their types, and none of ours is there for nobody."""

from __future__ import annotations

from collections.abc import Iterator

from compatstore.storage.misfits import way_out
from compatstore.verification.context import CheckContext
from compatstore.verification.finding import Finding


def check_columns(context: CheckContext) -> Iterator[Finding]:
    """Id, source and every live version's columns exist with the types that the registry says."""
    found, location = context.misfits, context.catalog.store.location
    for misfit in found:
        repair = way_out(misfit, found, context.registry, context.snapshot, location)
        yield Finding(check="columns", severity="error", what=str(misfit), repair=repair)


def check_unused_columns(context: CheckContext) -> Iterator[Finding]:
    """No column of ours is left that no version uses: a retire that was killed leaves them."""
    registry = context.registry
    unused = registry.unused(context.snapshot.schema.names)
    if unused:
        absent = next((record.name for record in registry.versions.values() if record.columns is None), "VERSION")
        yield Finding(
            check="unused columns",
            severity="warning",
            what=f"{', '.join(unused)}: no version uses them",
            repair=f"Drop them: {context.command('retire', absent)}",
        )
