"""Items that searches embed natively: within a budget, by one call of the encoder, and kept in memory until written.

A search never waits for a write. Vectors wait until there are `WRITE_ROWS` of them or `WRITE_SECONDS` have passed; then
whoever holds this object writes them (`write_back.py`). A process that is killed loses those that wait, never more.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from compatstore.arrays import ArrowTable, BoolArray, Digests, FloatArray, Id, RowNumbers
from compatstore.encoders import metered
from compatstore.errors import CompatStoreWarning, StorageError
from compatstore.storage.catalog import Catalog
from compatstore.storage.ledger import ledger_of
from compatstore.storage.records import RunRecord
from compatstore.storage.registry import Registry
from compatstore.storage.vector_form import VectorForm
from compatstore.upgrade.backfilling.backfill import require_encoder
from compatstore.upgrade.backfilling.embeddable import inputs_of
from compatstore.upgrade.backfilling.embedding import Embedded, Embedder, ItemBatch
from compatstore.upgrade.backfilling.pricing import expected_bill
from compatstore.upgrade.backfilling.search_account import charge, correct
from compatstore.upgrade.backfilling.write_back import Key, Native, WrittenBack, write_natives
from compatstore.upgrade.requests.run_settings import RunSettings

WRITE_ROWS, WRITE_SECONDS = 256, 10.0
MOST_BYTES = 64 * 2**20  # of vectors in memory
MOST_REMEMBERED = 100_000  # items that cannot be embedded
PATIENCE = 2.0  # seconds that a search waits for an encoder whose rate limit is reached
PROVEN = 2  # failures after which an item is not tried again


@dataclass(frozen=True, kw_only=True)
class SearchBudget:
    """What searches may embed.

    Args:
        per_query: Items for a query.
        in_all: Items for an upgrade.
        write_back: Whether anything may be written; else the limit in all is that of this process.
    """

    per_query: int
    in_all: int
    write_back: bool


@dataclass(eq=False)
class _Session:
    """What this process knows of one upgrade."""

    run: RunRecord
    model: str
    kept: OrderedDict[Key, Native] = field(default_factory=OrderedDict)  # the least used first
    waiting: dict[Key, Native] = field(default_factory=dict)
    failed: Counter[Key] = field(default_factory=Counter)
    spent: int = 0  # by searches that write nothing
    since: float = field(default_factory=time.monotonic)


class SearchedItems:
    """The items that the searches of one process have embedded; threads may share it.

    Args:
        catalog: The gallery.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._sessions: dict[str, _Session] = {}
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def embed(
        self,
        registry: Registry,
        run: RunRecord,
        rows: ArrowTable,
        queries: RowNumbers,
        native: BoolArray,
        budget: SearchBudget,
    ) -> FloatArray:
        """Embed candidates of searches.

        Where the encoder raises, or what it costs cannot be written down, there is a warning and no vector: the search
        goes on without. An item that fails beside others that do not, or twice, is not tried again by this process
        until it changes; nor is one that the upgrade's backfill has listed.

        Args:
            registry: State of the gallery.
            run: The upgrade.
            rows: Arrow table of n rows: ids and what an input hash digests. A query's rows are in their order.
            queries: (n,) int64, number of the query that each was found for.
            native: (n,) bool, rows that need no vector.
            budget: Limits. What another query of the call needs too is charged to the first of them.

        Returns:
            (n, dim) float32, NaN for native rows and for those without a vector.
        """
        columns, key, sources = registry.columns(run.source), registry.id_column, registry.source_column
        ids, hashes = rows[key].to_pylist(), columns.input_hashes(rows, sources).native
        given = rows[sources].to_pylist() if sources else [None] * len(ids)
        keys = list(zip(ids, hashes.tolist(), strict=True))
        session, embedder = self._session(registry, run), self._embedder(registry, run)
        inputs = inputs_of(embedder.encoder, ids, given)
        wanting = [row for row in np.flatnonzero(~native).tolist() if ids[row] is not None]
        with self._lock:
            usable = [row for row in wanting if inputs[row] is not None]
            chosen = _chosen(session, keys, usable, queries, budget.per_query)
        if chosen:
            side = inputs_of(embedder.side_encoder, ids, given)
            batch = _batch(chosen, ids, inputs, hashes, side)
            self._embed(session, embedder, batch, budget)
        with self._lock:
            return _vectors(session, keys, wanting, registry.columns(run.target).dim)

    @property
    def due(self) -> bool:
        """Whether so much waits to be written, or for so long, that it should be written now."""
        with self._lock:
            return any(
                len(session.waiting) >= WRITE_ROWS
                or (session.waiting and time.monotonic() - session.since > WRITE_SECONDS)
                for session in self._sessions.values()
            )

    def write_back(self) -> WrittenBack:
        """Write what waits; when somebody else writes or works, it may wait on.

        Returns:
            How many vectors are durable now, and how many wait.

        Raises:
            LeaseHeld: A manager works on the upgrade; what waits is written once that is over.
            StorageError: The table cannot be written; the vectors wait on.
        """
        written = 0
        with self._writing:
            for session in list(self._sessions.values()):
                with self._lock:
                    waiting, session.since = dict(session.waiting), time.monotonic()
                if waiting:
                    written += write_natives(self._catalog, session.run, session.model, waiting)
                with self._lock:
                    for key in waiting:
                        session.waiting.pop(key, None)
        with self._lock:
            return WrittenBack(written, sum(len(session.waiting) for session in self._sessions.values()))

    def _session(self, registry: Registry, run: RunRecord) -> _Session:
        """What is known of an upgrade; nothing of an earlier one to the same target, nor of another model."""
        model = registry.record(run.target).model
        with self._lock:
            session = self._sessions.get(run.target)
            if session is None or (session.run.identity, session.model) != (run.identity, model):
                session = self._sessions[run.target] = _Session(run, model)
                with suppress(StorageError):  # `verify` tells of a damaged account; a search can do without
                    failed = ledger_of(self._catalog, registry, run).load()[1].select(["id", "input_hash"]).to_pydict()
                    session.failed.update(dict.fromkeys(zip(*failed.values(), strict=True), PROVEN))
            session.run = run
            return session

    def _embedder(self, registry: Registry, run: RunRecord) -> Embedder:
        catalog, target = self._catalog, run.target
        return Embedder(
            require_encoder(catalog, target),
            target,
            RunSettings(retries=0),
            rest=lambda _: None,
            side_encoder=catalog.side_encoder(target),
            form=VectorForm.of(registry.record(target)),
        )

    def _embed(self, session: _Session, embedder: Embedder, batch: ItemBatch, budget: SearchBudget) -> None:
        """Charge a batch, embed as much of it as the budget allows, and keep what came out."""
        try:
            bill = expected_bill(embedder.encoder, batch.inputs)
            price = None if bill.cost is None else bill.cost / len(batch.inputs)
            allowed = self._charge(session, len(batch.ids), budget, price)
            if not allowed:
                return
            with metered(patience=PATIENCE) as call:
                try:
                    made = embedder.embed_once(batch.first(allowed))
                except BaseException:
                    self._charge(session, -allowed, budget, price)
                    self._correct(session, call.bill.cost, 0.0, budget)
                    raise
            if made.failures:
                self._charge(session, -len(made.failures), budget, price)
            embedded = allowed - len(made.failures)
            self._correct(session, call.bill.cost, embedded * (price or session.run.price_per_item or 0.0), budget)
        except Exception as error:
            told = f"a search embeds nothing in {embedder.target}: {type(error).__name__}: {error}"
            warnings.warn(told, CompatStoreWarning, stacklevel=2)
            return
        with self._lock:
            _keep(session, made, write_back=budget.write_back)

    def _correct(self, session: _Session, billed: float | None, charged: float, budget: SearchBudget) -> None:
        """Put what the encoder was billed in place of what was charged for it."""
        if budget.write_back and billed is not None:
            correct(self._catalog.store.location, session.run, billed - charged)

    def _charge(self, session: _Session, rows: int, budget: SearchBudget, price: float | None) -> int:
        """Charge items, or give them back; returns how many the limit in all allows."""
        if budget.write_back:
            return charge(self._catalog.store.location, session.run, rows, budget.in_all, price)
        with self._lock:
            allowed = min(rows, max(budget.in_all - session.spent, 0))
            session.spent += allowed
            return allowed


