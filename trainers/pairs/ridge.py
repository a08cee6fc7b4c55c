"""Ridge regression, of full or of reduced rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compatstore.seeds import seed_of
from compatstore.trainers.pairs.closed_form import AffineMap, ClosedForm
from compatstore.trainers.pairs.least_squares import LeastSquares
from compatstore.trainers.pairs.moments import Moments
from compatstore.trainers.pairs.pairs import Pairs


@dataclass(frozen=True, kw_only=True)
class Ridge(ClosedForm):
    """y = W x + b, least squares with a penalty on W that is chosen on rows kept out of the solution.

    The chosen penalty is then used on all rows; neither step sees the rows of `holdout`.

    Args:
        penalties: To choose from, each >= 0, in units of the mean variance of the input; one is taken as it is.
        validation: Share of the rows that choose the penalty, in (0, 1).
    """

    penalties: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    validation: float = 0.1

    def rules(self) -> dict[str, bool]:
        """Return what the settings must fulfil, and whether they do."""
        return {
            "penalties, at least one, each >= 0": bool(self.penalties) and min(self.penalties) >= 0,
            "validation in (0, 1)": 0 < self.validation < 1,
        }

    def solve(self, pairs: Pairs) -> AffineMap:
        """Solve on all rows given.

        Raises:
            InvalidInput: One row, where there is something to choose.
        """
        penalty, rank = self._choose(pairs)
        moments = Moments.of(pairs)
        weight = LeastSquares(moments).weight(penalty, rank)
        return AffineMap.through_means(weight, moments, {"penalty": penalty, "rank": float(rank)})

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


@dataclass(frozen=True, kw_only=True)
class LowRankRidge(Ridge):
    """Ridge regression of reduced rank, the rank chosen together with the penalty; for pairs that are few.

    Args:
        ranks: To choose from, each >= 1; those beyond the dimensions count as the largest possible.
    """

    ranks: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256)

    def rules(self) -> dict[str, bool]:
        """Return what the settings must fulfil, and whether they do."""
        return super().rules() | {"ranks, at least one, each >= 1": bool(self.ranks) and min(self.ranks) >= 1}

    def ranks_up_to(self, full: int) -> tuple[int, ...]:
        """Return the ranks to choose from, where `full` is the largest possible."""
        return tuple(sorted({min(rank, full) for rank in self.ranks}))


@dataclass(frozen=True, kw_only=True)
class LowRankAffine(ClosedForm):
    """y = U V^T x + b, the low-rank affine map of Drift-Adapter (arXiv 2509.23471).

    The paper trains U and V by gradient descent on the squared error; this is the minimum that it descends to.

    Args:
        rank: Columns of U and V, >= 1; beyond the dimensions it counts as the largest possible.
    """

    rank: int = 64

    def rules(self) -> dict[str, bool]:
        """Return what the settings must fulfil, and whether they do."""
        return {"rank >= 1": self.rank >= 1}

    def solve(self, pairs: Pairs) -> AffineMap:
        """Solve on all rows given."""
        moments = Moments.of(pairs)
        squares = LeastSquares(moments)
        rank = min(self.rank, squares.full_rank)
        return AffineMap.through_means(squares.weight(0.0, rank), moments, {"rank": float(rank)})
