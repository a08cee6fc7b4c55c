"""Residual bottleneck transformation: the identity plus a few narrow paths."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn.utils import parametrize

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.objective import Batch
from compatstore.trainers.pairs.training import TransformTraining
from compatstore.trainers.pairs.two_branch import TwoBranch, start_from_identity
from compatstore.trainers.settings import Count


@dataclass(frozen=True, kw_only=True)
class RBT(TransformTraining):
    """Wang et al., "Unified Representation Learning for Cross Model Compatibility" (BMVC 2020), as FCT measures it.

    h(x) = x + sum over paths of d -> bottleneck -> bottleneck -> d, by FCT's squared distance and schedule (its
    appendix J); a learnt linear map takes the place of x where the dimensions differ. The paths are one network
    whose middle is block-diagonal. Side-information, where the pairs have it, enters the paths (and a linear map)
    beside x.

    Args:
        paths: Number of paths, >= 1.
        bottleneck: Width of a path, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    paths: Count = 4
    bottleneck: Count = 16

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe all paths as one network beside a linear map."""
        width = self.paths * self.bottleneck
        return replace(linear, mixer=(width, width), skip=True)

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, its paths kept apart."""
        model = TwoBranch(architecture)
        start_from_identity(model)
        middle = [module for module in model.mixer if isinstance(module, nn.Linear)][1]
        parametrize.register_parametrization(middle, "weight", _BlockDiagonal(self.paths, self.bottleneck))
        return model


class _BlockDiagonal(nn.Module):
    """Keeps a square weight zero outside of its blocks."""

    mask: torch.Tensor

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.kron(torch.eye(blocks), torch.ones(width, width)))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * self.mask
