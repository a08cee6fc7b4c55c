"""Kernel ridge regression: a map that is no longer linear, solved without a training loop."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np

from compatstore.arrays import Doubles
from compatstore.artifacts.architecture import Architecture
from compatstore.boundary import checked_fields
from compatstore.digests import seed_of
from compatstore.trainers.pairs.closed_form import ClosedForm, Solution
from compatstore.trainers.pairs.pairs import Pairs, unit_length
from compatstore.trainers.pairs.ridge import LeastSquares
from compatstore.trainers.settings import Count, OpenShare, above, each

_BLOCK = 1_024  # rows of the kernel at one time: 16 MB with 2,048 centres
_MEDIAN_OF = 1_000  # centres whose distances are measured
_JITTER = 1e-9  # added to the kernel's diagonal, which would be singular for equal centres


@checked_fields
@dataclass(frozen=True, kw_only=True)
class KernelRidge(ClosedForm):
    """y = sum_i alpha_i exp(-gamma |x - a_i|^2) + mean of y, a_i being source vectors of the pairs.

    alpha minimises |y - K alpha|^2 + penalty alpha^T K alpha. With as many centres as pairs that is kernel ridge
    regression; with fewer the centres are drawn at random (Nystroem: Williams and Seeger 2001). Where there is
    something to choose, rows kept out of the solution choose it. Side-information is not read.

    Args:
        centres: At the most, >= 1. A row costs as much as a network with a hidden layer of as many units.
        sharpness: To choose from, each above 0: gamma times the median squared distance between source vectors.
        penalties: To choose from, each above 0, in units of the kernel's largest value, which is 1.
        validation: Share of the rows that choose, in (0, 1).
    """

    centres: Count = 2_048
    sharpness: Annotated[tuple[float, ...], each(above(0))] = (0.5, 1.0, 2.0)
    penalties: Annotated[tuple[float, ...], each(above(0))] = (1e-2, 3e-2, 1e-1, 3e-1, 1.0)
    validation: OpenShare = 0.1

    def solve(self, pairs: Pairs) -> Solution:
        """Solve on all rows given.

        Raises:
            InvalidInput: One row, if there is something to choose.
        """
        sharpness, penalty = self._choose(pairs)
        kernel = self._kernel(pairs, sharpness)
        centres, gamma = kernel.centres, kernel.gamma
        architecture = Architecture(
            source_dim=pairs.source.shape[1],
            output_dim=pairs.target.shape[1],
            mixer=(len(centres),),
            normalise=unit_length(pairs.target),
            radial=True,
        )
        tensors = {
            "mixer.0.weight": 2 * gamma * centres,
            "mixer.0.bias": -gamma * np.einsum("nd,nd->n", centres, centres),
            "mixer.0.gamma": np.array([gamma]),
            "mixer.1.weight": _LeastSquares(kernel, pairs).weights(penalty).T,
            "mixer.1.bias": pairs.target.mean(axis=0, dtype=np.float64),
        }
        return Solution(architecture, tensors, {"sharpness": sharpness, "penalty": penalty})

    def left_out(self, pairs: Pairs, squares: LeastSquares) -> Doubles | None:
        """Each pair by the solution on all others, for the centres and the gamma of all pairs.

        Args:
            pairs: At least 2 pairs.
            squares: Not read.

        Returns:
            (n, d_out) float64; None if there is something to choose.
        """
        if len(self.sharpness) * len(self.penalties) > 1:
            return None
        kernel = self._kernel(pairs, self.sharpness[0])
        mean = pairs.target.mean(axis=0, dtype=np.float64)
        centred = pairs.target - mean
        apart = _LeastSquares(kernel, pairs).errors_left_out(
            kernel, pairs, self.penalties[0], np.pad(centred, ((0, 0), (0, 1)), constant_values=1.0)
        )
        # The mean of the others is that of all, less a part of the own vector: the smoother is linear in it too.
        return np.asarray(mean + centred - apart[:, :-1] - centred / (len(pairs) - 1) * apart[:, -1:])

    def _choose(self, pairs: Pairs) -> tuple[float, float]:
        choices = list(product(self.sharpness, self.penalties))
        if len(choices) == 1:
            return choices[0]
        fitted, validation = pairs.split(self.validation, seed_of("validation", self.seed))
        errors = []
        for sharpness in self.sharpness:
            kernel = self._kernel(fitted, sharpness)
            squares, seen = _LeastSquares(kernel, fitted), kernel.between(validation.source)
            wanted = validation.target - fitted.target.mean(axis=0, dtype=np.float64)
            errors += [float(((seen @ squares.weights(p) - wanted) ** 2).sum()) for p in self.penalties]
        return choices[int(np.argmin(errors))]

    def _kernel(self, pairs: Pairs, sharpness: float) -> _Kernel:
        chosen = np.random.default_rng(seed_of("centres", self.seed)).permutation(len(pairs))[: self.centres]
        centres = pairs.source[np.sort(chosen)].astype(np.float64)
        some = centres[:: -(-len(centres) // _MEDIAN_OF)]
        apart = _squares_between(some, some)[np.triu_indices(len(some), 1)]
        median = float(np.median(apart)) if len(apart) else 0.0
        return _Kernel(centres, sharpness / median if median > 0 else sharpness)


class _Kernel(NamedTuple):
    """exp(-gamma |x - a|^2) of centres a, (m, d) float64."""

    centres: Doubles
    gamma: float

    def between(self, source: np.ndarray) -> Doubles:
        """(n, m) float64."""
        apart = _squares_between(source.astype(np.float64), self.centres)
        apart *= -self.gamma
        return np.asarray(np.exp(apart, out=apart))


class _LeastSquares:
    """The solution for each penalty: ridge regression in the directions which the centres span.

    Where the centres are the pairs themselves, (K + penalty) alpha = y is the same, for a tenth of the time.
    """

    def __init__(self, kernel: _Kernel, pairs: Pairs) -> None:
        common = kernel.between(kernel.centres)
        self._whitens: Doubles | None = None
        if len(common) == len(pairs):
            self._inner, self._cross = common, pairs.target - pairs.target.mean(axis=0, dtype=np.float64)
            return
        common[np.diag_indices_from(common)] += _JITTER
        self._whitens = np.linalg.inv(np.linalg.cholesky(common)).T
        inner = np.zeros_like(common)
        cross = np.zeros((len(common), pairs.target.shape[1]))
        mean = pairs.target.mean(axis=0, dtype=np.float64)
        for start in range(0, len(pairs), _BLOCK):
            rows = slice(start, start + _BLOCK)
            features = kernel.between(pairs.source[rows]) @ self._whitens
            inner += features.T @ features
            cross += features.T @ (pairs.target[rows] - mean)
        self._inner, self._cross = inner, cross

    def weights(self, penalty: float) -> Doubles:
        """(m, d_out), alpha."""
        penalised = self._inner.copy()
        penalised[np.diag_indices_from(penalised)] += penalty
        solved: Doubles = np.linalg.solve(penalised, self._cross)
        return solved if self._whitens is None else self._whitens @ solved

    def errors_left_out(self, kernel: _Kernel, pairs: Pairs, penalty: float, values: Doubles) -> Doubles:
        """Error on each row of the smoother of all others: (n, k) values -> (n, k)."""
        inner = self._inner.copy()
        inner[np.diag_indices_from(inner)] += penalty
        inverse = np.linalg.inv(inner)
        if self._whitens is None:  # I - H is the inverse times the penalty
            return np.asarray(inverse @ values / np.diag(inverse)[:, None])
        inverse = self._whitens @ inverse @ self._whitens.T
        blocks = [slice(start, start + _BLOCK) for start in range(0, len(pairs), _BLOCK)]
        cross = sum(kernel.between(pairs.source[rows]).T @ values[rows] for rows in blocks)
        errors = np.empty_like(values)
        for rows in blocks:
            features = kernel.between(pairs.source[rows])
            mapped = features @ inverse
            leverage = np.einsum("nm,nm->n", mapped, features)
            errors[rows] = (values[rows] - mapped @ cross) / (1 - leverage)[:, None]
        return errors


def _squares_between(left: Doubles, right: Doubles) -> Doubles:
    """(n, m) squared distances, none below 0."""
    lengths = [np.einsum("nd,nd->n", rows, rows) for rows in (left, right)]
    apart = left @ right.T
    apart *= -2
    apart += lengths[0][:, None]
    apart += lengths[1]
    return np.asarray(np.maximum(apart, 0, out=apart))
