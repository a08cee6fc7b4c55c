"""A gallery and the store that it mirrors, compared without the ledger; read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compatstore import next_step
from compatstore.arrays import FloatArray, Id
from compatstore.errors import first_offenders
from compatstore.storage.catalog import Catalog
from compatstore.storage.ids import find
from compatstore.storage.registry import Registry
from compatstore.stores import tracking
from compatstore.stores.both_sides import sorted_out
from compatstore.stores.link import is_mirrored, syncing
from compatstore.stores.store import ID, VECTOR, digests, vector_column
from compatstore.stores.sync import Sync
from compatstore.upgrade.progress import Observer
from compatstore.verification.context import Finding, Verification

SAMPLE = 256  # vectors of each target that are compared


@dataclass(frozen=True)
class StoreComparison:
    """A gallery and its store, compared without the ledger.

    Attributes:
        rows: Rows of the store.
        only_in_store: Ids that the gallery lacks.
        only_in_gallery: Ids that the store lacks.
        other: Ids of rows whose vector of the app is another one here.
        stale: By target, ids whose vector there is not the gallery's: of a sample.
        lacking: By target, number of vectors of the gallery that its place lacks.
        captures: Faults of change captures, and captures of other mirrors: (clause, repair).
        is_tracked: True if a sync reads recorded changes alone.
    """

    rows: int
    only_in_store: list[Id]
    only_in_gallery: list[Id]
    other: list[Id]
    stale: dict[str, list[Id]]
    lacking: dict[str, int]
    captures: list[tuple[str, str]]
    is_tracked: bool


def compare(catalog: Catalog, caller: Observer) -> StoreComparison:
    """Compare all ids and vectors of the app's place, and a sample of each target's; read-only."""
    with syncing(catalog, caller) as sync:
        registry = catalog.registry()
        version = sync.switched or sync.link.source
        there = set[Id]()
        missing, other = list[Id](), list[Id]()
        for table in sync.store.scan(sync.link.parts):
            ids = table[ID].to_pylist()
            there.update(ids)
            here = _held_here(catalog, registry, version, ids)
            missing += sorted_out(ids, list(here))
            if version == sync.link.source:
                held = zip(ids, digests(table[VECTOR]), strict=True)
                other += [name for name, digest in held if name in here and here[name] != digest]
        snapshot = catalog.store.snapshot()
        gallery_ids = snapshot.to_table(columns=[registry.id_column])[registry.id_column].to_pylist()
        stale, lacking = dict[str, list[Id]](), dict[str, int]()
        for target in sync.ledger.targets():
            made = registry.columns(target)
            held_ids = set[Id]()
            for table in sync.store.read_target(target):
                held_ids.update(table[ID].to_pylist())
            named = snapshot.to_table(columns=[registry.id_column], filter=made.present)[registry.id_column].to_pylist()
            lacking[target] = len(set(named) - held_ids)
            rng = np.random.default_rng(0)
            both = sorted(set(named) & held_ids, key=str)
            chosen = [both[at] for at in rng.permutation(len(both))[:SAMPLE]]
            stale[target] = _differing(catalog, sync, target, chosen)
        gone = sorted_out(gallery_ids, list(there))
        captures = list(tracking.faults(sync.ledger, sync.store, sync.link.parts))
        is_tracked = bool(sync.ledger.noted(tracking.TRACKED))
        return StoreComparison(len(there), missing, gone, other, stale, lacking, captures, is_tracked)


def _held_here(catalog: Catalog, registry: Registry, version: str, ids: Sequence[Id]) -> dict[Id, bytes | None]:
    """Digests of the gallery's vectors of some items, by id; those that it lacks are left out."""
    vectors = _vectors(catalog, registry, version, ids)
    return {name: digest for name, (digest, _) in vectors.items()}


def _vectors(
    catalog: Catalog, registry: Registry, version: str, ids: Sequence[Id]
) -> dict[Id, tuple[bytes | None, FloatArray]]:
    found = find(catalog.store, registry.id_column, ids, [registry.id_column, *registry.columns(version).names])
    values = registry.columns(version).decode(found)
    column = vector_column(values.vectors, values.vectors.shape[1], values.valid)
    names = found[registry.id_column].to_pylist()
    return dict(zip(names, zip(digests(column), values.vectors, strict=True), strict=True))


def _differing(catalog: Catalog, sync: Sync, target: str, ids: Sequence[Id]) -> list[Id]:
    """Ids whose vector in the store is another one than the gallery's, beyond a store's rounding and scaling."""
    here, differing = _vectors(catalog, catalog.registry(), target, ids), list[Id]()
    for table in sync.store.read_target(target, ids):
        for name, there in zip(table[ID].to_pylist(), table[VECTOR].to_pylist(), strict=True):
            mine, other = np.asarray(here[name][1], np.float64), np.asarray(there, np.float64)
            scale = float(np.linalg.norm(mine) * np.linalg.norm(other))
            if scale and float(mine @ other) < (1 - 1e-3) * scale:
                differing.append(name)
    return differing


def verified(catalog: Catalog, result: Verification) -> Verification:
    """A verification with the differences between gallery and store; read-only."""
    if not is_mirrored(catalog):
        return result
    found = _differences(compare(catalog, Observer()))
    findings = [Finding(check="store", severity="warning", what=what, repair=repair) for what, repair in found]
    return replace(result, checks=(*result.checks, "store"), findings=(*result.findings, *findings))


def _differences(comparison: StoreComparison) -> Iterator[tuple[str, str]]:
    """Differences of a comparison: a clause, and what mends it."""
    fix = f"Sync: {next_step.call('sync')}"
    if comparison.is_tracked:
        fix += f"; if that finds nothing, compare all rows: {tracking.comparing_all()}"
    for ids, what in (
        (comparison.only_in_store, "rows of the store are not here"),
        (comparison.only_in_gallery, "items are not in the store"),
        (comparison.other, "vectors of the app are other ones in the store"),
    ):
        if ids:
            yield f"{len(ids)} {what}: {first_offenders(ids)}", fix
    for target, ids in comparison.stale.items():
        if ids:
            yield f"{len(ids)} of {SAMPLE} vectors of {target} in the store are stale: {first_offenders(ids)}", fix
    for target, count in comparison.lacking.items():
        if count:
            yield f"{count} vectors of {target} are not in the store yet", fix
    yield from comparison.captures
