"""Orders of a backfill that tables measure and the package lacks: by a classifier head, or a tenth spread first.

Three orders go by how sure a classifier head is of an item's transformed vector (RACT), which says little of classes
that the head was not trained on (FastFill, appendix C.4). `spread-then-sigma` takes a tenth of the items from all cells
of the source's vectors in proportion, and the rest by sigma.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from compatstore.arrays import Doubles, FloatArray, Positions
from compatstore.digests import BACKFILL
from compatstore.errors import InvalidInput
from compatstore.upgrade.backfilling import policies
from compatstore.upgrade.backfilling.cells import random_scores, spread
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows

SPREAD_THEN_SIGMA = "spread-then-sigma"
SPREAD_FIRST = 0.1  # of all items: settled in docs/results/orders.md
# A head's logits are known up to a positive scale. Cosines of a normalised space need one: unscaled they differ too
# little for a softmax to tell classes apart. 16 is what our own classifiers are trained with.
COSINE_SCALE = 16.0


def order(policy: str, rows: ArrayRows, seed: int = 0, logits: FloatArray | None = None) -> Positions:
    """Order items by a policy of the package or of this file.

    Args:
        policy: As of `compatstore.upgrade.backfilling.policies`; or "entropy", "margin", "least-confidence",
            "spread-then-sigma".
        rows: The n items.
        seed: Of the order.
        logits: (n, classes) floats of a classifier head, for the orders that go by one.

    Returns:
        (n,) intp, most urgent first.
    """
    if policy in BY_HEAD:
        assert logits is not None
        score = BY_HEAD[policy](logits)
    elif policy == SPREAD_THEN_SIGMA:
        score = _spread_then_sigma(rows, seed)
    else:
        return policies.order(policy, rows, seed)
    first = -np.where(np.isnan(score), np.inf, score)
    return np.lexsort((-random_scores(rows.ids, BACKFILL, seed), first))


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


BY_HEAD: Mapping[str, Callable[[FloatArray], Doubles]] = {
    "entropy": entropy,
    "margin": margin,
    "least-confidence": least_confidence,
}


def true_loss(transformed: FloatArray, native: FloatArray) -> Doubles:
    """Squared distances of transformed from native vectors, the oracle's order: two of (n, d) -> (n,) float64."""
    apart = np.asarray(transformed, np.float64) - np.asarray(native, np.float64)
    losses: Doubles = np.einsum("nd,nd->n", apart, apart)
    return losses


def _spread_then_sigma(rows: ArrayRows, seed: int) -> Doubles:
    """Scores of which the first tenth of `spread` has those above every sigma^2."""
    spread_first = spread(rows.cells(seed), random_scores(rows.ids, BACKFILL, seed))
    sigma2 = rows.uncertainty()
    first = (spread_first > 1 - SPREAD_FIRST) & ~np.isnan(sigma2)
    return np.where(first, 2.0**500 * spread_first, sigma2)


def _softmax(logits: FloatArray) -> Doubles:
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InvalidInput("read class logits", expected="(n, classes), 2 classes or more", found=f"{logits.shape}")
    exponents = np.asarray(logits, np.float64)
    shares: Doubles = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares
