"""Which items the artifacts of an upgrade have learned from: what they make of these says little of other items."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from compatstore.arrays import ArrowArray, BoolArray, Digests
from compatstore.digests import digest_half
from compatstore.storage.catalog import Catalog
from compatstore.storage.columns import VersionValues
from compatstore.storage.ids import find
from compatstore.storage.records import RunRecord
from compatstore.upgrade.transform import transformer_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Lessons:
    """Which items the artifacts of an upgrade were trained on, as far as the artifacts record it.

    Args:
        seen: (n,) bool, items that some artifact of the path has learned from.
        known: Whether every artifact says what it has learned from.
    """

    seen: BoolArray
    known: bool


def lessons_of(catalog: Catalog, run: RunRecord, source: VersionValues, ids: ArrowArray) -> Lessons:
    """Find the items that the artifacts of a run's path were trained on, by the digests that the artifacts keep.

    The first artifact of a chain has learned from vectors of the source. A later one has from native vectors of the
    version that it reads, or from what the ones before it make, where it was refitted.

    Args:
        catalog: The gallery.
        run: The upgrade.
        source: The source's values of n items, all of which can be transformed.
        ids: Arrow array of their ids.
    """
    seen, known = np.zeros(len(source.valid), bool), True
    transformer = transformer_of(catalog, run)
    for number, artifact in enumerate(transformer.artifacts):
        if artifact.seen is None:
            known = False
            continue
        read = replace(transformer, artifacts=transformer.artifacts[:number]).apply(source) if number else source
        seen |= np.isin(digest_half(read.vectors), artifact.seen)
        if number:
            natives = _native_seen(catalog, run.path[number], artifact.seen, ids)
            known &= natives is not None
            seen |= False if natives is None else natives
    return Lessons(seen=seen, known=known)


def _native_seen(catalog: Catalog, artifact_id: str, digests: Digests, ids: ArrowArray) -> BoolArray | None:
    """Items whose stored vector in the version that an artifact reads is among digests; None where it is retired."""
    registry = catalog.registry()
    columns, key = registry.record(catalog.artifact_record(artifact_id).source).columns, registry.id_column
    wanted = ids.to_pylist()
    if columns is None:
        return None
    rows = find(catalog.store, key, wanted, list(dict.fromkeys([key, *columns.names])))
    values = columns.decode(rows)
    learned = values.valid & np.isin(digest_half(values.vectors), digests)
    found = {item for item, hit in zip(rows.column(key).to_pylist(), learned, strict=True) if hit}
    return np.array([item in found for item in wanted], bool)
