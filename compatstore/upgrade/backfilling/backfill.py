"""The backfill: embed chosen items natively, most urgent first, within a budget.

While the encoder works on one batch the next one is read and the one before is stored. Each batch is durable before the
next batch but one begins. Several encoders (`engines`) work on as many batches; reading, the account and all writes
stay here. Spending and items that could not be embedded are recorded batch by batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, TypeVar

import pyarrow as pa

from compatstore.arrays import ArrowTable, Id
from compatstore.encoders import Bill, Encoder, Metered, metered
from compatstore.errors import EncoderFailed
from compatstore.storage.records import Spent
from compatstore.upgrade.backfilling.account import Account
from compatstore.upgrade.backfilling.embeddable import expected_bill, knows_its_price, read_batch, without_source
from compatstore.upgrade.backfilling.embedding import Embedded, ItemBatch, Paid, embedder_of, require_encoder
from compatstore.upgrade.backfilling.natives import BATCH_ROWS, Natives
from compatstore.upgrade.backfilling.policies import Choice, ChosenItems
from compatstore.upgrade.backfilling.policy_inputs import TableRows
from compatstore.upgrade.backfilling.throttle import MOST_ROWS, BatchSize, Pace
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.engines.engine import Engine, Pool
from compatstore.upgrade.progress import Monitor
from compatstore.upgrade.requests.backfill import Limit
from compatstore.upgrade.requests.run_settings import RunSettings

Named = TypeVar("Named")
Read = TypeVar("Read")
Made = TypeVar("Made")
Written = TypeVar("Written")


def overlap(
    take: Callable[[], Named | None],
    read: Callable[[Named], Read],
    begin: Callable[[Read], Callable[[], Made]],
    write: Callable[[Made], Written],
    *,
    at_once: int = 1,
    written_first: bool = False,
) -> Iterator[Written]:
    """Yield the results of `write` for each batch, in order.

    `take` and `begin` run in the caller's thread, `read` and `write` in one thread each. A batch is written before the
    one after the next is waited for. When anything raises, or the caller stops, batches with finished work are written
    first; when `begin` raises, as it does once a stop is requested, batches under way as well.

    Args:
        take: Names the next batch, or None if there is none now; called once more after the current batch.
        read: Reads it.
        begin: Starts the work on a batch; the returned function waits for the result, and may do the work itself.
        write: Writes the result.
        at_once: Batches that are under way at the same time.
        written_first: Begin to work on a batch only once the one before is written.
    """
    with ThreadPoolExecutor(1, "compatstore-read") as reader, ThreadPoolExecutor(1, "compatstore-write") as writer:

        def read_next() -> Future[Read] | None:
            named = take()
            return None if named is None else reader.submit(read, named)

        ahead = read_next()
        behind: Future[Written] | None = None
        under_way = deque[Callable[[], Made]]()
        while ahead is not None or under_way:
            while ahead is not None and len(under_way) < at_once:
                batch, ahead = ahead.result(), read_next()
                if written_first and behind is not None:
                    behind.result()
                try:
                    under_way.append(begin(batch))
                except Exception:
                    for finish in under_way:
                        writer.submit(write, finish())
                    raise
            made = under_way.popleft()()
            written = behind
            if written is not None:
                written.result()  # re-raises an error of its thread before more work begins
            behind = writer.submit(write, made)
            if written is not None:
                yield written.result()
            ahead = ahead or read_next()
        if behind is not None:
            yield behind.result()


class Backfiller:
    """Embeds the first of a run's order, as many as its budget allows.

    Args:
        context: The upgrade as it begins: its budget, policy and seed, and the items that are chosen from.
        settings: Batches, retries and pace.
        upto: Maximum number of native items for this round, whatever the budget allows; None for no limit.
        engine: Engine of the encoders. A paid encoder is called from here, a batch at a time: limits of money
            count every call.

    Attributes:
        account: Spending, and the items that could not be embedded.
        natives: Storage of native vectors.
    """

    def __init__(self, context: UpgradeContext, settings: RunSettings, *, upto: int | None, engine: Engine) -> None:
        self.context, self.settings, self._upto, self._engine = context, settings, upto, engine
        self.account = Account(context)
        self.natives = Natives(context, self.settings.batch_rows or BATCH_ROWS)

    @property
    def share(self) -> float:
        """Share of the gallery that may be native when this call ends."""
        allowed, items = self.account.budget.allowed_share, self.context.count()
        return allowed if self._upto is None or not items else min(allowed, self._upto / items)

    def choice(self) -> Choice:
        """Items still to be embedded; read-only.

        Earlier failures are skipped unless the settings retry them, and so are items without a source.
        """
        context = self.context
        share = 0.0 if self.account.ended_by else self.share
        tried = self.account.failing.slice(0, 0 if self.settings.retry_unbackfillable else None)
        choice = Choice(TableRows(context), share, self.natives.waiting(), tried)
        if len(choice) and not context.run.reads:
            reads = require_encoder(context.catalog, context.run.target).reads
            self.context = context = context.with_run(replace(context.run, reads=reads))
        if len(choice) and context.run.reads == "source":
            choice.leave_out(without_source(context))
        return choice

    def allowed(self, items: int) -> int:
        """Number of `items` that the limits of items and money allow."""
        left = self.account.rows_left
        return items if left is None else min(items, left)

    def ended_by(self, lacking: int) -> Limit:
        """The limit that keeps the rest from being embedded, or "" if all is embedded that can be.

        Args:
            lacking: Natives that the share lacks.
        """
        if self.account.ended_by:
            return self.account.ended_by
        allowed = self.account.budget.allowed_share
        return "backfill" if allowed < 1 and self.share == allowed and not lacking else ""

    def embed(self, choice: Choice, monitor: Monitor) -> int:
        """Embed and store items until no item or no budget is left, and fold the stored vectors into the table.

        Args:
            choice: Items to embed.
            monitor: Progress and stop.

        Returns:
            Native vectors that came into the table, those of a call that was stopped before included.

        Raises:
            Interrupted: A stop was requested; finished batches stay.
            UpgradeError: The target version has no encoder. A batch lost its worker again and again.
            EncoderFailed: The encoder hangs, or embeds nothing at all.
            InvalidInput: The encoder gave vectors that cannot be used; nothing of that batch is stored.
        """
        embedder = embedder_of(self.context, self.settings, monitor.rest)
        paid = isinstance(embedder.encoder, Metered)
        engine = Engine() if paid else self._engine
        with engine.pool(embedder) as pool:
            call = _Call(self, choice, embedder.encoder, pool, monitor)

            def read(chosen: ChosenItems) -> ItemBatch:
                snapshot = self.context.store.snapshot()  # items as they are by now
                return read_batch(self.context, snapshot, embedder, chosen.ids.to_pylist(), chosen.addresses)

            batches = overlap(call.take, read, call.embed, call.store, at_once=pool.size, written_first=paid)
            for rows in batches:
                monitor.cost = self.account.spent.cost
                monitor.advance(rows)
        self.account.close()
        return call.folded + self.natives.fold()


class _Call:
    """One call's pass over the items: selects batches, sends them through the encoder, stores the results.

    Items that fail are tried a second time after all the others of their round, when a passing fault may be over. The
    next round makes up for those that fail then.
    """

    def __init__(
        self, backfill: Backfiller, choice: Choice, encoder: Encoder, pool: Pool[ItemBatch, Paid], monitor: Monitor
    ) -> None:
        self._account, self._natives = backfill.account, backfill.natives
        self._paid_for = isinstance(encoder, Metered)
        most = min(encoder.request_rows, MOST_ROWS) if isinstance(encoder, Metered) else MOST_ROWS
        self._pace, self._size = Pace(backfill.settings), BatchSize(backfill.settings, most)
        self._encoder, self._pool, self._monitor = encoder, pool, monitor
        self._choice, self._again = choice, list[Id]()
        self._todo, self._position = choice.next_round(self._account.failing), 0
        self._promised = deque[int]()
        self._waiting, self.folded = len(self._natives.waiting()), 0

    def take(self) -> ChosenItems | None:
        """The next batch, or None if there is none now."""
        account = self._account
        account.tick()
        rows, left = self._size.within(account.budget.seconds_left(account.spent)), account.next_rows
        if left is not None:
            rows = min(rows, left - sum(self._promised))
        if not account.knows_price and knows_its_price(self._encoder):
            rows = min(rows, 1)
        if rows < 1 or account.ended_by:
            return None
        chosen = self._next(rows)
        if not len(chosen):
            again, self._again = self._again[:rows], self._again[rows:]
            chosen = ChosenItems.of(pa.array(again, chosen.ids.type))
        if not len(chosen) and not self._promised:  # else a batch under way may fail yet, and `take` is called again
            self._todo, self._position = self._choice.next_round(account.failing), 0
            chosen = self._next(rows)
        if not len(chosen):
            return None
        self._promised.append(len(chosen))
        return chosen

    def _next(self, rows: int) -> ChosenItems:
        chosen = self._todo.slice(self._position, rows)
        self._position += len(chosen)
        return chosen

    def embed(self, batch: ItemBatch) -> Callable[[], _Made]:
        """Send a batch through an encoder at the configured pace; returns a function that waits for the result."""
        self._monitor.check()
        self._monitor.rest(self._pace.delay())
        self._pace.begin(len(batch.ids))
        if self._paid_for:
            whole = batch
            batch = whole.first(self._account.affordable(len(whole.ids), lambda rows: self._bill_of(whole.first(rows))))
            self._account.promise(self._bill_of(batch))
        embedded = self._pool.begin(batch)
        return lambda: self._enter(embedded)

    def _bill_of(self, batch: ItemBatch) -> Bill:
        return expected_bill(self._encoder, [value for value in batch.inputs if value is not None])

    def _enter(self, embedded: Callable[[], Paid]) -> _Made:
        """Wait for a batch and enter it into the account."""
        made, bill = self._pay(embedded)
        self._pace.end(len(made.rows))
        self._size.learn(len(made.rows), made.seconds)
        self._promised.popleft()
        try:
            self._again += self._account.enter(made, bill)
        except EncoderFailed:
            if self._paid_for:
                self._account.settle(Bill())
            raise
        return _Made(made, *self._account.statement())

    def _pay(self, embedded: Callable[[], Paid]) -> Paid:
        """Pay for a batch whatever comes out: a limit of money holds in spite of failures and kills."""
        with metered(self._monitor.rest, money=self._account.money_left) as call:
            try:
                return embedded()
            except BaseException:
                if self._paid_for:
                    self._account.settle(call.bill)
                raise

    def store(self, made: _Made) -> int:
        """Make a batch durable; its cost is written first, so that a kill between the two exceeds no budget."""
        self._account.save(made.spent, made.failed)
        if not len(made.embedded.rows):
            return 0
        self._waiting += self._natives.store(made.embedded.natives)
        if self._waiting >= self._natives.wave_rows:
            self.folded, self._waiting = self.folded + self._natives.fold(), 0
        return len(made.embedded.rows)


class _Made(NamedTuple):
    """An embedded batch, and the account as it stood then."""

    embedded: Embedded
    spent: Spent
    failed: ArrowTable
