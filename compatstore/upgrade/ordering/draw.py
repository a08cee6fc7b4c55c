"""Rows of a backfill that are drawn at random, to validate a refit by: they are like the rows that remain."""

from __future__ import annotations

import numpy as np

from compatstore.arrays import BoolArray, Positions
from compatstore.upgrade.ordering.policies import order, random_scores
from compatstore.upgrade.ordering.policy_inputs import PolicyInputs

RANDOM = "random"
REFIT_DRAW = "refit"


def draw(policy: str, rows: PolicyInputs, seed: int) -> Positions:
    """All rows in the order in which they are drawn: (n,) intp.

    With the policy "random" that is the order of the backfill. Other policies break ties in the random order of the
    backfill, so that their draw is seeded by a name of its own.
    """
    if policy == RANDOM:
        return order(RANDOM, rows, seed)
    return np.argsort(-random_scores(rows.ids, REFIT_DRAW, seed), kind="stable")


def interleave(urgent: Positions, drawn: Positions, left: int, holdout: float) -> Positions:
    """Choose the rows to embed next: drawn rows spread evenly among urgent ones.

    Args:
        urgent: Rows that are not native yet, most urgent first.
        drawn: Those of them that belong to the draw.
        left: Rows that may be embedded; drawn rows are chosen first.
        holdout: Share of drawn rows, such as 0.2: of each five rows at the beginning one is a drawn row.

    Returns:
        (left or fewer,) intp. Which rows these are does not depend on the order of the arguments, so a run that was
        stopped ends with the same rows.
    """
    drawn = drawn[:left]
    others = urgent[~np.isin(urgent, drawn)][: left - len(drawn)]
    turns = np.concatenate([np.arange(len(drawn)) / holdout, np.arange(len(others)) / (1 - holdout)])
    chosen: Positions = np.concatenate([drawn, others])[np.argsort(turns, kind="stable")]
    return chosen


def validation_rows(policy: str, rows: PolicyInputs, seed: int, native: BoolArray, unreadable: BoolArray) -> Positions:
    """Native rows that are like the rows that are not native: (m,) intp.

    Of the draw, the rows before the first one that is not native; and of these the rows that the policy alone would not
    have embedded yet, because in its order they come after the first row that is not native. With rows 0 to 9 in the
    order of the policy, 0 to 3 and the drawn rows 2 and 7 native: row 7, as the policy would have come to 0 to 3 only.

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
