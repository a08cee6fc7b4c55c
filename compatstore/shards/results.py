"""The shared budget of shards, and the figures of all and of each, as values and as people see them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from compatstore import next_step
from compatstore.errors import CompatStoreError
from compatstore.shown import Shown, Table, table, view, wrapped
from compatstore.storage.records import Spent
from compatstore.upgrade.requests.backfill import Backfill
from compatstore.upgrade.run import UpgradeResult


@dataclass(frozen=True)
class ShardUpgrade:
    """Result of an upgrade of one shard.

    Attributes:
        gallery: Its address.
        result: The result; None if it failed.
        error: The error; None if it did not fail.
    """

    gallery: str
    result: UpgradeResult | None
    error: CompatStoreError | None

    @property
    def used_up(self) -> bool:
        """True if the shard ended by a limit."""
        return self.result is not None and self.result.ended_by in [f"max_{name}" for name in LIMITS]


@dataclass(frozen=True)
class ShardsUpgrade(Shown):
    """Result of an upgrade of all shards.

    Attributes:
        target: Version upgraded to.
        ready: Shards that are ready, or have cut over.
        failed: Shards that failed.
        transformed: Rows whose vectors this call made or remade by the hop.
        backfilled: Rows that this call embedded natively.
        missing: Rows without a vector in the target, of the shards that did not fail.
        spent: Spending of the backfills of all shards, over all calls.
        shards: Each of them.
    """

    target: str
    ready: int
    failed: int
    transformed: int
    backfilled: int
    missing: int
    spent: Spent
    shards: tuple[ShardUpgrade, ...]


@dataclass(frozen=True)
class ShardStatus:
    """One shard now.

    Attributes:
        gallery: Its address.
        rows: Items.
        active: Version that searches use; "" if the shard cannot be read.
        state: State of its upgrade to the target: expand, hop, backfill, ready, cutover; "" if there is none.
        doing: running, waiting, paused, failed, interrupted; "" if there is no upgrade.
        native: Rows with a native vector in the target.
        transformed: Rows with one that an artifact made.
        missing: Rows that no query of the target finds.
        spent: Spending of its backfill, over all calls.
        error: The last error, or the reason why it cannot be read; "" without one.
    """

    gallery: str
    rows: int = 0
    active: str = ""
    state: str = ""
    doing: str = ""
    native: int = 0
    transformed: int = 0
    missing: int = 0
    spent: Spent = field(default_factory=Spent)
    error: str = ""


@dataclass(frozen=True)
class ShardsStatus(Shown):
    """All shards now.

    Attributes:
        target: The version that the figures are of.
        rows: Items of all.
        native: Those with a native vector in the target.
        transformed: Those with one that an artifact made.
        missing: Those that no query of the target finds.
        spent: Spending of the backfills, over all calls.
        can_cut_over: True if every shard is ready, or uses the target.
        shards: Each of them.
    """

    target: str
    rows: int
    native: int
    transformed: int
    missing: int
    spent: Spent
    can_cut_over: bool
    shards: tuple[ShardStatus, ...]


@dataclass(frozen=True)
class ShardsSwitched(Shown):
    """Result of a cutover or a rollback of all shards.

    Attributes:
        active: Version that all of them use now.
        switched: Addresses of those that this call switched.
        before: Those that used it already.
    """

    active: str
    switched: tuple[str, ...]
    before: tuple[str, ...]


def both(earlier: ShardUpgrade | None, result: UpgradeResult) -> UpgradeResult:
    """Result of two passes over one shard."""
    before = None if earlier is None else earlier.result
    if before is None:
        return result
    return replace(
        result,
        transformed=before.transformed + result.transformed,
        backfilled=before.backfilled + result.backfilled,
        seconds=before.seconds + result.seconds,
        rounds=(*before.rounds, *result.rounds),
    )


def summed(target: str, shards: Sequence[ShardUpgrade]) -> ShardsUpgrade:
    """Figures of all shards."""
    results = [shard.result for shard in shards if shard.result is not None]
    return ShardsUpgrade(
        target=target,
        ready=sum(result.state in ("ready", "cutover") for result in results),
        failed=len(shards) - len(results),
        **sums(results, "transformed", "backfilled", "missing"),
        spent=total(result.spent for result in results),
        shards=tuple(shards),
    )


def sums(parts: Iterable[object], *names: str) -> dict[str, int]:
    """Sum of each count over the parts."""
    parts = list(parts)
    return {name: sum(getattr(part, name) for part in parts) for name in names}


def total(spent: Iterable[Spent]) -> Spent:
    """Sum of several shards' spending."""
    found = list(spent)
    seconds, cost = sum(part.seconds for part in found), sum(part.cost for part in found)
    return Spent(**sums(found, "rows", "tokens"), seconds=seconds, cost=cost)


def unready(shards: Sequence[ShardStatus], target: str) -> list[str]:
    """Shards that are not ready and do not use the target yet, a clause each."""
    waiting = [shard for shard in shards if shard.active != target and shard.state != "ready"]
    return [f"{shard.gallery}: {shard.error or shard.state or 'no upgrade'}" for shard in waiting]


