"""Orders that tables measure and the package does not have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.orders import entropy, least_confidence, margin, order, true_loss
from compatstore.errors import InvalidInput
from compatstore.upgrade.backfilling.policy_inputs import ArrayRows
from lazily import Lazy

stats = Lazy("scipy.stats")


def test_confidence_scores_are_what_their_names_say():
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.4, 0.4, 0.2], [1e-300, 0.5, 0.5]]))
    np.testing.assert_allclose(entropy(logits), stats.entropy(np.exp(logits), axis=1), atol=1e-12)
    np.testing.assert_allclose(margin(logits), [0.5, 1.0, 1.0])
    np.testing.assert_allclose(least_confidence(logits), [0.3, 0.6, 0.5])
    assert np.isfinite(entropy(1e6 * logits)).all()
    np.testing.assert_allclose(true_loss([[1.0, 2.0]], [[4.0, 6.0]]), [25.0])
    with pytest.raises(InvalidInput, match="2 classes"):
        entropy(np.zeros((3, 1)))


def test_an_order_by_a_head_takes_the_least_sure_first():
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.4, 0.39, 0.21], [0.9, 0.05, 0.05]]))
    for policy in ("entropy", "margin", "least-confidence"):
        assert order(policy, ArrayRows(ids=[1, 2, 3]), 0, logits).tolist() == [1, 0, 2]


@pytest.mark.full
@given(
    st.lists(st.floats(0, 1e30) | st.just(float("nan")), min_size=1, max_size=60),
    st.integers(0, 99),
)
def test_a_tenth_is_spread_before_the_rest_goes_by_sigma(sigma2, seed):
    sigma2, vectors = np.array(sigma2), np.random.default_rng(seed).normal(size=(len(sigma2), 3))
    rows = ArrayRows(ids=range(len(sigma2)), sigma2=sigma2, source=vectors.astype(np.float32))
    chosen = order("spread-then-sigma", rows, seed)
    unknown = np.isnan(sigma2)
    assert unknown[chosen[: unknown.sum()]].all(), "the unknown come first"
    spread = [row for row in order("spread", rows, seed) if not unknown[row]]
    rest = chosen[unknown.sum() :].tolist()
    tenth = 0
    while tenth < len(rest) and rest[tenth] == spread[tenth]:
        tenth += 1
    values = sigma2[rest]
    first = next(start for start in range(len(rest) + 1) if (values[start:-1] >= values[start + 1 :]).all())
    assert first <= tenth, "what is not in the order of sigma is in that of spread"
    assert len(set(chosen.tolist())) == len(sigma2)


def test_the_tenth_is_a_tenth():
    sigma2, vectors = np.arange(1000.0), np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    rows = ArrayRows(ids=range(1000), sigma2=sigma2, source=vectors)
    chosen, spread = order("spread-then-sigma", rows), order("spread", rows)
    first = next(start for start in range(1000) if (np.diff(sigma2[chosen[start:]]) < 0).all())
    assert 90 <= first <= 110
    assert chosen[:first].tolist() == spread[:first].tolist()
    assert sorted(chosen.tolist()) == list(range(1000))
