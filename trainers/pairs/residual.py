"""The residual start: a ridge solution, and a network that is trained on its errors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.fastfill import AlignmentLoss, alignment
from compatstore.trainers.pairs.objective import Batch, Objective
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import Ridge
from compatstore.trainers.pairs.through_head import HeadTraining
from compatstore.trainers.pairs.training import AdamOptimiser, HoldOutBy
from compatstore.trainers.pairs.two_branch import TwoBranch
from compatstore.trainers.settings import BatchRows, Count, NotNegative, Positive, Share


@dataclass(frozen=True, kw_only=True)
class Residual(HeadTraining):
    """h(x) = R x + f(x), scaled to unit length where the target is; x is the source vector and its side-information.

    R begins as the ridge solution on the pairs (`Ridge`) and is trained on; f is a network whose last layer begins at
    zero, so that h begins as the best linear map. Where pairs are few or classes are new, retrieval is better than by
    FCT's network, which overfits there, and training takes less time. The objective is FastFill's, by distance alone
    as a default: the loss through a head moves vectors towards the classes of the pairs, which cost 17 points of CMC-1
    on photographs of other classes (docs/results/pairs.md) and gained mAP on the same ones.

    Args:
        loss: "l2", "disc", or "l2+disc", their sum. Without labels "l2+disc" trains "l2" and a note says that.
        uncertainty: Whether to learn sigma^2; without, the loss is the mean of the sum alone.
        inverse_lambda: 1/lambda of FastFill's equation 5, divided by the target's dimension, > 0; see `FastFill`.
        width: Width of both hidden layers of f, >= 1.
        dropout: Share of the hidden values that a step drops, in [0, 1).
        noise: Deviation of the noise on the inputs in training, relative to their own deviation, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    loss: AlignmentLoss = "l2"
    uncertainty: bool = True
    inverse_lambda: Positive = 1.0
    epochs: Count = 30
    optimiser: AdamOptimiser = "adamw"
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 0.05
    batch_size: BatchRows = 256
    holdout_by: HoldOutBy | None = None
    width: Count = 1024
    dropout: Share = 0.2
    noise: NotNegative = 0.1

    def objective(self, pairs: Pairs) -> Objective:
        """Return what to minimise on these pairs; errors as in `alignment`."""
        return alignment(self, pairs, self.loss, self.inverse_lambda if self.uncertainty else None)

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
