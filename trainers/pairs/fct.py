"""Forward-compatible training: learn to transform stored vectors into the target space."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from compatstore.artifacts.architecture import Architecture
from compatstore.boundary import checked_fields
from compatstore.errors import InvalidInput
from compatstore.trainers.pairs.loop import Batch, Loss, Objective, tensor
from compatstore.trainers.pairs.pairs import Pairs, unit_length
from compatstore.trainers.pairs.training import TransformTraining
from compatstore.trainers.pairs.two_branch import Prediction, TwoBranch
from compatstore.trainers.settings import Count

LossName = Literal["l2", "kl", "reversed-kl"]


@checked_fields
@dataclass(frozen=True, kw_only=True)
class FCT(TransformTraining):
    """Ramanujan et al., "Forward Compatible Training for Large-Scale Embedding Retrieval Systems" (CVPR 2022).

    Trains h(source, side) -> target, without a side branch where the pairs carry no side-information. Further
    settings are those of `TransformTraining`.

    Args:
        branch_width: Width of both layers of a branch, >= 1.
        mixer_width: Width of both hidden layers of the mixer, >= 1.
        bias: True if layers before a batch normalisation have a bias.
        loss: "l2", the squared distance summed over dimensions and averaged over the batch; "kl" or "reversed-kl"
            between the classes that the target's head gives, as ablations: they need `Pairs.head`.
        uncertainty: True to derive sigma^2 from the output's length (not in the paper): the squared distance to vectors
            of unit length is least at their mean, which is shorter the less the source determines them. Outputs are
            then scaled to unit length in use alone, and sigma^2 = 1 / |output|^2.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    branch_width: Count = 256
    mixer_width: Count = 2048
    bias: bool = True
    loss: LossName = "l2"
    uncertainty: bool = False

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe the paper's network."""
        described = two_branches(linear, self.branch_width, self.mixer_width)
        return replace(described, uncertainty="length") if self.uncertainty and linear.normalise else described

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, from random weights.

        If sigma^2 is derived from the length, its first output is the mean of the targets: after few steps it is nearer
        to them than one that starts from random weights.
        """
        network = TwoBranch(architecture, bias=self.bias)
        if architecture.uncertainty == "length":
            nn.init.zeros_(network.output.weight)
            with torch.no_grad():
                network.output.bias.copy_(rows.target.mean(dim=0))
        return network

    def objective(self, pairs: Pairs) -> Objective:
        """Return the loss.

        Raises:
            InvalidInput: A divergence through a head that the pairs lack, or sigma^2 without the squared distance to
                vectors of unit length.
        """
        if self.uncertainty and (self.loss != "l2" or not unit_length(pairs.target)):
            found = f"loss {self.loss}" if self.loss != "l2" else "vectors of other lengths"
            expected = "the loss l2, and target vectors of unit length"
            raise InvalidInput("train FCT with uncertainty", expected=expected, found=found)
        if self.loss == "l2":
            return Objective()
        if pairs.head is None:
            operation = f"train FCT with loss {self.loss}"
            raise InvalidInput(operation, expected="pairs with the target's head", found="none")
        head = tensor(pairs.head).to(self.torch_device)
        return Objective(error=head_divergence(head, reverse=self.loss == "reversed-kl"))


def two_branches(linear: Architecture, branch_width: int, mixer_width: int) -> Architecture:
    """Describe FCT's network: two layers a branch, two in the mixer (FCT, section 3.3 and appendix D.1)."""
    branch = (branch_width, branch_width)
    side_branch = () if linear.side_dim is None else branch
    return replace(linear, source_branch=branch, side_branch=side_branch, mixer=(mixer_width, mixer_width))


def head_divergence(head: torch.Tensor, *, reverse: bool) -> Loss:
    """KL divergence between the classes that the target's frozen head gives target and prediction (FCT, appendix E).

    Args:
        head: (classes, target dim) float32.
        reverse: True if the prediction's distribution is the reference, KL(prediction | target).

    Returns:
        The loss of each row.
    """

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        predicted = functional.log_softmax(prediction.vectors @ head.T, dim=1)
        true = functional.log_softmax(batch.target @ head.T, dim=1)
        tested, reference = (true, predicted) if reverse else (predicted, true)
        return functional.kl_div(tested, reference, log_target=True, reduction="none").sum(dim=1)

    return loss
