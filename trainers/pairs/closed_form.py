"""Closed forms: maps that are solved, without a training loop; affine ones from first and second moments of pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from compatstore.arrays import Doubles, FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.artifacts.network import Execution, Network
from compatstore.boundary import checked
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.pairs import Pairs, unit_length
from compatstore.trainers.pairs.trainer import forward_transform, hop_figures
from compatstore.trainers.settings import Share
from compatstore.trainers.training import OnEpoch

if TYPE_CHECKING:
    from compatstore.trainers.pairs.ridge import LeastSquares

# Rows that are float64 at one time: 50 MB at 128 + 256 values.
_BLOCK = 16_384


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of n pairs (x, y), x being the source vector with the side-information behind it; float64.

    Args:
        input_mean: (d_in,), the point that x is centred on.
        output_mean: (d_out,), the point that y is centred on.
        inputs: (d_in, d_in), mean of x x^T, centred.
        cross: (d_in, d_out), mean of x y^T, centred.
        output_square: Mean squared length of y, centred.
        factor: (n, d_in) with factor^T factor = inputs if there are fewer rows than values; else None. It
            gives the n directions of a solution in n^2 d_in steps instead of d_in^3.
    """

    input_mean: Doubles
    output_mean: Doubles
    inputs: Doubles
    cross: Doubles
    output_square: float
    factor: Doubles | None = None

    @classmethod
    def of(cls, pairs: Pairs, *, about: Moments | None = None) -> Moments:
        """Gather the moments.

        Args:
            pairs: The rows.
            about: Centre on the means of these moments: the error on other rows of a map fitted to
                them follows from such moments exactly, its intercept included. None centres on the rows' own means.
        """
        parts = [pairs.source] if pairs.side is None else [pairs.source, pairs.side]
        if about is None:
            input_mean = np.concatenate([part.mean(axis=0, dtype=np.float64) for part in parts])
            output_mean = pairs.target.mean(axis=0, dtype=np.float64)
        else:
            input_mean, output_mean = about.input_mean, about.output_mean
        inputs = np.zeros((len(input_mean), len(input_mean)))
        cross = np.zeros((len(input_mean), len(output_mean)))
        n, square, factor = len(pairs), 0.0, None
        for start in range(0, n, _BLOCK):
            rows = slice(start, start + _BLOCK)
            x = np.concatenate([part[rows] for part in parts], axis=1, dtype=np.float64) - input_mean
            y = pairs.target[rows].astype(np.float64) - output_mean
            if n == len(x) < len(input_mean):
                factor = x / n**0.5
            inputs += x.T @ x
            cross += x.T @ y
            square += float(np.vdot(y, y))
        return cls(input_mean, output_mean, inputs / n, cross / n, square / n, factor)


class Solution(NamedTuple):
    """A map as a network.

    Attributes:
        architecture: Of the network.
        tensors: Its weights, of any float type.
        chosen: Settings that were chosen by the solution, for the figures ("penalty").
    """

    architecture: Architecture
    tensors: Mapping[str, Doubles]
    chosen: Mapping[str, float]

    @classmethod
    def affine(
        cls, pairs: Pairs, weight: Doubles, moments: Moments, chosen: Mapping[str, float] | None = None
    ) -> Solution:
        """One dense layer of weight (d_out, d_in); its bias maps the mean input to the mean output, which is best."""
        architecture = Architecture(
            source_dim=pairs.source.shape[1],
            side_dim=weight.shape[1] - pairs.source.shape[1] or None,
            output_dim=len(weight),
            normalise=unit_length(pairs.target),
        )
        bias = moments.output_mean - weight @ moments.input_mean
        return cls(architecture, {"mixer.0.weight": weight, "mixer.0.bias": bias}, chosen or {})


@dataclass(frozen=True, kw_only=True)
class ClosedForm(ABC):
    """Settings of all closed forms, whose output is scaled to unit length if the target space is.

    Affine ones are one dense layer, whose input is the source vector and the side-information, if the pairs have it.

    Args:
        uncertainty: True if sigma^2 is derived from the length of a prediction, for target vectors of unit length:
            least squares predicts only the part of a vector that follows from the source, so short ones are uncertain.
        holdout: Share of the rows kept out of the solution to measure on, in [0, 1); 0 measures nothing.
        seed: Of the choice of rows held out.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    uncertainty: bool = True
    holdout: Share = 0.1
    seed: int = 0

    @abstractmethod
    def solve(self, pairs: Pairs) -> Solution:
        """Solve for the map on all rows given.

        Raises:
            InvalidInput: The form cannot map between these dimensions, or there are too few rows.
        """

    def left_out(self, pairs: Pairs, squares: LeastSquares) -> Doubles | None:
        """Prediction of each pair by the solution on all others, without a second solution.

        Args:
            pairs: The pairs.
            squares: Of their moments, which forms share.

        Returns:
            (n, d_out) float64, before vectors are scaled to unit length; None if only other solutions tell.
        """
        return None

    def held_out(self, pairs: Pairs, squares: LeastSquares) -> tuple[FloatArray, FloatArray | None] | None:
        """`left_out` as an artifact transforms: (n, d_out) float32, and sigma^2 (n,) float32 or None."""
        vectors = self.left_out(pairs, squares)
        if vectors is None:
            return None
        if not unit_length(pairs.target):
            return vectors.astype(np.float32), None
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), np.finfo(np.float32).tiny)
        made = (vectors / lengths[:, None]).astype(np.float32)
        return made, (1 / lengths**2).astype(np.float32) if self.uncertainty else None

    @checked
    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Solve on pairs.

        Args:
            pairs: Training pairs; the artifact is bound to the fingerprints of the versions that the pairs name.
            progress: Not called: there are no epochs. Every trainer on pairs takes it.

        Returns:
            A ForwardTransform; its figures are measured on held-out rows with the network as it is stored.

        Raises:
            InvalidInput: The form cannot map between these dimensions, or there are too few rows.
        """
        kept, held_out = pairs.split(self.holdout, self.seed) if self.holdout else (pairs, None)
        architecture, solved, chosen = self.solve(kept)
        if self.uncertainty and architecture.normalise:
            architecture = replace(architecture, uncertainty="length")
        tensors = {name: np.ascontiguousarray(tensor, dtype=np.float32) for name, tensor in solved.items()}
        network, figures = Network(architecture, tensors), dict[str, Any](chosen)
        if held_out is not None:
            side = None if architecture.side_dim is None else held_out.side
            made = network.run(held_out.source, side, Execution())
            figures |= hop_figures(*made, held_out, held_out.target_space.metric)
        return forward_transform(self, pairs, {"h": network}, {"h": figures})


def require_equal_dims(form: str, pairs: Pairs) -> None:
    """Refuse pairs of spaces of different dimensions.

    Raises:
        InvalidInput: Names both.
    """
    source, target = pairs.source.shape[1], pairs.target.shape[1]
    if source != target:
        expected, found = "source and target of one dimension", f"{source} and {target}"
        raise InvalidInput(f"fit {form}", expected=expected, found=found, fix="Take Procrustes or Ridge.")
