"""Natives that searches made, on their way into the table, as the backfill writes its own: without its lease.

They are written as an `add` is: a commit that meets another writer's is made again from a later table version, and a
vector whose item was changed or deleted meanwhile is dropped, by the item's input hash. While a manager works on the
upgrade nothing is written: each commit would make one of the manager's fail. A manager who begins after the look meets
one such commit at most.

Where rows may move, a batch is in the table once it is written. In an adopted table, and where columns are to be
rewritten, it is staged beside the table as the backfill's own batches are, and the next `upgrade` folds it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from compatstore.arrays import FloatArray, Id
from compatstore.errors import LeaseHeld
from compatstore.storage.catalog import Catalog
from compatstore.storage.deltas import UNINDEXED_ROWS, update_index
from compatstore.storage.lease_files import Fence
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.location import Location
from compatstore.storage.moves import unmovable
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.upgrade.backfilling.staged_natives import StagedNatives
from compatstore.upgrade.backfilling.write_modes import NativeRows
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.leases.lease import lease_in
from compatstore.upgrade.states import run_of

Key: TypeAlias = tuple[Id, int]  # of an item as it was read: its id and its input hash
BATCH_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Native:
    """Native values of one item.

    Attributes:
        vector: (dim,) float32.
        side: (side_dim,) float32, NaN where there is none; None without a side-information encoder.
    """

    vector: FloatArray
    side: FloatArray | None


@dataclass(frozen=True)
class WrittenBack:
    """What became of the vectors that searches of this process have made.

    Attributes:
        rows: Vectors that this call made durable.
        waiting: Vectors that wait in memory yet.
    """

    rows: int
    waiting: int


def write_natives(catalog: Catalog, run: RunRecord, model: str, natives: Mapping[Key, Native]) -> int:
    """Write native vectors.

    Args:
        catalog: The gallery.
        run: The upgrade as it was when they were made.
        model: The model that made them.
        natives: By item.

    Returns:
        Vectors that are durable; 0 where the upgrade is over, and they are not needed any more.

    Raises:
        LeaseHeld: A manager works on the upgrade.
        StorageError: Other writers were faster each time. The table cannot be written.
    """
    location = catalog.store.location
    _require_free(location, run.target)
    current = _current(catalog.registry(), run, model)
    if current is None:
        return 0
    fence = Fence(run.target, current.lease, lambda: _require_free(location, run.target))
    context = UpgradeContext.of(catalog.fenced(fence), current)
    items = list(natives.items())
    try:
        for start in range(0, len(items), BATCH_ROWS):
            _write(context, dict(items[start : start + BATCH_ROWS]))
    except KeyError:
        if _current(catalog.registry(), run, model) is not None:
            raise
        return 0  # the target's columns were dropped meanwhile
    return len(items)


def _write(context: UpgradeContext, natives: Mapping[Key, Native]) -> None:
    ids, hashes = [key[0] for key in natives], np.array([key[1] for key in natives], np.uint64)
    vectors = np.stack([native.vector for native in natives.values()])
    made = [native.side for native in natives.values() if native.side is not None]
    side = np.stack(made) if len(made) == len(ids) else None
    if _rows_move(context):
        NativeRows(context).store(ids, vectors, hashes, side)
        update_index(context.store, more_than=UNINDEXED_ROWS)
    else:
        StagedNatives(context).store(ids, vectors, hashes, side)


def _rows_move(context: UpgradeContext) -> bool:
    """Whether rows may be written again with their natives in them; never those of an app, unless it was asked for."""
    mode = context.run.write_mode
    allowed = mode == "move_rows" or (mode == "auto" and not context.registry.adopted)
    return allowed and unmovable(context.snapshot) is None


def _current(registry: Registry, run: RunRecord, model: str) -> RunRecord | None:
    """The upgrade as it is by now; None where it is over, or another one or another model has its place."""
    current = run_of(registry, run.target)
    if current is None or current.identity != run.identity:
        return None
    record = registry.record(run.target)
    return current if record.columns is not None and record.model == model else None


def _require_free(location: Location, target: str) -> None:
    """Refuse to write while a manager works.

    Raises:
        LeaseHeld: One does.
    """
    lease = lease_in(LeaseTable(location).read(), target)
    if lease is not None and lease.held and not lease.abandoned:
        raise LeaseHeld(
            f"write back what searches embedded in {target}",
            target=target,
            holder=str(lease.holder),
            verb=lease.verb,
            since=lease.since,
            expires=lease.expires,
        )
