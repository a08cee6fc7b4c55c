"""Shifts, rotations and scales: MeanShift, orthogonal Procrustes, and DiagonalScale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compatstore.arrays import Doubles
from compatstore.boundary import checked_fields
from compatstore.trainers.pairs.closed_form import AffineMap, ClosedForm, Moments, require_equal_dims
from compatstore.trainers.pairs.pairs import Pairs


@checked_fields
@dataclass(frozen=True, kw_only=True)
class MeanShift(ClosedForm):
    """y = x + (mean of targets - mean of sources), between spaces of one dimension; side-information is not read.

    For a model that was only fine-tuned, and as the baseline of other forms. Lengths say nothing of its errors.
    """

    uncertainty: bool = False
    reads_side: ClassVar[bool] = False

    def solve(self, pairs: Pairs) -> AffineMap:
        """Solve on all rows given.

        Raises:
            InvalidInput: The dimensions differ.
        """
        require_equal_dims("MeanShift", pairs)
        moments = Moments.of(pairs, side=False)
        return AffineMap.through_means(np.eye(pairs.source.shape[1]), moments)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Procrustes(ClosedForm):
    """y = s R (x - mean of x) + mean of y, R orthogonal, or semi-orthogonal where the dimensions differ.

    R = U V^T of the singular value decomposition of the cross-covariance maximises the agreement
    (Schoenemann 1966); between different dimensions this equals filling the shorter vectors up with zeros.

    Lengths say nothing of its errors, as a rotation keeps them.

    Args:
        scale: Whether to fit s by least squares; else s = 1 and distances within the gallery are kept.
    """

    scale: bool = True
    uncertainty: bool = False

    def solve(self, pairs: Pairs) -> AffineMap:
        """Solve on all rows given."""
        moments = Moments.of(pairs)
        rotation = orthogonal(moments)
        if self.scale:
            before, common = _agreement(rotation, moments)
            rotation = rotation * (common.sum() / max(before.sum(), np.finfo(np.float64).tiny))
        return AffineMap.through_means(rotation, moments)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class DiagonalScale(ClosedForm):
    """y = D R (x - mean of x) + mean of y, D diagonal by least squares (Drift-Adapter, arXiv 2509.23471).

    Args:
        rotate: Whether R is the solution of Procrustes; else R = 1, the dimensions must be equal, and
            side-information is not of use.
    """

    rotate: bool = True

    def solve(self, pairs: Pairs) -> AffineMap:
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
        return AffineMap.through_means(scales[:, None] * rotation, moments)


def orthogonal(moments: Moments) -> Doubles:
    """Return the (d_out, d_in) matrix with orthonormal rows or columns that brings x closest to y, centred."""
    left, _, right = np.linalg.svd(moments.cross.T, full_matrices=False)
    return np.asarray(left @ right)


def _agreement(rotation: Doubles, moments: Moments) -> tuple[Doubles, Doubles]:
    """Return the variance of each rotated dimension, and its covariance with the target's: both (d_out,)."""
    before = np.einsum("oi,ij,oj->o", rotation, moments.inputs, rotation, optimize=True)
    common = np.einsum("oi,io->o", rotation, moments.cross)
    return before, common
