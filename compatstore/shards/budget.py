"""One budget of several shards: what each may spend, by its items, and what becomes of what one leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

from compatstore.shards.results import ShardStatus, ShardUpgrade
from compatstore.storage.ledger import Spent
from compatstore.upgrade.requests.backfill import Backfill

SharedLimit = Literal["max_rows", "max_seconds", "max_cost"]
LIMITS: tuple[SharedLimit, ...] = get_args(SharedLimit)
LEAST_SECONDS = 1e-6  # no limit may be 0


class SharedBudget:
    """Gives each shard its part of one budget.

    Args:
        request: Its limits are of all shards together; the share is of each.
        shards: Address -> status, with what was spent in earlier calls.
    """

    def __init__(self, request: Backfill, shards: Mapping[str, ShardStatus]) -> None:
        self._request = request
        self._rows = {address: max(shard.rows, 1) for address, shard in shards.items()}
        self._spent = {address: shard.spent for address, shard in shards.items()}
        self._kept: dict[str, Backfill] = {}
        self._moved = True

    def parts(self, waiting: Sequence[str]) -> dict[str, Backfill]:
        """What each of these shards may spend in all, from its first call on."""
        self._moved = False
        rows, seconds, cost = (self._limits(name, waiting) for name in LIMITS)
        return {
            address: replace(
                self._request,
                max_rows=None if rows is None else round(rows[address]),
                max_seconds=None if seconds is None else max(seconds[address], LEAST_SECONDS),
                max_cost=None if cost is None else cost[address],
            )
            for address in waiting
        }

    def charge(self, address: str, spent: Spent) -> None:
        """Note what a shard has spent by now."""
        self._moved |= spent.rows > self._spent[address].rows
        self._spent[address] = spent

    def keep(self, address: str, part: Backfill) -> None:
        """Keep the part of a shard that failed."""
        self._kept[address] = part

    def can_go_on(self, done: ShardUpgrade) -> bool:
        """Whether a shard used its part up while others left something of theirs."""
        ended = done.result is not None and done.result.ended_by in LIMITS
        return ended and self._moved and all(self._left(name) != 0 for name in LIMITS)

    def _left(self, name: SharedLimit) -> float | None:
        """What of a limit is neither spent nor kept; None where it was not asked for."""
        asked = getattr(self._request, name)
        if asked is None:
            return None
        used = sum(max(_used(spent, name), self._kept_of(address, name)) for address, spent in self._spent.items())
        return max(float(asked) - used, 0.0)

    def _kept_of(self, address: str, name: SharedLimit) -> float:
        return float(getattr(self._kept[address], name)) if address in self._kept else 0.0

    def _limits(self, name: SharedLimit, waiting: Sequence[str]) -> dict[str, float] | None:
        """Of one limit, what each shard may spend in all: what it has spent, and a part of what is left by its rows."""
        left = self._left(name)
        if left is None:
            return None
        rows, limits = sum(self._rows[address] for address in waiting), {}
        for address in waiting:
            part = left * self._rows[address] / rows
            part = math.ceil(part - 1e-9) if name == "max_rows" else part
            limits[address] = _used(self._spent[address], name) + part
            left, rows = left - part, rows - self._rows[address]
        return limits


def _used(spent: Spent, name: SharedLimit) -> float:
    used: Mapping[SharedLimit, float] = {"max_rows": spent.rows, "max_seconds": spent.seconds, "max_cost": spent.cost}
    return used[name]
