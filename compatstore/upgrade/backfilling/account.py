"""The account of a backfill: its spending over all calls, and the items that could not be embedded, with reasons.

Searches have a short record of their own beside the table, changed by compare-and-swap: they hold no lease, and the
backfill's account belongs to the holder of one. A search charges its items before they are embedded: processes that
search at the same time exceed no limit. A process that is killed in between has paid for items that it did not embed.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compatstore import next_step
from compatstore.arrays import ArrowArray, ArrowTable, Id
from compatstore.encoders import Bill
from compatstore.encoders.protocol import NO_SOURCE, NOTHING_TO_EMBED
from compatstore.errors import EncoderFailed, LeaseLost, StorageError, first_offenders
from compatstore.storage.catalog import Catalog, id_arrow_type
from compatstore.storage.columns import NATIVE
from compatstore.storage.failures import lost_to_others
from compatstore.storage.ids import find
from compatstore.storage.lease_table import LeaseTable, Records
from compatstore.storage.ledger import Ledger, without
from compatstore.storage.location import Location
from compatstore.storage.records import RunRecord, Spent
from compatstore.upgrade.backfilling.embeddable import count_embeddable, sourceless
from compatstore.upgrade.backfilling.embedding import Embedded
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.requests.backfill import Budget, Limit

REASONS_SHOWN = 20
FAILURES_IN_A_ROW = 500  # items, with none embedded in between, after which a run ends


class Account:
    """Keeps the ledger of one run while a call works on it.

    An item that fails is the item's fault only if the encoder works. So failures wait until another item is embedded
    after them; when too many come in a row, or the target has no native vector yet, none is entered and the run ends.
    Items that have nothing to embed are entered at once: they say nothing of the encoder.

    Args:
        context: The upgrade; failures of items that changed since, or are native or gone, are left out.

    Attributes:
        budget: The limits of the run.
        spent: Budget spent so far, this call's part included.
        failed: Arrow table of id, input_hash, reason: items that could not be embedded.
    """

    def __init__(self, context: UpgradeContext) -> None:
        self._context, self._ledger, self.budget = context, context.ledger, Budget.of(context.run)
        self.spent, self.failed = read_account(context)
        self._billed = self.spent.tokens > 0
        self._tried: set[Id] = set()
        self._listed: set[Id] = set(self.failed["id"].to_pylist())
        self._doubtful = self.failed.schema.empty_table()
        self._seconds_before, self._started = self.spent.seconds, time.monotonic()
        self._next_too_dear, self._knows_price = False, False

    @property
    def ended_by(self) -> Limit:
        """The limit of items, seconds or money that is reached; "" while none is."""
        return self.budget.ended_by(self.spent, self._price) or ("max_cost" if self._next_too_dear else "")

    @property
    def rows_left(self) -> int | None:
        """Items that the limits of items and money still allow; None without such a limit."""
        return 0 if self._next_too_dear else self.budget.rows_left(self.spent, self._price)

    @property
    def money_left(self) -> float:
        """Money that may still be spent; infinite without a limit."""
        return inf if self.budget.max_cost is None else max(self.budget.max_cost - self.spent.cost, 0.0)

    def affordable(self, rows: int, bill_of: Callable[[int], Bill]) -> int:
        """Number of the next items that the money left pays for; if that is not all, nothing follows them.

        Args:
            rows: The next items.
            bill_of: Returns the cost of the first rows of them, by their number.
        """
        if (bill_of(rows).cost or 0.0) <= self.money_left:
            return rows
        self._next_too_dear = True
        return bisect_right(range(1, rows), self.money_left, key=lambda first: bill_of(first).cost or 0.0)

    @property
    def next_rows(self) -> int | None:
        """Maximum size of the next batch: half of the affordable items, as the bill is known only afterwards."""
        left = self.rows_left
        halved = left is not None and self._billed and self.budget.max_cost is not None
        return left if left is None or not halved else -(-left // 2)

    @property
    def knows_price(self) -> bool:
        """True if money is no limit, or this call was billed before: an encoder's estimate is good after an answer."""
        return self._knows_price or self.budget.max_cost is None

    @property
    def _price(self) -> float | None:
        """Cost of an item, as billed so far; None if the encoder reports no bill."""
        return self.spent.cost / self.spent.rows if self._billed and self.spent.rows else None

    def promise(self, bill: Bill) -> None:
        """Write down the estimated cost of the next call before it is made; a process that is killed then has paid.

        Raises:
            LeaseLost: The lease is lost; nothing was written.
        """
        self._billed |= bill.cost is not None
        self.save(self._with(bill), self.failed)

    def settle(self, bill: Bill) -> None:
        """Record the amount billed for a failed call, in place of the expected one."""
        self.spent = self._with(bill)
        with suppress(StorageError, LeaseLost):  # the call's own error is the one to tell of
            self.save(*self.statement())

    def _with(self, bill: Bill) -> Spent:
        cost = self.budget.price(bill.items) if bill.cost is None else bill.cost
        return replace(self.spent, cost=self.spent.cost + cost, tokens=self.spent.tokens + bill.tokens)

    def tick(self) -> None:
        """Count the time until now."""
        self.spent = replace(self.spent, seconds=self._seconds_before + time.monotonic() - self._started)

    def enter(self, made: Embedded, bill: Bill) -> list[Id]:
        """Enter a batch; durable once `save` has run.

        Args:
            made: Result of the batch.
            bill: Amount billed, as reported by the encoder.

        Returns:
            Ids that failed for the first time, or were not tried to the end for want of money: worth another try later.

        Raises:
            EncoderFailed: Too many items failed in a row.
        """
        ids, rows = made.batch.ids, len(made.rows)
        self._billed |= bill.cost is not None
        self._knows_price |= bill.cost is not None
        bill = bill if bill.cost is not None else replace(bill, items=rows)
        self.spent = replace(self._with(bill), rows=self.spent.rows + rows)
        self.tick()
        tried = [i for i, why in made.failures.items() if why not in NOTHING_TO_EMBED]
        doubtful = [i for i in tried if ids[i] not in self._listed]
        certain = [i for i in made.failures if i not in set(doubtful)]
        again = [ids[i] for i in doubtful if ids[i] not in self._tried]
        self._tried.update(again)
        done = {*made.rows.tolist(), *made.failures}
        again += [ids[i] for i in range(len(ids)) if i not in done]  # their tries were billed and brought nothing
        self._doubtful = pa.concat_tables([without(self._doubtful, ids), self._rows(made, doubtful)])
        self._list(without(self.failed, ids), self._rows(made, certain))
        if rows:
            self._clear_doubt()
        elif self._doubtful.num_rows >= FAILURES_IN_A_ROW:
            raise self._embeds_nothing()
        return again

    def close(self) -> None:
        """End a call.

        Raises:
            EncoderFailed: Items failed, and none was ever embedded.
        """
        natives = self._context.target.native
        if self._doubtful.num_rows and not self.spent.rows and not self._context.store.count(natives):
            raise self._embeds_nothing()
        self._clear_doubt()
        self.tick()
        self.save(*self.statement())

    @property
    def failing(self) -> ArrowArray:
        """Arrow array of the ids that could not be embedded, those included of which it is not certain yet."""
        return pa.concat_tables([self.failed, self._doubtful])["id"].combine_chunks()

    def statement(self) -> tuple[Spent, ArrowTable]:
        """Contents to save, as of now."""
        return self.spent, self.failed

    def save(self, spent: Spent, failed: ArrowTable) -> None:
        """Make a statement durable."""
        self._ledger.save(spent, failed)

    def _clear_doubt(self) -> None:
        self._list(self.failed, self._doubtful)
        self._doubtful = self._doubtful.slice(0, 0)

    def _list(self, before: ArrowTable, more: ArrowTable) -> None:
        self.failed = pa.concat_tables([before, more])
        self._listed.update(more["id"].to_pylist())

    def _rows(self, made: Embedded, positions: list[int]) -> ArrowTable:
        ids = [made.batch.ids[i] for i in positions]
        return self._ledger.rows(ids, made.batch.input_hash[positions], [made.failures[i] for i in positions])

    def _embeds_nothing(self) -> EncoderFailed:
        first = first_offenders([f"{row['id']}: {row['reason']}" for row in self._doubtful.to_pylist()], 3)
        return EncoderFailed(
            f"embed items in {self._ledger.target}",
            expected="an encoder and sources of which some work",
            found=f"{self._doubtful.num_rows} items that failed in a row and none embedded: {first}",
            fix="Check that the sources can be reached from here. None of these items is listed as unbackfillable; "
            f"{next_step.same()} goes on from here.",
        )


