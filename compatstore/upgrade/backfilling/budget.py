"""The budget of a backfill: how much may be embedded natively, in shares, items, seconds or money."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from compatstore.errors import InvalidInput
from compatstore.evaluation.curve import native_count
from compatstore.storage.ledger import Spent
from compatstore.storage.records import RunRecord

Limit = Literal["", "backfill", "max_rows", "max_seconds", "max_cost"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a run's backfill; the smallest one ends it.

    The share counts what is native in the table. The other limits count what the run spent, in this call and in those
    before: so the same command, run again, goes on with what is left and does nothing when nothing is left.

    Args:
        backfill: Share of the gallery to embed natively, in [0, 1]; all of it where only other limits are named.
        max_rows: Items to embed, >= 0.
        max_seconds: Wall time of the backfill, waits included, in seconds, > 0.
        max_cost: Money, in the unit of the price, >= 0.
        price_per_item: What embedding one item costs, >= 0.

    Raises:
        InvalidInput: A limit is out of its range.
    """

    backfill: float | None = None
    max_rows: int | None = None
    max_seconds: float | None = None
    max_cost: float | None = None
    price_per_item: float | None = None

    def __post_init__(self) -> None:
        _require(self.backfill is None or 0.0 <= self.backfill <= 1.0, "a backfill from 0 to 1", self.backfill)
        _require(self.max_rows is None or self.max_rows >= 0, "max_rows >= 0", self.max_rows)
        _require(self.max_seconds is None or self.max_seconds > 0, "max_seconds > 0", self.max_seconds)
        _require(self.max_cost is None or self.max_cost >= 0, "max_cost >= 0", self.max_cost)
        _require(self.price_per_item is None or self.price_per_item >= 0, "price_per_item >= 0", self.price_per_item)

    @classmethod
    def of(cls, run: RunRecord) -> Budget:
        """The budget that a run records."""
        return cls(
            backfill=run.backfill,
            max_rows=run.max_rows,
            max_seconds=run.max_seconds,
            max_cost=run.max_cost,
            price_per_item=run.price_per_item,
        )

    @property
    def names_a_limit(self) -> bool:
        """Whether it says how much at all; a price alone does not."""
        limits = (self.backfill, self.max_rows, self.max_seconds, self.max_cost)
        return any(limit is not None for limit in limits)

    @property
    def share(self) -> float:
        """Share of the gallery that may be native: all of it where only other limits are named."""
        return self.backfill if self.backfill is not None else float(self.names_a_limit)

    def revised(self, asked: Budget) -> Budget:
        """The budget after a call: its limits replace all of this one's, and a call that names none keeps them.

        A price stays until another one is named.

        Raises:
            InvalidInput: There is a limit of money and no price.
        """
        price = self.price_per_item if asked.price_per_item is None else asked.price_per_item
        revised = replace(asked if asked.names_a_limit else self, price_per_item=price)
        if revised.max_cost is not None and not price:
            raise InvalidInput(
                "limit what a backfill costs",
                expected="the price of an item beside max_cost",
                found="none",
                fix="Name it: price_per_item=... (--price-per-item).",
            )
        return revised

    def record(self, run: RunRecord) -> RunRecord:
        """The run with this budget."""
        return replace(
            run,
            backfill=float(self.share),
            max_rows=self.max_rows,
            max_seconds=self.max_seconds,
            max_cost=self.max_cost,
            price_per_item=self.price_per_item,
        )

    def share_left(self, items: int, native: int) -> int:
        """Items that the share still allows, of a gallery with so many native ones."""
        return max(native_count(self.share, items) - native, 0)

    def rows_left(self, spent: Spent) -> int | None:
        """Items that the limits of items and money still allow; None without such a limit."""
        limits = [] if self.max_rows is None else [self.max_rows - spent.rows]
        if self.max_cost is not None and self.price_per_item:
            limits.append(math.floor(round((self.max_cost - spent.cost) / self.price_per_item, 6)))
        return max(min(limits), 0) if limits else None

    def seconds_left(self, spent: Spent) -> float | None:
        """Seconds that are left, or None without a limit."""
        return None if self.max_seconds is None else max(self.max_seconds - spent.seconds, 0.0)

    def ended_by(self, spent: Spent) -> Limit:
        """The limit that lets nothing more be embedded; "" while there is none. The share is not looked at."""
        if self.max_rows is not None and spent.rows >= self.max_rows:
            return "max_rows"
        if self.rows_left(spent) == 0:
            return "max_cost"
        return "max_seconds" if self.seconds_left(spent) == 0 else ""

    def price(self, rows: int) -> float:
        """What embedding so many items costs; 0 where no price is known."""
        return rows * (self.price_per_item or 0.0)

    def __str__(self) -> str:
        limits = {"items": self.max_rows, "s": self.max_seconds, "in cost": self.max_cost}
        most = " or ".join(f"{limit:g} {unit}" for unit, limit in limits.items() if limit is not None)
        return f"{self.share:.0%} of the gallery" + (f", at most {most}" if most else "")


def _require(holds: bool, expected: str, found: object) -> None:
    if not holds:
        raise InvalidInput("set the budget of a backfill", expected=expected, found=f"{found}")
