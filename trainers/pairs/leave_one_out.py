"""Leave-one-out predictions of closed forms, each pair's by the solution on all others, without a second solution.

The fitted values of a linear smoother are H Y. Its solution without pair i errs on that pair by the error of the
solution on all pairs divided by 1 - h_ii (Allen 1974; Hastie, Tibshirani and Friedman 2009, equation 7.64).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from compatstore.arrays import Doubles
from compatstore.trainers.pairs.pairs import Pairs

# A pair of this leverage or more is fitted whatever its target: rounding decides its prediction.
_MOST_LEVERAGE = 1 - 1e-7


class RidgeSpectrum:
    """One eigendecomposition of the inputs of pairs, which serves ridge regression of every penalty.

    Args:
        pairs: The pairs; an input is the source vector, with the side-information behind it.
    """

    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs

    def left_out(self, penalty: float) -> Doubles | None:
        """(n, d_out) float64, the prediction of each pair by ridge regression on all others.

        Args:
            penalty: As of `Ridge`, in units of the mean variance of the input over all pairs.

        Returns:
            The predictions; None if some pair has no part in its own prediction's error.
        """
        directions, squares, variance = self._decomposed
        divisor = squares + penalty * variance
        kept = np.divide(squares, divisor, out=np.zeros_like(squares), where=divisor > 0)
        leverage = np.einsum("nr,r,nr->n", directions, kept, directions) + 1 / len(directions)
        fitted = (directions * kept) @ (directions.T @ self._target) + self._mean
        return without_own(self._pairs.target, fitted, leverage)

    @cached_property
    def _mean(self) -> Doubles:
        mean: Doubles = self._pairs.target.mean(axis=0, dtype=np.float64)
        return mean

    @cached_property
    def _target(self) -> Doubles:
        """(n, d_out), centred."""
        return self._pairs.target - self._mean

    @cached_property
    def _decomposed(self) -> tuple[Doubles, Doubles, float]:
        """Orthonormal directions of the centred inputs (n, r), their squared lengths (r,), and n mean variances."""
        parts = [self._pairs.source] if self._pairs.side is None else [self._pairs.source, self._pairs.side]
        inputs = np.concatenate(parts, axis=1, dtype=np.float64)
        inputs -= inputs.mean(axis=0)
        wide = inputs.shape[0] < inputs.shape[1]
        squares, vectors = np.linalg.eigh(inputs @ inputs.T if wide else inputs.T @ inputs)
        kept = squares > 1e-12 * squares.max(initial=0.0)  # directions that rounding leaves, as of `LeastSquares`
        total = float(np.einsum("nd,nd->", inputs, inputs)) / inputs.shape[1]
        directions = vectors[:, kept] if wide else inputs @ (vectors[:, kept] / np.sqrt(squares[kept]))
        return directions, squares[kept], total


def without_own(target: np.ndarray, fitted: Doubles, leverage: Doubles) -> Doubles | None:
    """Predictions of pairs by the linear smoother without each: y - (y - fitted) / (1 - h).

    Args:
        target: (n, d_out).
        fitted: (n, d_out) float64, by the smoother on all pairs.
        leverage: (n,) float64, the diagonal h of its matrix.

    Returns:
        (n, d_out) float64; None if a leverage is 1.
    """
    if leverage.max(initial=0.0) >= _MOST_LEVERAGE:
        return None
    left_out: Doubles = target - (target - fitted) / (1 - leverage)[:, None]
    return left_out