def read_account(context: UpgradeContext) -> tuple[Spent, ArrowTable]:
    """Budget spent by a run, and the items that it tried in vain: Arrow table of id, input_hash, reason; read-only.

    Items without a source are not among them: nothing is tried with them.
    """
    spent, failed = context.ledger.load()
    if context.target_record.columns is None:
        return spent, failed.slice(0, 0)
    if context.run.reads == "source":
        failed = failed.filter(pc.not_equal(failed["reason"], NO_SOURCE))
    return spent, still_failed(context, failed)


@dataclass(frozen=True)
class Refusals:
    """Items that cannot be embedded natively.

    Attributes:
        embeddable: Number of items that can be embedded, as far as known.
        count: Number of items that cannot be embedded.
        reasons: The first of these, as (id, reason).
    """

    embeddable: int
    count: int
    reasons: tuple[tuple[str, str], ...]


def read_refusals(context: UpgradeContext, failed: ArrowTable) -> Refusals:
    """Count the items that cannot be embedded, those without a source included; read-only.

    Args:
        context: The upgrade.
        failed: Earlier failures, as `read_account` returns them.
    """
    counted = count_embeddable(context, failed.num_rows)
    first = failed.select(["id", "reason"]).slice(0, REASONS_SHOWN)
    more = _without_source(context, limit=REASONS_SHOWN - first.num_rows)
    shown = pa.concat_tables([first, more]).to_pylist()
    reasons = tuple((str(row["id"]), row["reason"]) for row in shown)
    return Refusals(counted.most, counted.items - counted.most, reasons)


