"""The order of a backfill: every item gets a score, and the higher it is the earlier the item is embedded.

A policy is a name of the table below ("sigma"), a column of the user's ("column:views"), classes of a column that are
taken from in proportion ("spread-sigma:category"), or a product of these ("sigma*column:views"). Rows that are drawn at
random validate a refit (`validation_rows`): they are like the rows that remain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from compatstore.arrays import BoolArray, Doubles, FloatArray, Positions
from compatstore.digests import BACKFILL
from compatstore.errors import InvalidInput, first_offenders
from compatstore.upgrade.backfilling.cells import spread
from compatstore.upgrade.backfilling.policy_inputs import PolicyInputs, TableRows
from compatstore.upgrade.backfilling.random_order import random_scores

COLUMN = "column:"
RANDOM, SPREAD, SIGMA, SPREAD_SIGMA = "random", "spread", "sigma", "spread-sigma"
SPREAD_THEN_SIGMA = "spread-then-sigma"
SPREAD_FIRST = 0.1  # of all items: settled in docs/results/orders.md
OF_CLASSES = f"{SPREAD_SIGMA}:"
_ABOVE = 2.0**500  # of any sigma^2, which is a float32
AT_RANDOM = (RANDOM, SPREAD)  # what they choose first is a random sample of all items
REFIT_DRAW = "refit"


def order(policy: str, rows: PolicyInputs, seed: int = 0) -> npt.NDArray[np.intp]:
    """Order items by a policy: the unknown (NaN) first, then by score, equals in the random order of the seed.

    Args:
        policy: "random", "spread", "sigma", "spread-then-sigma", "spread-sigma", "spread-sigma:NAME", "entropy",
            "margin", "least-confidence", "traffic", "column:NAME", or a product of these.
        rows: The n items, of a gallery or of arrays.
        seed: Of the policies "random" and "spread", of cells, and of the order among equal scores.

    Returns:
        (n,) intp, positions in `rows`, most urgent first. Of two items the same one is first wherever they stand.

    Raises:
        InvalidInput: There is no such policy, or the items lack what it reads.
    """
    first, second = order_keys(policy, rows, seed)
    return np.lexsort((second, first))


def order_keys(policy: str, rows: PolicyInputs, seed: int) -> tuple[Doubles, Doubles]:
    """What an order is by, the smallest first: (n,) float64, and (n,) float64 among equals; errors as of `order`."""
    scores = [_score(name, rows, seed) for name in factors(policy)]
    score = scores[0] if len(scores) == 1 else _product(policy, scores)
    return -np.where(np.isnan(score), np.inf, score), -random_scores(rows.ids, BACKFILL, seed)


def is_spread(policy: str) -> bool:
    """Whether the place of an item depends on the other items of its cell or class."""
    by_cell = (SPREAD, SPREAD_THEN_SIGMA, SPREAD_SIGMA)
    return any(name in by_cell or classes_column(name) is not None for name in factors(policy))


def factors(policy: str) -> list[str]:
    """Split a policy into the names that it multiplies.

    Raises:
        InvalidInput: One of them is neither in the table nor a column.
    """
    names = [name.strip() for name in policy.split("*")]
    if not all(name in POLICIES or column_of(name) or classes_column(name) for name in names):
        raise InvalidInput(
            "order the backfill",
            expected=f"one of {', '.join(POLICIES)}, {OF_CLASSES}NAME, {COLUMN}NAME, "
            f"or a product such as sigma*{COLUMN}NAME",
            found=repr(policy),
        )
    return names


def reads_sigma(policy: str) -> bool:
    """Whether a policy reads the uncertainty that an artifact predicts."""
    return any(_is_by_sigma(name) for name in factors(policy))


def require_readable(policy: str, rows: TableRows, *, learns: bool = False) -> None:
    """Refuse a policy that reads what a gallery does not have, before anything is written.

    Args:
        policy: The order.
        rows: The gallery.
        learns: Whether an artifact is yet to be learned, which may predict sigma.

    Raises:
        InvalidInput: There is no such policy; or no artifact predicts sigma, no version has a classifier head, or the
            table has no such column of numbers or classes.
    """
    for name in factors(policy):
        column, classes = column_of(name), classes_column(name)
        if column is not None:
            rows.require_column(column)
        elif _is_by_sigma(name):
            if classes is not None:
                rows.require_classes(classes)
            if not learns:
                rows.require_uncertainty()
        elif name not in (*AT_RANDOM, "traffic"):
            rows.require_head()


def column_of(name: str) -> str | None:
    """The user's column that a factor of a policy names, or None."""
    return name.removeprefix(COLUMN) or None if name.startswith(COLUMN) else None


def classes_column(name: str) -> str | None:
    """The user's column whose classes a factor of a policy takes from in proportion, or None."""
    return name.removeprefix(OF_CLASSES) or None if name.startswith(OF_CLASSES) else None


def _is_by_sigma(name: str) -> bool:
    return name in (SIGMA, SPREAD_THEN_SIGMA, SPREAD_SIGMA) or classes_column(name) is not None


