"""Agreement of orders, spaces and groups, held to other people's definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatstore.errors import InvalidInput
from compatstore.evaluation import kendall_tau, linear_cka
from lazily import Lazy

stats = Lazy("scipy.stats")


@pytest.mark.full
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=70))
def test_tau_is_scipys_with_any_ties(pairs):
    first, second = np.array(pairs).T
    expected = stats.kendalltau(first, second).statistic
    if np.isnan(expected):
        with pytest.raises(InvalidInput, match="differ"):
            kendall_tau(first, second)
    else:
        assert kendall_tau(first, second) == pytest.approx(expected, abs=1e-12)


def test_tau_of_many_values():
    random = np.random.default_rng(0)
    loss = random.gamma(2, size=100_001)
    sigma = loss * random.lognormal(size=100_001)
    assert kendall_tau(sigma, loss) == pytest.approx(stats.kendalltau(sigma, loss).statistic, abs=1e-12)
    assert (kendall_tau(loss, loss), kendall_tau(loss, -loss)) == (1.0, -1.0)


def test_orders_that_cannot_be_compared_are_refused():
    with pytest.raises(InvalidInput, match="compare two orders"):
        kendall_tau([1, 2], [1, 2, 3])
    for values in ([1.0], [np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(InvalidInput):
            kendall_tau(values, np.arange(len(values)))


def plain_cka(x, y):
    """By Gram matrices, as the paper has it."""
    centre = np.eye(len(x)) - 1 / len(x)
    left, right = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    return np.sum(left * right) / np.sqrt(np.sum(left**2) * np.sum(right**2))


def test_cka_is_the_plain_formula_however_the_rows_are_read(monkeypatch):
    random = np.random.default_rng(1)
    x = random.normal(size=(300, 20)) + 1000
    y = np.tanh(x[:, :7] - 1000) + 0.5 * random.normal(size=(300, 7))
    expected = plain_cka(x, y)
    assert 0.1 < expected < 0.9
    for rows in (64, 300, 8192):
        monkeypatch.setattr("compatstore.evaluation.agreement._ROWS", rows)
        assert linear_cka(x, y) == pytest.approx(expected, rel=1e-9)
    rotation = np.linalg.qr(random.normal(size=(20, 20)))[0]
    assert linear_cka(x, 3 * x @ rotation - 5) == pytest.approx(1.0)


def test_spaces_that_cannot_be_compared_are_refused():
    x = np.eye(4)
    with pytest.raises(InvalidInput, match="compare two spaces"):
        linear_cka(x, x[:3])
    with pytest.raises(InvalidInput, match="equal rows"):
        linear_cka(x, np.ones((4, 2)))
    with pytest.raises(InvalidInput, match="NaN"):
        linear_cka(x, np.full((4, 2), np.nan))