def _without_source(context: UpgradeContext, limit: int | None = None) -> ArrowTable:
    """Items that are not native and have nothing to be embedded from: Arrow table of id, reason."""
    condition, key = sourceless(context), context.registry.id_column
    if condition is not None and not context.count(condition):  # earlier counts are not read again
        condition = None
    found = context.snapshot.to_table(columns=[key], filter=condition, limit=limit if condition else 0)
    ids = found.column(key).cast(id_arrow_type(context.registry))  # an app's ids may be of a type near the account's
    return pa.table([ids, pa.array([NO_SOURCE] * len(ids), pa.string())], ["id", "reason"])


def forget_account(catalog: Catalog, target: str) -> None:
    """Remove the account of a target that is dropped."""
    store = catalog.store
    Ledger(store.location, target, id_arrow_type(catalog.registry()), "", store.fence_of(target)).clear()


def unbackfillable(catalog: Catalog, target: str) -> ArrowTable:
    """Items that the upgrade to a target could not embed natively: Arrow table of id, reason; read-only.

    Raises:
        NotFound: There is no such version.
    """
    registry = catalog.registry()
    registry.record(target)
    run = registry.runs.get(target)
    if run is None:
        return pa.schema([("id", id_arrow_type(registry)), ("reason", pa.string())]).empty_table()
    context = UpgradeContext.of(catalog, run)
    failed = read_account(context)[1].select(["id", "reason"])
    return pa.concat_tables([failed, _without_source(context)])


