"""Forward-compatible training: learn to transform stored vectors into the target space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch

from compatstore.arrays import FloatArray
from compatstore.artifacts.architecture import Architecture
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.fold import Tensors, fold_zero_side
from compatstore.trainers.pairs.loop import require_settings
from compatstore.trainers.pairs.losses import Batch, head_divergence
from compatstore.trainers.pairs.objective import Objective
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.training import TransformTraining
from compatstore.trainers.pairs.two_branch import TwoBranch

LossName = Literal["l2", "kl", "reversed-kl"]


@dataclass(frozen=True, kw_only=True)
class FCT(TransformTraining):
    """Ramanujan et al., "Forward Compatible Training for Large-Scale Embedding Retrieval Systems" (CVPR 2022).

    Trains h(source, side) -> target, without a side branch where the pairs carry no side-information. Further
    settings are those of `TransformTraining` and, of the loop, `PairTraining`.

    Args:
        branch_width: Width of both layers of a branch, >= 1.
        mixer_width: Width of both hidden layers of the mixer, >= 1.
        bias: Whether layers before a batch normalisation have a bias.
        loss: "l2", the squared distance summed over dimensions and averaged over the batch; "kl" or "reversed-kl"
            between the classes that the target's head gives, as ablations: they need `Pairs.head`.
        zero_side: Feed zeros to a side branch, as the paper does without side-information: an ablation.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    branch_width: int = 256
    mixer_width: int = 2048
    bias: bool = True
    loss: LossName = "l2"
    zero_side: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = {
            "branch_width >= 1": self.branch_width >= 1,
            "mixer_width >= 1": self.mixer_width >= 1,
            f"loss of {get_args(LossName)}": self.loss in get_args(LossName),
        }
        require_settings("FCT", rules)

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe the paper's network."""
        return two_branches(linear, self.branch_width, self.mixer_width)

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, from random weights."""
        return TwoBranch(architecture, bias=self.bias)

    def objective(self, pairs: Pairs) -> Objective:
        """Say what to train for.

        Raises:
            InvalidInput: A divergence through a head that the pairs lack.
        """
        if self.loss == "l2":
            return Objective()
        if pairs.head is None:
            asked = f"train FCT with loss {self.loss}"
            raise InvalidInput(asked, expected="pairs with the target's head", found="none")
        head = torch.from_numpy(pairs.head).to(self.torch_device)
        return Objective(error=head_divergence(head, reverse=self.loss == "reversed-kl"))

    def side(self, pairs: Pairs) -> FloatArray | None:
        """Return the side-information, or zeros for the ablation."""
        if self.zero_side:
            return np.zeros_like(pairs.source if pairs.side is None else pairs.side)
        return pairs.side

    def finish(self, architecture: Architecture, tensors: Tensors) -> tuple[Architecture, Tensors]:
        """Drop a side branch that was fed zeros."""
        return fold_zero_side(architecture, tensors) if self.zero_side else (architecture, tensors)


def two_branches(linear: Architecture, branch_width: int, mixer_width: int) -> Architecture:
    """Describe FCT's network: two layers a branch, two in the mixer (its section 3.2 and appendix)."""
    branch = (branch_width, branch_width)
    side_branch = () if linear.side_dim is None else branch
    return replace(linear, source_branch=branch, side_branch=side_branch, mixer=(mixer_width, mixer_width))
