"""Items that a search embeds natively: charged, embedded by one call of the encoder, and written as a backfill's are.

Searches hold no lease, so that none keeps a manager waiting. While a manager works on the upgrade, a search embeds
nothing. Else natives are written as an `add` is: a commit that meets another writer's is made again from a later table
version, and a vector whose item was changed or deleted meanwhile is dropped, by the item's input hash. A manager who
begins after the look meets one such commit at most.

If rows may move, the vectors are in the table once they are written. In an adopted table, and if columns are to be
rewritten, they are staged beside the table as the backfill's own batches are, found there by later searches, and folded
in by the next `upgrade`.
"""

from __future__ import annotations

import warnings
from contextlib import suppress

import numpy as np

from compatstore.arrays import ArrowTable, BoolArray, FloatArray
from compatstore.encoders import metered
from compatstore.errors import CompatStoreError, CompatStoreWarning, StorageError
from compatstore.storage.catalog import Catalog
from compatstore.storage.lease_table import LeaseTable
from compatstore.storage.ledger import ledger_of
from compatstore.storage.moves import unmovable
from compatstore.storage.records import RunRecord
from compatstore.storage.snapshot import Snapshot
from compatstore.storage.store import Fence
from compatstore.upgrade.backfilling.account import charge, settle
from compatstore.upgrade.backfilling.embeddable import expected_bill, inputs_of
from compatstore.upgrade.backfilling.embedding import Embedded, Embedder, ItemBatch, embedder_of
from compatstore.upgrade.backfilling.natives import NativeRows, staging_of
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.leases.lease import Lease, lease_in
from compatstore.upgrade.requests.run_settings import RunSettings
from compatstore.upgrade.states import run_of

PATIENCE = 2.0  # seconds that a search waits for an encoder whose rate limit is reached


def embed_candidates(
    catalog: Catalog, snapshot: Snapshot, run: RunRecord, rows: ArrowTable, native: BoolArray, in_all: int
) -> FloatArray:
    """Embed candidates of searches, and write their vectors.

    If the encoder raises, or its cost cannot be recorded, there is a warning and no vector: the search goes on without
    it. Items that the upgrade's backfill has listed as not embeddable are skipped.

    Args:
        catalog: The gallery.
        snapshot: The table version that was searched.
        run: The upgrade.
        rows: Arrow table of n rows: ids and the inputs of the input hash; several queries may share an item.
        native: (n,) bool, rows that need no vector.
        in_all: Items that all searches may embed for the upgrade.

    Returns:
        (n, dim) float32, NaN for native rows and for those without a vector.
    """
    context = UpgradeContext.of(catalog, run, snapshot)
    vectors: FloatArray = np.full((rows.num_rows, context.target.dim), np.nan, np.float32)
    if native.all():
        return vectors
    try:
        _embed(context, rows, native, in_all, vectors)
    except Exception as error:
        message = f"a search embeds nothing in {run.target}: {type(error).__name__}: {error}"
        warnings.warn(message, CompatStoreWarning, stacklevel=2)
    return vectors


