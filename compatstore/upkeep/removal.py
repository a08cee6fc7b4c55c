"""Remove unused versions and artifacts from the registry.

Past upgrades that named them are removed too. The history keeps their steps, and `optimize` removes their files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compatstore import next_step
from compatstore.errors import UpgradeError
from compatstore.storage.catalog import Catalog
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import ArtifactRecord
from compatstore.storage.registry import Registry, bridge_to, edit


def unregister(catalog: Catalog, name: str) -> None:
    """Remove an unused version.

    Raises:
        NotFound: There is no such version.
        UpgradeError: It is in use; the error states the use, and how to end it.
    """
    catalog.registry().record(name)

    def change(state: Registry) -> Registry:
        for found, fix in _uses_of_version(state, name):
            raise UpgradeError(f"unregister {name}", expected="a version that nothing uses", found=found, fix=fix)
        runs = {target: run for target, run in state.runs.items() if name not in (target, run.source, run.previous)}
        versions = {other: record for other, record in state.versions.items() if other != name}
        return replace(state, versions=versions, runs=runs)

    edit(catalog.store, change, HistoryEntry("unregister", name))


def unlink(catalog: Catalog, artifact: str) -> str:
    """Remove an unused artifact.

    Args:
        catalog: The gallery.
        artifact: Its id, or the first digits of it.

    Returns:
        Its id.

    Raises:
        NotFound: None is linked that has this id.
        UpgradeError: It is in use; the error states the use, and how to end it.
    """
    record = catalog.artifact_record(artifact)

    def change(state: Registry) -> Registry:
        for found, fix in _uses_of_artifact(catalog, state, record):
            raise UpgradeError(
                f"unlink {record.id[:12]}", expected="an artifact that nothing uses", found=found, fix=fix
            )
        runs = {target: run for target, run in state.runs.items() if record.id not in (*run.path, run.given)}
        kept = {other: linked for other, linked in state.artifacts.items() if other != record.id}
        return replace(state, artifacts=kept, runs=runs)

    note = f"{record.source} -> {record.target}"
    edit(catalog.store, change, HistoryEntry("unlink", record.target, artifact=record.id, note=note))
    return record.id


def _uses_of_version(registry: Registry, name: str) -> Iterator[tuple[str, str]]:
    """Uses of a version, each with the command that ends it."""
    if registry.active == name:
        fix = f"Cut over to another version first: {next_step.call('cutover', 'VERSION')}"
        yield f"{name} is the active version of searches", fix
    for run in registry.runs.values():
        if run.open and name in (run.target, run.source, run.previous):
            fix = f"End it first: {next_step.call('abort', run.target)}"
            yield f"the upgrade from {run.source} to {run.target} is under way", fix
    if registry.versions[name].columns is not None:
        yield f"the gallery keeps vectors of {name}", f"Drop them first: {next_step.call('retire', name)}"
    for artifact in registry.artifacts.values():
        if name in (artifact.source, artifact.target):
            fix = f"Unlink it first: {next_step.call('unlink', artifact.id[:12])}"
            yield f"artifact {artifact.id[:12]} leads from {artifact.source} to {artifact.target}", fix


def _uses_of_artifact(catalog: Catalog, registry: Registry, record: ArtifactRecord) -> Iterator[tuple[str, str]]:
    """Uses of an artifact, each with the command that ends it."""
    for run in registry.runs.values():
        if run.open and record.id in (*run.path, run.given):
            yield f"the upgrade to {run.target} applies it", f"End it first: {next_step.call('retire', run.source)}"
    for version, columns in registry.stored.items():
        by_it = f"`{columns.origin}` LIKE '%{record.id[:12]}%'"
        made = catalog.store.count(by_it) if columns.origin is not None else 0
        if made:
            yield (
                f"{made} vectors of {version} were made by it",
                f"Embed these items: {next_step.call('upgrade', version, backfill=1.0)}; "
                f"or drop the version: {next_step.call('retire', version)}",
            )
    bridge = bridge_to(registry, record.target)
    if bridge is not None and bridge.id == record.id:
        fix = f"Drop these first: {next_step.call('retire', record.source)}"
        yield f"queries of {record.target} search the vectors of {record.source} through it", fix
