"""Residual networks: a linear map plus a network for its residuals; for vectors, or for queries of the target."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar

import torch
from torch import nn
from torch.nn.utils import parametrize

from compatstore.artifacts.architecture import Architecture
from compatstore.artifacts.artifact import Artifact
from compatstore.boundary import checked, checked_fields
from compatstore.trainers.pairs.fastfill import AlignmentLoss, FastFill, alignment
from compatstore.trainers.pairs.loop import Batch, Objective
from compatstore.trainers.pairs.pairs import Pairs
from compatstore.trainers.pairs.ridge import Ridge
from compatstore.trainers.pairs.through_head import HeadTraining
from compatstore.trainers.pairs.trainer import PairTrainer, describe, held_out_figures, without_holdout
from compatstore.trainers.pairs.training import AdamOptimiser, HoldOutBy, TransformTraining
from compatstore.trainers.pairs.two_branch import TwoBranch
from compatstore.trainers.settings import BatchRows, Count, NotNegative, Positive, Share
from compatstore.trainers.training import OnEpoch


@checked_fields
@dataclass(frozen=True, kw_only=True)
class Residual(HeadTraining):
    """h(x) = R x + f(x), scaled to unit length if the target is; x is the source vector and its side-information.

    R begins as the ridge solution on the pairs (`Ridge`) and is trained on; f is a network whose last layer begins at
    zero, so that h begins as the best linear map. Where pairs are few or classes are new, retrieval is better than by
    FCT's network, which overfits there, and training takes less time. The objective is FastFill's, by distance alone
    as a default: the loss through a head moves vectors towards the classes of the pairs, which cost 17 points of CMC-1
    on photographs of other classes (docs/results/pairs.md) and gained mAP on the same ones.

    Args:
        loss: "l2", "disc", or "l2+disc", their sum. Without labels "l2+disc" trains "l2", with a note.
        uncertainty: True to learn sigma^2; else the loss is the mean of the sum alone.
        width: Width of both hidden layers of f, >= 1.
        dropout: Share of the hidden values that a step drops, in [0, 1).
        noise: Deviation of the noise on the inputs in training, relative to their own deviation, >= 0.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    optimiser: ClassVar[AdamOptimiser] = "adamw"

    loss: AlignmentLoss = "l2"
    uncertainty: bool = True
    epochs: Count = 30
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 0.05
    batch_size: BatchRows = 256
    holdout_by: HoldOutBy | None = None
    width: Count = 1024
    dropout: Share = 0.2
    noise: NotNegative = 0.1

    def objective(self, pairs: Pairs) -> Objective:
        """Return the loss on these pairs; errors as in `alignment`."""
        return alignment(self, pairs, self.loss, FastFill.inverse_lambda if self.uncertainty else None)

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe a linear map beside two hidden layers."""
        return replace(linear, mixer=(self.width, self.width), skip=True)

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, as the ridge solution of the rows."""
        model = TwoBranch(architecture, dropout=self.dropout, noise=self.noise)
        side = None if rows.side is None else rows.side.numpy()
        ridge = Ridge(seed=self.seed).solve(Pairs(rows.source.numpy(), rows.target.numpy(), side=side)).tensors
        weight, bias = torch.from_numpy(ridge["mixer.0.weight"]), torch.from_numpy(ridge["mixer.0.bias"])
        with torch.no_grad():
            model.output.weight.zero_()
            model.output.bias.copy_(bias)
            if model.skip is not None:
                model.skip.weight.copy_(weight[:, : architecture.source_dim])
            if model.skip_side is not None:
                model.skip_side.weight.copy_(weight[:, architecture.source_dim :])
        return model


@checked_fields
@dataclass(frozen=True, kw_only=True)
class RBT(TransformTraining):
    """Wang et al., "Unified Representation Learning for Cross Model Compatibility" (BMVC 2020), as FCT measures it.

    h(x) = x + sum over paths of d -> bottleneck -> bottleneck -> d, by FCT's squared distance and schedule (its
    appendix J); a learnt linear map takes the place of x if the dimensions differ. The paths are one network
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


@checked_fields
@dataclass(frozen=True, kw_only=True)
class DriftAdapter(TransformTraining):
    """The residual network of "Drift-Adapter" (arXiv 2509.23471): h(x) = x + W2 relu(W1 x + b1) + b2.

    A learnt linear map takes the place of x if the dimensions differ. Trained by squared distance. The paper's
    activation is a GELU; a ReLU keeps the network plain dense layers. Of all networks here it is the
    cheapest to apply to a query.

    Args:
        width: Width of the hidden layer, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    optimiser: ClassVar[AdamOptimiser] = "adamw"

    epochs: Count = 50
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 1e-2
    batch_size: BatchRows = 256
    width: Count = 256

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe a linear map beside one hidden layer."""
        return replace(linear, mixer=(self.width,), skip=True)

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, without batch normalisation and from the identity where that is possible."""
        model = TwoBranch(architecture, norm=False)
        start_from_identity(model)
        return model


def start_from_identity(model: TwoBranch) -> None:
    """Fix the linear map of the source at the identity, where source and output have one dimension."""
    if model.skip is not None and model.skip.in_features == model.skip.out_features:
        nn.init.eye_(model.skip.weight)
        model.skip.weight.requires_grad_(False)


@checked_fields
@dataclass(frozen=True, kw_only=True)
class QueryAdapter:
    """Learn a map target -> source for queries (Drift-Adapter, arXiv 2509.23471).

    Args:
        form: The map: any trainer on pairs, a closed form or a network; it is trained from target to source.
        holdout: Share of the rows kept out of learning to measure on, in [0, 1); 0 measures nothing. Takes the place
            of the form's own.
        seed: Of the choice of rows held out.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    form: PairTrainer = field(default_factory=Ridge)
    holdout: Share = 0.1
    seed: int = 0

    @checked
    def fit(self, pairs: Pairs, progress: OnEpoch | None = None) -> Artifact:
        """Learn from pairs in the direction of the upgrade, source to target; the map is trained from target to source.

        Args:
            pairs: Training pairs; side-information is left out, as a query has none.
            progress: Called after each epoch, if there are any.

        Returns:
            A QueryAdapter of the upgrade source -> target. In its figures the recall is that of adapted queries among
            the native source vectors, against a native source query.

        Raises:
            InvalidInput: The form cannot learn from these pairs.
        """
        kept, held_out = pairs.split(self.holdout, self.seed) if self.holdout else (pairs, None)
        source, target = kept.target_version, kept.source_version
        backwards = Pairs(kept.target, kept.source, labels=kept.labels, source_version=source, target_version=target)
        learned = without_holdout(self.form).fit(backwards, progress)
        figures = learned.manifest.figures
        adapter = Artifact.create(
            "QueryAdapter",
            method=learned.manifest.method,
            source=pairs.source_space,
            target=pairs.target_space,
            networks=learned.manifest.networks,
            tensors=learned.tensors,
            settings=asdict(self) | {"form": describe(self.form)},
            figures=figures,
            seen=pairs.seen,
        )
        if held_out is None:
            return adapter
        adapted = adapter.apply(held_out.target).vectors
        measured = held_out_figures(adapted, held_out.source, held_out.source_space.metric, transformed="queries")
        return adapter.amended(figures={**figures, "h": {**figures.get("h", {}), **measured}})
