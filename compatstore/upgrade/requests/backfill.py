"""Limits and order of a backfill: a share, limits in items, seconds and money, and the order of items."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from compatstore import next_step
from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput
from compatstore.evaluation.curve import native_count
from compatstore.storage.records import RunRecord, Spent, WriteMode

AS_IN_RUN = ("max_rows", "max_seconds", "max_cost", "price_per_item")  # fields
Limit = Literal["", "backfill", "max_rows", "max_seconds", "max_cost", "target_quality"]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a run's backfill; the smallest one ends it.

    The share counts native items of the table. The other limits count the spending of the upgrade, in this call and
    in earlier ones. So the same command, run again, continues with the rest and does nothing when nothing is left.

    Args:
        share: Share of the gallery to embed natively, from 0 to 1. The limits named in a call replace all those of
            earlier calls; a call that names none keeps them. Without any limit nothing is embedded; where only other
            limits are named, the share is 1.
        max_rows: Items to embed natively at most, >= 0, over all calls of the upgrade.
        max_seconds: Wall time of the backfill at most, waits included, > 0, over all calls.
        max_cost: Maximum money to spend on embedding, in the unit of the price, >= 0, over all calls.
        price_per_item: Price of embedding one item, >= 0, in the unit of max_cost. Not needed for an encoder that
            reports its bills; these take precedence.

    Raises:
        InvalidInput: A limit is out of its range.
    """

    share: float | None = field(default=None, metadata={"unit": "SHARE"})
    max_rows: int | None = field(default=None, metadata={"unit": "ITEMS"})
    max_seconds: float | None = field(default=None, metadata={"unit": "SECONDS"})
    max_cost: float | None = field(default=None, metadata={"unit": "MONEY"})
    price_per_item: float | None = field(default=None, metadata={"unit": "MONEY"})

    def __post_init__(self) -> None:
        if self.share is not None and not 0.0 <= self.share <= 1.0:
            raise InvalidInput(
                "set the budget of a backfill",
                expected="a share from 0 to 1",
                found=f"{self.share}",
                fix=f"Name a share, {next_step.option('share', 0.3, within='Backfill')} for 30%, or a number of items: "
                f"{next_step.option('max_rows', 300, within='Backfill')}",
            )
        _require(self.max_rows is None or self.max_rows >= 0, "max_rows >= 0", self.max_rows)
        _require(self.max_seconds is None or self.max_seconds > 0, "max_seconds > 0", self.max_seconds)
        _require(self.max_cost is None or self.max_cost >= 0, "max_cost >= 0", self.max_cost)
        _require(self.price_per_item is None or self.price_per_item >= 0, "price_per_item >= 0", self.price_per_item)

    @classmethod
    def of(cls, run: RunRecord) -> Budget:
        """The budget that a run records."""
        return cls(share=run.backfill, **{name: getattr(run, name) for name in AS_IN_RUN})

    @property
    def names_a_limit(self) -> bool:
        """True if it sets any limit; a price alone does not."""
        limits = (self.share, self.max_rows, self.max_seconds, self.max_cost)
        return any(limit is not None for limit in limits)

    @property
    def allowed_share(self) -> float:
        """Share of the gallery that may be native: all of it where only other limits are named."""
        return self.share if self.share is not None else float(self.names_a_limit)

    def revised(self, limits: Budget, expected_price: float | None = None) -> Budget:
        """The budget after a call: its limits replace all of this one's, and a call that names none keeps them.

        A price stays until another one is named.

        Args:
            limits: The limits of the call.
            expected_price: Expected price of an item, used if none is set.

        Raises:
            InvalidInput: There is a limit of money and no price.
        """
        named = self.price_per_item if limits.price_per_item is None else limits.price_per_item
        price = expected_price if named is None else named
        revised = replace(limits if limits.names_a_limit else self, price_per_item=price)
        if revised.max_cost is not None and not price:
            raise InvalidInput(
                "limit the cost of a backfill",
                expected="the price of an item beside max_cost",
                found="none",
                fix=f"Name it: {next_step.option('price_per_item', within='Backfill')}; "
                "or use an encoder that knows its price.",
            )
        return revised

    def record(self, run: RunRecord) -> RunRecord:
        """The run with this budget."""
        limits: dict[str, Any] = {name: getattr(self, name) for name in AS_IN_RUN}
        return replace(run, backfill=float(self.allowed_share), **limits)

    def share_left(self, items: int, native: int) -> int:
        """Items that the share still allows, of a gallery with `native` native ones among `items`."""
        return max(native_count(self.allowed_share, items) - native, 0)

    def rows_left(self, spent: Spent, price: float | None = None) -> int | None:
        """Items that the limits of items and money still allow; None without such a limit.

        Args:
            spent: Spending so far.
            price: Price of an item, if known better than by `price_per_item`.
        """
        price = price or self.price_per_item
        limits = [] if self.max_rows is None else [self.max_rows - spent.rows]
        if self.max_cost is not None and price:
            limits.append(math.floor(round((self.max_cost - spent.cost) / price, 6)))
        return max(min(limits), 0) if limits else None

    def seconds_left(self, spent: Spent) -> float | None:
        """Seconds that are left, or None without a limit."""
        return None if self.max_seconds is None else max(self.max_seconds - spent.seconds, 0.0)

    def ended_by(self, spent: Spent, price: float | None = None) -> Limit:
        """The limit that lets nothing more be embedded; "" while there is none. The share is not looked at.

        Args:
            spent: Spending so far.
            price: Price of an item, see `rows_left`.
        """
        if self.max_rows is not None and spent.rows >= self.max_rows:
            return "max_rows"
        if self.rows_left(spent, price) == 0:
            return "max_cost"
        return "max_seconds" if self.seconds_left(spent) == 0 else ""

    def price(self, rows: int) -> float:
        """Price of embedding `rows` items; 0 where no price is known."""
        return rows * (self.price_per_item or 0.0)

    def __str__(self) -> str:
        limits = {"items": self.max_rows, "s": self.max_seconds, "in cost": self.max_cost}
        most = " or ".join(f"{limit:g} {unit}" for unit, limit in limits.items() if limit is not None)
        return f"{self.allowed_share:.0%} of the gallery" + (f", at most {most}" if most else "")


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Backfill(Budget):
    """Which items an upgrade embeds natively: how many, in which order, and how their vectors reach the table.

    Args:
        order: Order of the backfill: random (the default), spread (random, and from all kinds of items in proportion;
            the default of a self-training upgrade), sigma, spread-sigma (from all kinds of items in proportion, of
            each the most uncertain first), or a column of numbers (column:views).
        seed: Seed of the order, and of the sample of an estimate.
        write_mode: Storage of native vectors. move_rows writes the rows that get one a second time, with the
            vector; rewrite_columns leaves every row in place and rewrites the target's columns at the end; auto (the
            default) moves rows if that writes much less, and never in an adopted table. A plan shows the bytes written.

    Raises:
        InvalidInput: A limit is out of its range, or there is no such write mode.

    Examples:
        >>> nightly = cs.Backfill(max_cost=20.0, price_per_item=0.0001, order="sigma")
        >>> nightly.max_cost / nightly.price_per_item
        200000.0
    """

    order: str | None = field(default=None, metadata={"unit": "ORDER"})
    seed: int | None = None
    write_mode: WriteMode | None = None

    def __post_init__(self) -> None:
        super().__post_init__()

    @property
    def budget(self) -> Budget:
        """The limits alone."""
        return Budget(**{limit.name: getattr(self, limit.name) for limit in fields(Budget)})

    def applied_to(self, run: RunRecord, expected_price: float | None = None) -> RunRecord:
        """The run with the changes of this call; other fields stay as an earlier call left them.

        Args:
            run: The run before.
            expected_price: Expected price of an item, used if none is set.

        Raises:
            InvalidInput: There is a limit of money and no price.
        """
        return replace(
            Budget.of(run).revised(self.budget, expected_price).record(run),
            policy=self.order or run.policy,
            seed=run.seed if self.seed is None else self.seed,
            write_mode=self.write_mode or run.write_mode,
        )


def _require(holds: bool, expected: str, found: object) -> None:
    if not holds:
        raise InvalidInput("set the budget of a backfill", expected=expected, found=f"{found}")
