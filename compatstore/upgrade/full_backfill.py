"""Embed everything instead of learning a transform, if that takes less time.

Both times are measured: embedding by the items so far, learning by its first fits. Gates and limits that the caller
named stay in force, and an encoder that is paid for embeds no more than a named limit allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore.storage import registry as registry_module
from compatstore.storage.history import HistoryEntry
from compatstore.storage.records import CHOSEN, OPEN, RunRecord
from compatstore.upgrade.backfilling.account import read_account
from compatstore.upgrade.backfilling.embeddable import count_embeddable, knows_its_price
from compatstore.upgrade.context import UpgradeContext
from compatstore.upgrade.requests.backfill import Budget
from compatstore.upgrade.requests.gates import Gates
from compatstore.upgrade.states import set_run
from compatstore.upgrade.training_pairs import Learner

STEP = "full backfill"  # of the history


@dataclass(frozen=True)
class FullBackfill:
    """Embedding all items that remain.

    Attributes:
        rows: Items that remain.
        seconds: Time that embedding them takes, about.
        rounds: Rounds of learning that the same budget would pay for.
    """

    rows: int
    seconds: float
    rounds: int

    def is_faster(self, learning: float) -> bool:
        """True if learning takes longer.

        Args:
            learning: Seconds of one round; later ones take at least as long.
        """
        return self.rounds * learning > self.seconds

    def reason(self, learning: float) -> str:
        """The decision in one sentence: "full backfill instead of learning: ..."."""
        return (
            f"full backfill instead of learning: {self.rows} more items take about {_shown(self.seconds)}, "
            f"learning takes at least {_shown(self.rounds * learning)}"
        )


class LearningTakesLonger(Exception):  # noqa: N818  (a signal to the caller, who chooses the full backfill)
    """Ends a round of learning that takes longer than a full backfill.

    Args:
        seconds: Time that the round would have taken from here.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"learning takes {seconds:.1f} s")
        self.seconds = seconds


def full_backfill_of(context: UpgradeContext, learner: Learner, gates: Gates) -> FullBackfill | None:
    """The full backfill that an upgrade may choose; None if its limits, gates or items forbid one, or no rate is known.

    Args:
        context: The upgrade, resolved.
        learner: Learner that would fit the transforms.
        gates: Gates of the call; any gate that needs an estimate forbids it.
    """
    run, (spent, failed) = context.run, read_account(context)
    counted = count_embeddable(context, failed.num_rows)
    rows = counted.items - counted.native
    if run.full_backfill != OPEN or gates.asked or counted.expected < counted.items or not rows or not spent.rows:
        return None
    each = spent.seconds / spent.rows
    budget, paid = Budget.of(run), knows_its_price(context.catalog.encoder(run.target)) or bool(run.price_per_item)
    everything = budget.allowed_share == 1.0  # otherwise no limit is named, and the share is that of the first round
    if not everything and paid:
        return None
    price = spent.cost / spent.rows if spent.tokens else None
    most, seconds_left = budget.rows_left(spent, price), budget.seconds_left(spent)
    if (most is not None and most < rows) or (seconds_left is not None and seconds_left < each * rows):
        return None
    rounds, natives = 1, max(counted.native, learner.first_rows(counted.items))
    while everything and natives < counted.items:
        rounds, natives = rounds + 1, max(round(natives * learner.growth), natives + 1)
    return FullBackfill(rows, each * rows, rounds)


def choose_full_backfill(context: UpgradeContext, reason: str) -> RunRecord:
    """Record the decision, so that a call that goes on after a stop keeps it."""
    run = replace(context.run, full_backfill=CHOSEN, backfill=1.0, ended_by="")
    return set_run(context.catalog, run, HistoryEntry(STEP, run.target, note=reason))


def reason_of(context: UpgradeContext) -> str:
    """Why an upgrade embeds everything instead of learning; "" if it does not."""
    if context.run.full_backfill != CHOSEN:
        return ""
    steps = registry_module.history(context.store)
    notes = [entry.note for entry in steps if entry.step == STEP and entry.version == context.run.target]
    return notes[-1] if notes else ""


def _shown(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"