def entropy(logits: FloatArray) -> Doubles:
    """Entropy of the predicted classes, in nats: (n, classes) floats -> (n,) float64."""
    shares = _softmax(logits)
    surprise = -np.log(np.maximum(shares, np.finfo(np.float64).tiny))
    expected: Doubles = np.einsum("nc,nc->n", shares, surprise)
    return expected


def margin(logits: FloatArray) -> Doubles:
    """One minus the lead of the likeliest class over the second: (n, classes) floats -> (n,) float64 in [0, 1]."""
    best = np.partition(_softmax(logits), -2, axis=1)
    return 1.0 - (best[:, -1] - best[:, -2])


def least_confidence(logits: FloatArray) -> Doubles:
    """One minus the share of the likeliest class: (n, classes) floats -> (n,) float64 in [0, 1)."""
    best: Doubles = _softmax(logits).max(axis=1)
    return 1.0 - best


def true_loss(transformed: FloatArray, native: FloatArray) -> Doubles:
    """Squared distances of transformed from native vectors: the oracle's order, for measurements only.

    Args:
        transformed: (n, d) floats.
        native: (n, d) floats, what a backfill would have yet to compute.

    Returns:
        (n,) float64.
    """
    apart = np.asarray(transformed, np.float64) - np.asarray(native, np.float64)
    losses: Doubles = np.einsum("nd,nd->n", apart, apart)
    return losses


# "sigma" is the predicted sigma^2, high to low (FastFill, section 4.2). Three ask a classifier head how sure it is
# (RACT), which says little of classes that the head was not trained on (FastFill, appendix C.4). "traffic" is one more
# than the number of searches that an item was a candidate of: without any, a product is its other factor. "spread" is
# a random order whose first items are from all cells of the source's vectors in proportion, "spread-then-sigma" takes
# a tenth of the items by it and the rest by sigma; "spread-sigma" takes the most uncertain ones of each cell, or of
# each class of a column, first.
POLICIES: Mapping[str, Callable[[PolicyInputs, int], Doubles]] = {
    RANDOM: lambda rows, seed: random_scores(rows.ids, BACKFILL, seed),
    SPREAD: lambda rows, seed: _spread(rows, seed),
    SIGMA: lambda rows, _: rows.uncertainty(),
    SPREAD_THEN_SIGMA: lambda rows, seed: _spread_then_sigma(rows, seed),
    SPREAD_SIGMA: lambda rows, seed: _spread_sigma(rows, rows.cells(seed), seed),
    "entropy": lambda rows, _: rows.by_logits(entropy),
    "margin": lambda rows, _: rows.by_logits(margin),
    "least-confidence": lambda rows, _: rows.by_logits(least_confidence),
    "traffic": lambda rows, _: 1.0 + rows.traffic(),
}


def _score(name: str, rows: PolicyInputs, seed: int) -> Doubles:
    column, classes = column_of(name), classes_column(name)
    if classes is not None:
        return _spread_sigma(rows, rows.classes(classes), seed)
    return POLICIES[name](rows, seed) if column is None else rows.column(column)


def _spread(rows: PolicyInputs, seed: int) -> Doubles:
    return spread(rows.cells(seed), random_scores(rows.ids, BACKFILL, seed))


def _spread_then_sigma(rows: PolicyInputs, seed: int) -> Doubles:
    """The first tenth of the items of `spread` score above every sigma^2, and do not depend on what became native."""
    spread_first, sigma2 = _spread(rows, seed), rows.uncertainty()
    first = (spread_first > 1 - SPREAD_FIRST) & ~np.isnan(sigma2)
    return np.where(first, _ABOVE * spread_first, sigma2)


def _spread_sigma(rows: PolicyInputs, cells: npt.NDArray[np.int64], seed: int) -> Doubles:
    return spread(cells, random_scores(rows.ids, BACKFILL, seed), rows.uncertainty())


def _product(policy: str, scores: list[Doubles]) -> Doubles:
    """Multiply factors; two negative ones would make a score that neither of them meant."""
    for score in scores:
        if (score < 0).any():
            raise InvalidInput(
                f"order the backfill by {policy}",
                expected="factors that are not negative",
                found=first_offenders(score[score < 0].tolist()),
            )
    product: Doubles = np.prod(scores, axis=0)
    return product


def _softmax(logits: FloatArray) -> Doubles:
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InvalidInput("read class logits", expected="(n, classes), 2 classes or more", found=f"{logits.shape}")
    exponents = np.asarray(logits, np.float64)
    shares: Doubles = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def draw(policy: str, rows: PolicyInputs, seed: int) -> Positions:
    """All rows in the order in which they are drawn: (n,) intp.

    With the policy "random" that is the order of the backfill. Other policies break ties in the random order of the
    backfill, so that their draw is seeded by a name of its own.
    """
    first, second = draw_keys(policy, rows, seed)
    return np.lexsort((second, first))


def draw_keys(policy: str, rows: PolicyInputs, seed: int) -> tuple[Doubles, Doubles]:
    """What a draw is by, as `order_keys`."""
    if policy == RANDOM:
        return order_keys(RANDOM, rows, seed)
    return -random_scores(rows.ids, REFIT_DRAW, seed), np.zeros(len(rows.ids))


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