def _embed(context: UpgradeContext, rows: ArrowTable, native: BoolArray, in_all: int, vectors: FloatArray) -> None:
    """Fill in the vectors of rows that are not native: those that are staged, and those that are embedded now."""
    registry, run, catalog = context.registry, context.run, context.catalog
    key, sources = registry.id_column, registry.source_column
    hashes = context.source.input_hashes(rows, sources).native
    staged = staging_of(context).read()
    at = np.where(native, -1, staged.positions(rows[key].combine_chunks(), hashes))
    if (at >= 0).any():
        vectors[at >= 0] = staged.read(at[at >= 0])[0]
    ids = rows[key].to_pylist()
    keys = list(zip(ids, hashes.tolist(), strict=True))
    embedder = embedder_of(context, RunSettings(retries=0))
    given = rows[sources].to_pylist() if sources else [None] * len(ids)
    inputs, refused = inputs_of(embedder.encoder, ids, given), set[tuple[object, int]]()
    with suppress(StorageError):  # `verify` reports a damaged account; a search can do without
        failed = ledger_of(catalog, registry, run).load()[1]
        refused.update(zip(failed["id"].to_pylist(), failed["input_hash"].to_pylist(), strict=True))
    lacking = [row for row in np.flatnonzero(~native & (at < 0)).tolist() if ids[row] is not None]
    first = {keys[row]: row for row in reversed(lacking) if inputs[row] is not None and keys[row] not in refused}
    chosen = sorted(first.values())
    if not chosen or _lease_of(context) is not None:
        return
    side = inputs_of(embedder.side_encoder, ids, given)
    batch = ItemBatch(
        ids=[ids[row] for row in chosen],
        inputs=[inputs[row] for row in chosen],
        input_hash=hashes[chosen],
        side_inputs=[side[row] for row in chosen] if side else [],
    )
    made = _charged(context, embedder, batch, in_all)
    if made is None:
        return
    places = {keys[chosen[item]]: place for place, item in enumerate(made.rows.tolist())}
    for row in lacking:
        if keys[row] in places:
            vectors[row] = made.vectors[places[keys[row]]]
    _write(context, made)


def _charged(context: UpgradeContext, embedder: Embedder, batch: ItemBatch, in_all: int) -> Embedded | None:
    """Charge a batch, embed as much of it as the budget allows, and replace the charge by the amount billed."""
    location, run = context.store.location, context.run
    bill = expected_bill(embedder.encoder, batch.inputs)
    each = (bill.cost or 0.0) / len(batch.inputs) or run.price_per_item or 0.0
    allowed, embedded = charge(location, run, len(batch.ids), in_all, each), 0
    if not allowed:
        return None
    with metered(patience=PATIENCE) as call:
        try:
            made = embedder.embed_once(batch.first(allowed))
            embedded = allowed - len(made.failures)
        finally:
            cost = embedded * each if call.bill.cost is None else call.bill.cost
            settle(location, run, embedded - allowed, cost - allowed * each)
    return made


def _write(context: UpgradeContext, made: Embedded) -> None:
    """Write natives through the backfill's own ways; nothing if the upgrade is over, and they are not needed any more.

    Raises:
        LeaseHeld: A manager has begun to work on the upgrade.
        StorageError: The table cannot be written, or other writers were faster each time.
    """
    current = _current(context)
    if current is None or not len(made.rows):
        return
    fence = Fence(current.target, current.lease, lambda: _require_free(context))
    fenced = UpgradeContext.of(context.catalog.fenced(fence), current)
    mode = current.write_mode
    moves = mode == "move_rows" or (mode == "auto" and not fenced.registry.adopted)
    way = NativeRows(fenced) if moves and unmovable(fenced.snapshot) is None else staging_of(fenced)
    try:
        way.store(made.natives)
    except (KeyError, CompatStoreError):
        if _current(context) is not None:  # else the target's columns were dropped meanwhile
            raise


def _current(context: UpgradeContext) -> RunRecord | None:
    """The upgrade as it is by now; None if it is over, or another one or another model has its place."""
    registry, run = context.catalog.registry(), context.run
    current = run_of(registry, run.target)
    if current is None or current.identity != run.identity:
        return None
    record = registry.record(run.target)
    same = record.columns is not None and record.model == context.target_record.model
    return current if same else None


def _lease_of(context: UpgradeContext) -> Lease | None:
    """The lease of a manager who works on the upgrade; None if there is none."""
    lease = lease_in(LeaseTable(context.store.location).read(), context.run.target)
    return lease if lease is not None and lease.works else None


def _require_free(context: UpgradeContext) -> None:
    """Refuse to write while a manager works.

    Raises:
        LeaseHeld: One does.
    """
    lease = _lease_of(context)
    if lease is not None:
        raise lease.refusal(f"write vectors that a search embedded in {lease.target}")