@view.register
def _(result: ShardsUpgrade) -> Iterator[str | Table]:
    """Results of each shard, and the next command."""
    yield (
        f"{result.target} of {len(result.shards)} shards: {result.ready} ready, {result.failed} failed; "
        f"{result.transformed} items transformed, {result.backfilled} embedded natively, {result.missing} missing"
    )
    yield table(
        ("shard", "state", "transformed", "embedded", "missing", "ended by", "error"),
        [
            (s.gallery, "failed", "", "", "", "", str(s.error))
            if (r := s.result) is None
            else (s.gallery, r.state, r.transformed, r.backfilled, r.missing, r.ended_by, "")
            for s in result.shards
        ],
    )
    yield f"spent: {result.spent.rows} items, {result.spent.seconds:.1f} s, {result.spent.cost:g} in cost"
    for shard in result.shards:
        if shard.result is not None and shard.result.full_backfill:
            yield from wrapped(f"{shard.gallery}: {shard.result.full_backfill}")
    no_gain = [shard.gallery for shard in result.shards if shard.result is not None and shard.result.has_no_gain]
    if result.failed:
        yield f"{next_step.same()} tries the failed ones again: {next_step.call('upgrade', result.target, on='shards')}"
    elif no_gain:
        more = next_step.call("upgrade", result.target, backfill=1.0, on="shards")
        yield f"next: no gain was measured in {', '.join(no_gain)}: embed more before a cutover: {more}"
    elif result.ready == len(result.shards):
        yield f"next: {next_step.call('cutover', result.target, on='shards')}"


@view.register
def _(result: ShardsStatus) -> Iterator[str | Table]:
    """All shards now."""
    yield (
        f"{len(result.shards)} shards, {result.rows} items; in {result.target}: {result.native} native, "
        f"{result.transformed} transformed, {result.missing} missing"
    )
    yield table(
        ("shard", "rows", "active", "state", "doing", "native", "transformed", "missing", "error"),
        [
            (s.gallery, s.rows, s.active, s.state, s.doing, s.native, s.transformed, s.missing, s.error)
            for s in result.shards
        ],
    )
    yield f"spent: {result.spent.rows} items, {result.spent.seconds:.1f} s, {result.spent.cost:g} in cost"
    yield f"a cutover {'can be made' if result.can_cut_over else 'would be refused: not all are ready'}"


@view.register
def _(result: ShardsSwitched) -> Iterator[str | Table]:
    """Number of shards that were switched."""
    yield f"{result.active} is active: {len(result.switched)} shards switched"
    if result.before:
        yield f"{len(result.before)} others were not touched"


LIMITS = ("rows", "seconds", "cost")  # fields of `Spent`; "max_rows" and so on of `Backfill`
LEAST_SECONDS = 1e-6  # no limit may be 0


class SharedBudget:
    """Gives each shard its part of one budget.

    Args:
        request: The request; its limits are of all shards together; the share is of each.
        shards: Address -> status, with the spending of earlier calls.

    Attributes:
        spent: Address -> what the shard has spent; of one that failed what is kept for it.
    """

    def __init__(self, request: Backfill, shards: Mapping[str, ShardStatus]) -> None:
        self._request, self._limited = request, [name for name in LIMITS if getattr(request, f"max_{name}") is not None]
        self._rows = {address: max(shard.rows, 1) for address, shard in shards.items()}
        self.spent = {address: shard.spent for address, shard in shards.items()}

    @property
    def has_rest(self) -> bool:
        """True if every limit leaves something to give."""
        return all(self._left(name) for name in self._limited)

    def parts(self, waiting: Sequence[str]) -> dict[str, Backfill]:
        """Limits of each of these shards, over all its calls."""
        totals = {name: self._totals(name, waiting) for name in self._limited}
        parts = {}
        for address in waiting:
            limits: dict[str, Any] = {f"max_{name}": of[address] for name, of in totals.items()}
            parts[address] = replace(self._request, **limits)
        return parts

    def keep(self, address: str, part: Backfill) -> None:
        """Keep the part of a shard that failed, as if it had been spent."""
        kept = {name: getattr(part, f"max_{name}") for name in self._limited}
        self.spent[address] = replace(self.spent[address], **kept)

    def _left(self, name: str) -> float:
        """Rest of a limit that is neither spent nor kept."""
        used = sum(getattr(spent, name) for spent in self.spent.values())
        return max(float(getattr(self._request, f"max_{name}") - used), 0.0)

    def _totals(self, name: str, waiting: Sequence[str]) -> dict[str, float]:
        """Maximum total of one limit for each shard: its spending, and a part of the rest by its rows."""
        left, rows, totals = self._left(name), sum(self._rows[address] for address in waiting), {}
        for address in waiting:
            part = left * self._rows[address] / rows
            part = math.ceil(part - 1e-9) if name == "rows" else part
            total = getattr(self.spent[address], name) + part
            totals[address] = round(total) if name == "rows" else max(total, LEAST_SECONDS * (name == "seconds"))
            left, rows = left - part, rows - self._rows[address]
        return totals
