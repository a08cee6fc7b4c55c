"""The residual start: a linear map that is right from the first step, and a network that learns what it misses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.alignment import Alignment, AlignmentLoss
from compatstore.trainers.pairs.loop import Optimiser, require_settings
from compatstore.trainers.pairs.losses import Batch
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import Ridge
from compatstore.trainers.pairs.training import HoldOutBy
from compatstore.trainers.pairs.two_branch import TwoBranch


@dataclass(frozen=True, kw_only=True)
class Residual(Alignment):
    """h(x) = R x + f(x), scaled to unit length where the target is; x is the source vector and its side-information.

    R begins as the ridge solution on the pairs (`Ridge`) and is trained on; f is a network whose last layer begins
    at zero, so that h begins as the best linear map. Where pairs are few or classes are new this is ahead of
    FCT's network, which overfits there, and it is quicker to train. The objective is that of `Alignment`, by distance
    alone as a default: through a head, a map that starts right is drawn to the classes that the pairs have, which
    cost 17 points of CMC-1 on photographs of other classes (docs/results/pairs.md) and gained mAP on the same ones.

    Args:
        width: Width of both hidden layers of f, >= 1.
        dropout: Share of the hidden values that a step drops, in [0, 1).
        noise: Deviation of the noise on the inputs in training, relative to their own deviation, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    loss: AlignmentLoss = "l2"
    epochs: int = 30
    optimiser: Optimiser = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    batch_size: int = 256
    holdout_by: HoldOutBy | None = None
    width: int = 1024
    dropout: float = 0.2
    noise: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        rules = {
            "width >= 1": self.width >= 1,
            "dropout in [0, 1)": 0 <= self.dropout < 1,
            "noise >= 0": self.noise >= 0,
        }
        require_settings("Residual", rules)

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe a linear map beside two hidden layers."""
        return replace(linear, mixer=(self.width, self.width), skip=True)

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, as the ridge solution of the rows."""
        model = TwoBranch(architecture, dropout=self.dropout, noise=self.noise)
        side = None if rows.side is None else rows.side.numpy()
        ridge = Ridge(seed=self.seed).solve(Pairs(rows.source.numpy(), rows.target.numpy(), side=side))
        weight, bias = torch.from_numpy(ridge.weight), torch.from_numpy(ridge.bias)
        with torch.no_grad():
            model.output.weight.zero_()
            model.output.bias.copy_(bias)
            if model.skip is not None:
                model.skip.weight.copy_(weight[:, : architecture.source_dim])
            if model.skip_side is not None:
                model.skip_side.weight.copy_(weight[:, architecture.source_dim :])
        return model
