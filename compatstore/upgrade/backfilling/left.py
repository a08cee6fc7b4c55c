"""What a backfill's budget still allows, and how long that takes at the rate so far."""

from __future__ import annotations

from dataclasses import dataclass

from compatstore.storage.ledger import Spent
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.requests.backfill import Budget


@dataclass(frozen=True)
class Left:
    """What is left of a budget.

    Attributes:
        rows: Items that may still be embedded.
        cost: Money that they cost; 0 where no price is known.
        seconds: Time that they take, as the items so far; None before any.
    """

    rows: int
    cost: float
    seconds: float | None

    @classmethod
    def of(cls, context: UpgradeContext, spent: Spent, staged: int = 0) -> Left:
        """What the budget of an upgrade allows beside what was spent.

        Args:
            context: The upgrade as of now.
            spent: What its backfill has used.
            staged: Natives that are durable, but not in the table yet.
        """
        budget, target = Budget.of(context.run), context.target_record.columns
        native = 0 if target is None else context.count(target.native)
        rows = budget.share_left(context.count(), native + staged)
        limit, each = budget.rows_left(spent), spent.seconds / spent.rows if spent.rows else None
        rows = rows if limit is None else min(rows, limit)
        time = budget.seconds_left(spent)
        if time is not None and each:
            rows = min(rows, int(time / each))
        return cls(rows, budget.price(rows), None if each is None else each * rows)

    def __str__(self) -> str:
        """Returns "400 items are left of the budget, 4 in cost, about 12 s"."""
        if not self.rows:
            return "nothing is left of the budget"
        cost = f", {self.cost:g} in cost" if self.cost else ""
        time = "" if self.seconds is None else f", about {self.seconds:.0f} s"
        return f"{self.rows} items are left of the budget{cost}{time}"