def _chosen(
    session: _Session, keys: Sequence[Key], usable: Sequence[int], queries: RowNumbers, per_query: int
) -> list[int]:
    """Rows to embed, each item once: for each query the first ones that nothing is known of."""
    left, chosen = Counter[int](), dict[Key, int]()
    for row in usable:
        key, query = keys[row], int(queries[row])
        known = key in session.kept or key in chosen or session.failed[key] >= PROVEN
        if not known and left[query] < per_query:
            chosen[key] = row
            left[query] += 1
    return list(chosen.values())


def _batch(chosen: list[int], ids: list[Id], inputs: list[Any], hashes: Digests, side: list[Any]) -> ItemBatch:
    return ItemBatch(
        ids=[ids[row] for row in chosen],
        inputs=[inputs[row] for row in chosen],
        input_hash=hashes[chosen],
        side_inputs=[side[row] for row in chosen] if side else [],
    )


def _keep(session: _Session, made: Embedded, *, write_back: bool) -> None:
    """Keep what was embedded, and remember what could not be."""
    batch = made.batch
    key_of = list(zip(batch.ids, batch.input_hash.tolist(), strict=True))
    for place, row in enumerate(made.rows):
        native = Native(made.vectors[place], None if made.side is None else made.side[place])
        session.kept[key_of[row]] = native
        if write_back:
            session.waiting[key_of[row]] = native
    if len(session.failed) > MOST_REMEMBERED:
        session.failed.clear()
    for row in made.failures:
        session.failed[key_of[row]] += PROVEN if len(made.rows) else 1
    while len(session.kept) > max(MOST_BYTES // (4 * made.vectors.shape[1]), 1):
        key, _ = session.kept.popitem(last=False)
        session.waiting.pop(key, None)


def _vectors(session: _Session, keys: Sequence[Key], wanting: Sequence[int], dim: int) -> FloatArray:
    """The vectors that are kept of some rows: (n, dim) float32, NaN for all others."""
    vectors: FloatArray = np.full((len(keys), dim), np.nan, np.float32)
    for row in wanting:
        native = session.kept.get(keys[row])
        if native is not None:
            vectors[row] = native.vector
            session.kept.move_to_end(keys[row])
    return vectors
