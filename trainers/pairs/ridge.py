"""Closed forms that are linear: shifts, rotations and scales, and ridge regression of full or of reduced rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from compatstore.arrays import Doubles
from compatstore.boundary import checked_fields
from compatstore.digests import seed_of
from compatstore.trainers.pairs.closed_form import ClosedForm, Moments, Solution, require_equal_dims
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.settings import Count, OpenShare, at_least, each

# A pair of this leverage or more is fitted whatever its target: rounding decides its prediction.
_MOST_LEVERAGE = 1 - 1e-7

# Directions whose variance is below this share of the largest cannot be separated from rounding.
_ROUNDING = 1e-12


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Ridge(ClosedForm):
    """y = W x + b, least squares with a penalty on W that is chosen on rows kept out of the solution.

    The chosen penalty is then used on all rows; neither step sees the rows of `holdout`.

    Args:
        penalties: To choose from, each >= 0, in units of the mean variance of the input; one is taken as it is.
        validation: Share of the rows that choose the penalty, in (0, 1).
    """

    penalties: Annotated[tuple[float, ...], each(at_least(0))] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    validation: OpenShare = 0.1

    def solve(self, pairs: Pairs) -> Solution:
        """Solve on all rows given.

        Raises:
            InvalidInput: One row, if there is something to choose.
        """
        penalty, rank = self._choose(pairs)
        moments = Moments.of(pairs)
        weight = LeastSquares(moments).weight(penalty, rank)
        return Solution.affine(pairs, weight, moments, {"penalty": penalty, "rank": float(rank)})

    def left_out(self, pairs: Pairs, squares: LeastSquares) -> Doubles | None:
        """Each pair by the solution on all others; None if a penalty is chosen, or a rank restricts the map."""
        whole = squares.full_rank
        fixed = len(self.penalties) == 1 and self.ranks_up_to(whole) == (whole,)
        return squares.left_out(self.penalties[0], pairs) if fixed else None

    def ranks_up_to(self, full: int) -> tuple[int, ...]:
        """Return the ranks to choose from, where `full` is the largest possible."""
        return (full,)

    def _choose(self, pairs: Pairs) -> tuple[float, int]:
        dim = pairs.source.shape[1] + (0 if pairs.side is None else pairs.side.shape[1])
        ranks = self.ranks_up_to(min(dim, pairs.target.shape[1]))
        if len(self.penalties) == len(ranks) == 1:
            return self.penalties[0], ranks[0]
        fitted, validation = pairs.split(self.validation, seed_of("validation", self.seed))
        moments = Moments.of(fitted)
        squares, held_out = LeastSquares(moments), Moments.of(validation, about=moments)
        columns = np.array(ranks) - 1
        errors = np.array([squares.errors(penalty, held_out)[columns] for penalty in self.penalties])
        row, column = np.unravel_index(errors.argmin(), errors.shape)
        return self.penalties[row], ranks[column]


@checked_fields
@dataclass(frozen=True, kw_only=True)
class LowRankRidge(Ridge):
    """Ridge regression of reduced rank, the rank chosen together with the penalty; for pairs that are few.

    Args:
        ranks: To choose from, each >= 1; those beyond the dimensions count as the largest possible.
    """

    ranks: Annotated[tuple[int, ...], each(at_least(1))] = (4, 8, 16, 32, 64, 128, 256)

    def ranks_up_to(self, full: int) -> tuple[int, ...]:
        """Return the ranks to choose from, where `full` is the largest possible."""
        return tuple(sorted({min(rank, full) for rank in self.ranks}))


@checked_fields
@dataclass(frozen=True, kw_only=True)
class LowRankAffine(ClosedForm):
    """y = U V^T x + b, the low-rank affine map of Drift-Adapter (arXiv 2509.23471).

    The paper trains U and V by gradient descent on the squared error; this is the minimum that it descends to.

    Args:
        rank: Columns of U and V, >= 1; beyond the dimensions it counts as the largest possible.
    """

    rank: Count = 64

    def solve(self, pairs: Pairs) -> Solution:
        """Solve on all rows given."""
        moments = Moments.of(pairs)
        squares = LeastSquares(moments)
        rank = min(self.rank, squares.full_rank)
        return Solution.affine(pairs, squares.weight(0.0, rank), moments, {"rank": float(rank)})


class LeastSquares:
    """Minimise mean |y - W x|^2 + penalty v |W|^2 over W of a given rank, x and y centred, v the mean variance of x.

    One eigendecomposition serves every penalty, one more serves every rank; the full rank needs none. Where rows are
    fewer than values, both are done in the directions that the rows span. The solution of full rank is ridge
    regression. The best of rank r is that solution projected on the r leading
    eigenvectors of the covariance of its fitted values (reduced-rank ridge: Mukherjee and Zhu 2011, equation 4).

    Attributes:
        full_rank: The largest rank that a map between these dimensions can have.

    Args:
        moments: Of the rows to fit.
    """

    def __init__(self, moments: Moments) -> None:
        if moments.factor is None:
            self._values, self._directions = np.linalg.eigh(moments.inputs)
        else:
            _, strengths, rows = np.linalg.svd(moments.factor, full_matrices=False)
            self._values, self._directions = strengths**2, rows.T
        self._few, self._moments = moments.factor is not None, moments
        self._variance = float(np.trace(moments.inputs)) / len(moments.inputs)
        self._cross = self._directions.T @ moments.cross
        self.full_rank = int(min(moments.cross.shape))

    def weight(self, penalty: float, rank: int) -> Doubles:
        """Return the solution, (d_out, d_in)."""
        solution = self._solution(penalty)
        if rank >= min(self.full_rank, len(solution)):  # all that there is
            return np.asarray(solution.T @ self._directions.T)
        leading = self._leading(penalty)[:, :rank]
        return np.asarray(leading @ (leading.T @ solution.T) @ self._directions.T)

    def left_out(self, penalty: float, pairs: Pairs) -> Doubles | None:
        """Predict each of the pairs that the moments are of by ridge regression on all others.

        The fitted values are H y. The solution without a pair errs on it by the error of that on all pairs divided by
        1 - h_ii (Allen 1974; Hastie, Tibshirani and Friedman 2009, equation 7.64).

        Args:
            penalty: As in `weight`, in units of the variance over all pairs.
            pairs: The pairs.

        Returns:
            (n, d_out) float64; None if a pair decides its own prediction alone.
        """
        parts = [pairs.source] if pairs.side is None else [pairs.source, pairs.side]
        inputs = np.concatenate(parts, axis=1, dtype=np.float64) - self._moments.input_mean
        turned = inputs @ self._directions
        leverage = (np.square(turned) @ self._inverse(penalty) + 1) / len(pairs)
        if leverage.max() >= _MOST_LEVERAGE:
            return None
        fitted = turned @ self._solution(penalty) + self._moments.output_mean
        return np.asarray(pairs.target - (pairs.target - fitted) / (1 - leverage)[:, None])

    def errors(self, penalty: float, held_out: Moments) -> Doubles:
        """Return the mean squared distance on held-out rows for the ranks 1, 2, ..., `full_rank`.

        Projecting on one more direction changes the error by a term of that direction alone, so all ranks follow from
        one running sum.

        Args:
            penalty: As in `weight`.
            held_out: Moments of these rows about the means of the rows fitted.
        """
        solution = self._solution(penalty)
        leading = self._leading(penalty)
        predicted = self._directions @ (solution @ leading)
        common = np.einsum("ir,ir->r", predicted, held_out.cross @ leading)
        length = np.einsum("ir,ir->r", predicted, held_out.inputs @ predicted)
        errors = held_out.output_square - np.cumsum(2 * common - length)
        return np.asarray(np.pad(errors, (0, self.full_rank - len(errors)), mode="edge"))

    def _solution(self, penalty: float) -> Doubles:
        """Ridge regression, (d_in, d_out), its inputs in the eigenbasis."""
        return np.asarray(self._inverse(penalty)[:, None] * self._cross)

    def _inverse(self, penalty: float) -> Doubles:
        """Inverse of the divisor of each direction."""
        values = self._values
        kept = values > _ROUNDING * values.max(initial=0.0)
        return np.asarray(np.divide(1, values + penalty * self._variance, out=np.zeros_like(values), where=kept))

    def _leading(self, penalty: float) -> Doubles:
        """Eigenvectors of the covariance of the fitted values, (d_out, full_rank or fewer), the largest first."""
        if self._few:
            _, _, rows = np.linalg.svd(np.sqrt(self._inverse(penalty))[:, None] * self._cross, full_matrices=False)
            return np.asarray(rows.T)
        _, vectors = np.linalg.eigh(self._cross.T @ self._solution(penalty))
        return np.asarray(vectors[:, ::-1][:, : self.full_rank])


@checked_fields
@dataclass(frozen=True, kw_only=True)
class MeanShift(ClosedForm):
    """y = x + (mean of targets - mean of sources), between spaces of one dimension; side-information is not read.

    For a model that was only fine-tuned, and as the baseline of other forms. Lengths say nothing of its errors.
    """

    uncertainty: bool = False

    def solve(self, pairs: Pairs) -> Solution:
        """Solve on all rows given.

        Raises:
            InvalidInput: The dimensions differ.
        """
        require_equal_dims("MeanShift", pairs)
        moments = Moments.of(replace(pairs, side=None))
        return Solution.affine(pairs, np.eye(pairs.source.shape[1]), moments)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Procrustes(ClosedForm):
    """y = s R (x - mean of x) + mean of y, R orthogonal, or semi-orthogonal where the dimensions differ.

    R = U V^T of the singular value decomposition of the cross-covariance maximises the agreement
    (Schoenemann 1966); between different dimensions this equals filling the shorter vectors up with zeros.

    Lengths do not predict its errors, because a rotation keeps them.

    Args:
        scale: True to fit s by least squares; else s = 1 and distances within the gallery are kept.
    """

    scale: bool = True
    uncertainty: bool = False

    def solve(self, pairs: Pairs) -> Solution:
        """Solve on all rows given."""
        moments = Moments.of(pairs)
        rotation = orthogonal(moments)
        if self.scale:
            before, common = _agreement(rotation, moments)
            rotation = rotation * (common.sum() / max(before.sum(), np.finfo(np.float64).tiny))
        return Solution.affine(pairs, rotation, moments)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class DiagonalScale(ClosedForm):
    """y = D R (x - mean of x) + mean of y, D diagonal by least squares (Drift-Adapter, arXiv 2509.23471).

    Args:
        rotate: True if R is the solution of Procrustes; else R = 1, the dimensions must be equal, and
            side-information is unused.
    """

    rotate: bool = True

    def solve(self, pairs: Pairs) -> Solution:
        """Solve on all rows given.

        Raises:
            InvalidInput: The dimensions differ and `rotate` is off.
        """
        moments = Moments.of(pairs)
        if not self.rotate:
            require_equal_dims("DiagonalScale without rotation", pairs)
        rotation = orthogonal(moments) if self.rotate else np.eye(*moments.cross.T.shape)
        before, common = _agreement(rotation, moments)
        # A dimension without variance has no scale: its values stay at the mean.
        scales = np.divide(common, before, out=np.zeros_like(common), where=before > 0)
        return Solution.affine(pairs, scales[:, None] * rotation, moments)


def orthogonal(moments: Moments) -> Doubles:
    """Return the (d_out, d_in) matrix with orthonormal rows or columns that brings x closest to y, centred."""
    left, _, right = np.linalg.svd(moments.cross.T, full_matrices=False)
    return np.asarray(left @ right)


def _agreement(rotation: Doubles, moments: Moments) -> tuple[Doubles, Doubles]:
    """Return the variance of each rotated dimension, and its covariance with the target's: both (d_out,)."""
    before = np.einsum("oi,ij,oj->o", rotation, moments.inputs, rotation, optimize=True)
    common = np.einsum("oi,io->o", rotation, moments.cross)
    return before, common
