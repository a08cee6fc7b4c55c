"""Penalised least squares of any rank: one eigendecomposition serves every penalty, one more serves every rank."""

from __future__ import annotations

import numpy as np

from compatstore.arrays import Doubles
from compatstore.trainers.pairs.moments import Moments

# Directions whose variance is below this share of the largest are not told from rounding.
_ROUNDING = 1e-12


class LeastSquares:
    """Minimises mean |y - W x|^2 + penalty v |W|^2 over W of a given rank, x and y centred, v the mean variance of x.

    The solution of full rank is ridge regression. The best of rank r is that solution projected on the r leading
    eigenvectors of the covariance of its fitted values (reduced-rank ridge: Mukherjee and Zhu 2011, equation 4).

    Args:
        moments: Of the rows to fit.
    """

    def __init__(self, moments: Moments) -> None:
        self._values, self._basis = np.linalg.eigh(moments.inputs)
        self._cross = self._basis.T @ moments.cross

    @property
    def full_rank(self) -> int:
        """The largest rank that a map between these dimensions can have."""
        return int(min(self._cross.shape))

    def weight(self, penalty: float, rank: int) -> Doubles:
        """Return the solution, (d_out, d_in)."""
        solution = self._solution(penalty)
        leading = self._leading(solution)[:, :rank]
        return np.asarray(leading @ (leading.T @ solution.T) @ self._basis.T)

    def errors(self, penalty: float, held_out: Moments) -> Doubles:
        """Return the mean squared distance on held-out rows for the ranks 1, 2, ..., `full_rank`.

        Projecting on one more direction changes the error by a term of that direction alone, so all ranks follow from
        one running sum.

        Args:
            penalty: As in `weight`.
            held_out: Moments of these rows about the means of the rows fitted.
        """
        solution = self._solution(penalty)
        leading = self._leading(solution)
        predicted = self._basis @ solution @ leading
        common = np.einsum("ir,ir->r", predicted, held_out.cross @ leading)
        length = np.einsum("ir,ir->r", predicted, held_out.inputs @ predicted)
        return np.asarray(held_out.output_square - np.cumsum(2 * common - length))

    def _solution(self, penalty: float) -> Doubles:
        """Ridge regression, (d_in, d_out), its inputs in the eigenbasis."""
        values = self._values
        kept = values > _ROUNDING * values.max(initial=0.0)
        inverse = np.divide(1, values + penalty * values.mean(), out=np.zeros_like(values), where=kept)
        return np.asarray(inverse[:, None] * self._cross)

    def _leading(self, solution: Doubles) -> Doubles:
        """Eigenvectors (d_out, full_rank) of the covariance of the fitted values, the largest first."""
        _, vectors = np.linalg.eigh(self._cross.T @ solution)
        return np.asarray(vectors[:, ::-1][:, : self.full_rank])
