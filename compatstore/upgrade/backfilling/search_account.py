"""The account of searches: how many items they have embedded for an upgrade, in all processes together.

It is one short record beside the table, changed by compare-and-swap: searches hold no lease, and the backfill's account
belongs to whoever does. A search charges its items before they are embedded, so that no limit is exceeded by processes
that search at the same time; a process that is killed in between has paid for what it did not embed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from compatstore.errors import StorageError
from compatstore.storage.lease_table import LeaseTable, Records
from compatstore.storage.location import Location
from compatstore.storage.records import RunRecord

ATTEMPTS = 20
COMMITS_BETWEEN_TIDYING = 50


@dataclass(frozen=True)
class SpentBySearches:
    """What searches have used for one upgrade.

    Attributes:
        run: What tells the upgrade from an earlier one to the same target.
        rows: Items that were embedded.
        cost: Money, at the prices of the time.
    """

    run: str = ""
    rows: int = 0
    cost: float = 0.0


def read_spent(location: Location, run: RunRecord) -> SpentBySearches:
    """What searches have used for an upgrade so far; read-only.

    Raises:
        StorageError: The record is damaged.
    """
    return _spent_in(LeaseTable(location).read(), run)


def charge(location: Location, run: RunRecord, rows: int, in_all: int, price: float | None = None) -> int:
    """Charge items before they are embedded, or give back (`rows` < 0) those that could not be.

    Args:
        location: The gallery.
        run: The upgrade, and its price of an item.
        rows: Items to embed.
        in_all: The limit of all searches.
        price: Money that an item costs, where that is known better than by the upgrade.

    Returns:
        How many of them the limit allows; they are charged.

    Raises:
        StorageError: Others wrote beside the table each time; nothing was charged. The record cannot be read or
            written.
    """
    each = price or run.price_per_item or 0.0

    def change(spent: SpentBySearches) -> tuple[int, SpentBySearches]:
        allowed = min(rows, max(in_all - spent.rows, 0))
        return allowed, replace(spent, rows=spent.rows + allowed, cost=spent.cost + allowed * each)

    return _change(location, run, change)


def correct(location: Location, run: RunRecord, cost: float) -> None:
    """Charge what an encoder was billed beyond what was charged before (`cost` < 0 gives back).

    Raises:
        StorageError: Others wrote beside the table each time; nothing was charged. The record cannot be read or
            written.
    """
    _change(location, run, lambda spent: (0, replace(spent, cost=spent.cost + cost)))


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
        if table.swap(records.version, _key(run.target), json.dumps(asdict(charged))):
            if records.version % COMMITS_BETWEEN_TIDYING == 0:
                table.tidy()
            return rows
    raise StorageError(
        f"charge what a search embeds in {run.target}",
        expected="a moment without other writers",
        found=f"{ATTEMPTS} conflicts in a row",
    )


def _spent_in(records: Records, run: RunRecord) -> SpentBySearches:
    found = records.read(_key(run.target), SpentBySearches)
    return found if found is not None and found.run == run.identity else SpentBySearches(run.identity)


def _key(target: str) -> str:
    return f"searches.{target}"
