"""Drift-Adapter's residual network: the vector itself, and a small correction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.objective import Batch
from compatstore.trainers.pairs.training import AdamOptimiser, TransformTraining
from compatstore.trainers.pairs.two_branch import TwoBranch, start_from_identity
from compatstore.trainers.settings import BatchRows, Count, NotNegative, Positive


@dataclass(frozen=True, kw_only=True)
class DriftAdapter(TransformTraining):
    """The residual network of "Drift-Adapter" (arXiv 2509.23471): h(x) = x + W2 relu(W1 x + b1) + b2.

    A learnt linear map takes the place of x where the dimensions differ. Trained by squared distance. The paper's
    activation is a GELU; a ReLU keeps the network plain dense layers. Of all networks here it is the
    cheapest to apply to a query.

    Args:
        width: Width of the hidden layer, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    epochs: Count = 50
    optimiser: AdamOptimiser = "adamw"
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