def still_failed(context: UpgradeContext, failed: ArrowTable) -> ArrowTable:
    """The rows of a ledger's table whose items are in the gallery as they were tried, and are not native."""
    if not failed.num_rows:
        return failed
    source, origin = context.source, context.target.origin or ""
    key, sources = context.registry.id_column, context.registry.source_column
    names = [key, origin, *source.hashed_names(sources)]
    rows = find(context.store, key, failed["id"].to_pylist(), names, context.snapshot)
    input_hash = source.input_hashes(rows, sources).native
    positions = pc.index_in(failed["id"], value_set=rows[key].combine_chunks()).fill_null(-1).to_numpy()
    native = pc.equal(rows[origin], NATIVE).fill_null(False).to_numpy()
    if not rows.num_rows:
        return failed.slice(0, 0)
    same = (positions >= 0) & (input_hash[positions] == failed["input_hash"].to_numpy()) & ~native[positions]
    return failed.filter(pa.array(np.asarray(same)))


ATTEMPTS = 20


@dataclass(frozen=True)
class SpentBySearches:
    """Budget spent by searches for one upgrade.

    Attributes:
        run: Identity of the upgrade, which an earlier one to the same target has not.
        rows: Items that were embedded.
        cost: Money, at the prices of the time.
    """

    run: str = ""
    rows: int = 0
    cost: float = 0.0


def read_spent(location: Location, run: RunRecord) -> SpentBySearches:
    """Budget spent by searches for an upgrade so far; read-only.

    Raises:
        StorageError: The record is damaged.
    """
    return _spent_in(LeaseTable(location).read(), run)


def charge(location: Location, run: RunRecord, rows: int, in_all: int, each: float = 0.0) -> int:
    """Charge items before they are embedded, or give back (`rows` < 0) those that could not be.

    Args:
        location: The gallery.
        run: The upgrade.
        rows: Items to embed.
        in_all: The limit of all searches.
        each: Money that an item costs.

    Returns:
        The items that the limit allows; they are charged.

    Raises:
        StorageError: Others wrote beside the table each time; nothing was charged. The record cannot be read or
            written.
    """

    def change(spent: SpentBySearches) -> tuple[int, SpentBySearches]:
        allowed = min(rows, max(in_all - spent.rows, 0))
        return allowed, replace(spent, rows=spent.rows + allowed, cost=spent.cost + allowed * each)

    return _change(location, run, change)


def settle(location: Location, run: RunRecord, rows: int, cost: float) -> None:
    """Charge items and money beyond those that `charge` charged; give them back where they are below 0.

    Raises:
        StorageError: Others wrote beside the table each time; nothing was charged. The record cannot be read or
            written.
    """
    _change(location, run, lambda spent: (rows, replace(spent, rows=spent.rows + rows, cost=spent.cost + cost)))


def _change(
    location: Location, run: RunRecord, change: Callable[[SpentBySearches], tuple[int, SpentBySearches]]
) -> int:
    """Change the record by compare-and-swap, where `change` makes another of it; returns the items that it charges."""
    table = LeaseTable(location)
    for _ in range(ATTEMPTS):
        records = table.read()
        before = _spent_in(records, run)
        rows, after = change(before)
        if after == before:
            return rows
        charged = replace(after, rows=max(after.rows, 0), cost=max(after.cost, 0.0))
        if table.swap(records.version, _key(run.target), charged):
            return rows
    operation = f"charge the vectors that a search embeds in {run.target}"
    raise lost_to_others(operation, f"{ATTEMPTS} conflicts in a row", fix="")


def _spent_in(records: Records, run: RunRecord) -> SpentBySearches:
    found = records.read(_key(run.target), SpentBySearches)
    return found if found is not None and found.run == run.identity else SpentBySearches(run.identity)


def _key(target: str) -> str:
    return f"searches.{target}"
