"""Rows of a backfill that are drawn at random, so that something can be judged by them: they are like what remains."""

from __future__ import annotations

import numpy as np

from compatstore.arrays import BoolArray, Positions
from compatstore.upgrade.backfilling.policies import order, random_scores
from compatstore.upgrade.rows import Rows

RANDOM = "random"
REFIT_DRAW = "refit"


def draw(policy: str, rows: Rows, seed: int) -> Positions:
    """All rows in the order in which they are drawn: (n,) intp. The policy "random" draws in its own order.

    Other policies break ties in the random order of the backfill, so the draw has a domain of its own.
    """
    if policy == RANDOM:
        return order(RANDOM, rows, seed)
    return np.argsort(-random_scores(rows.ids, REFIT_DRAW, seed), kind="stable")


def interleave(urgent: Positions, drawn: Positions, left: int, holdout: float) -> Positions:
    """Choose what is embedded next, drawn rows among urgent ones.

    Args:
        urgent: Rows that are not native yet, most urgent first.
        drawn: Those of them that belong to the draw.
        left: How many may be embedded, drawn ones first of all.
        holdout: Share of the drawn among the first, however few the budget then allows.

    Returns:
        (left or fewer,) intp. The set depends on the arguments as sets, so a run that was stopped ends with the same.
    """
    drawn = drawn[:left]
    others = urgent[~np.isin(urgent, drawn)][: left - len(drawn)]
    turns = np.concatenate([np.arange(len(drawn)) / holdout, np.arange(len(others)) / (1 - holdout)])
    chosen: Positions = np.concatenate([drawn, others])[np.argsort(turns, kind="stable")]
    return chosen


def judges(policy: str, rows: Rows, seed: int, native: BoolArray, unreadable: BoolArray) -> Positions:
    """Native rows that are like those that are not: (m,) intp.

    They are the rows of the draw up to the first that is not native, and of these the ones that the policy would have
    left: in its order they come after the first row that is not native.

    Args:
        policy: Order of the backfill.
        rows: As they were before the first was embedded.
        seed: Of the order.
        native: (n,) bool.
        unreadable: (n,) bool, rows that cannot become native.
    """
    drawn = draw(policy, rows, seed)
    waiting = ~native & ~unreadable
    drawn = drawn[: _first(waiting[drawn])]
    drawn = drawn[native[drawn]]
    if policy == RANDOM:
        return drawn
    urgent = order(policy, rows, seed)
    return np.intersect1d(drawn, urgent[_first(waiting[urgent]) :])


def _first(mask: BoolArray) -> int:
    """Position of the first true value; the length where there is none."""
    return int(mask.argmax()) if mask.any() else len(mask)
