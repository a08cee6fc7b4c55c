"""The state of a gallery at a quiet point, read in the process that has brought it there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from stores.lives.world import LEARN, new, old, target

import compatstore as cs
from compatstore.artifacts import Artifact
from compatstore.errors import UpgradeError


@dataclass
class Settled:
    """A gallery, and what it says of itself.

    Attributes:
        rows: Id -> values of its columns.
        made: Id -> vector that the artifact of its origin makes of the source vector.
        active: Active version.
        versions: Versions that have a column.
        switched: Target that the app reads.
        held: Target -> number of vectors that the store is known to hold.
        findings: What a verification finds.
        found: Ids of searches.
        missing: Rows without a vector of the active version.
        second: Result of a sync when nothing changed.
    """

    rows: dict
    made: dict
    active: str
    versions: list
    switched: str
    held: dict
    findings: list
    found: dict
    missing: int
    second: dict


def settle(gallery, share):
    """Sync, go on with the upgrade if there is one, sync, and read."""
    gallery.sync()
    placed = gallery.status().store.held
    if "v2" in placed and "v1" in columns(gallery):
        gallery.upgrade(target(), backfill=share, learn=LEARN)
    gallery.sync()
    second = vars(gallery.sync())
    status = gallery.status()
    names = columns(gallery)
    rows = {row["id"]: row for row in gallery._catalog.store.snapshot().to_table().to_pylist()}
    return Settled(
        rows,
        _made(gallery, rows),
        status.active,
        names,
        status.store.switched,
        dict(status.store.held),
        [finding.what for finding in gallery.maintenance.verify().findings if finding.check == "store"],
        _found(gallery, names, status),
        status.missing,
        second,
    )


def columns(gallery):
    """Versions with vectors in the gallery."""
    return [name for name, record in gallery._catalog.recorded().versions.items() if record.columns is not None]


def _made(gallery, rows):
    folder, made = Path(gallery._catalog.store.location.child("_compatstore")), {}
    for record in gallery.artifacts:
        artifact = Artifact.from_bytes((folder / record.manifest).read_bytes(), (folder / record.weights).read_bytes())
        chosen = [key for key, row in rows.items() if row.get("v2__origin") == artifact.short_id and row.get("v1")]
        if chosen:
            vectors = artifact.apply(np.array([rows[key]["v1"] for key in chosen], np.float32)).vectors
            made |= dict(zip(chosen, vectors, strict=True))
    return made


def _found(gallery, names, status):
    """Ids that searches give: here, and by the store's own indexes."""
    text, found = ["word1 word2"], {}
    queries = {name: embed(text) for name, embed in (("v1", old), ("v2", new)) if name in names}
    if status.rows and status.active in queries:
        active = {status.active: queries[status.active]}
        found["here"] = gallery.search(active, k=1000, columns=["id"])["id"].to_pylist()
        try:
            serving = cs.StoreIndexes(depth=1000)
            found["store"] = gallery.search(queries, k=1000, columns=["id"], serving=serving)["id"].to_pylist()
        except UpgradeError as error:
            found["refused"] = str(error)
    return found
