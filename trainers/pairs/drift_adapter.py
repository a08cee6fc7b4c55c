"""Drift-Adapter's residual network: the vector itself, and a small correction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from compatstore.artifacts.architecture import Architecture
from compatstore.trainers.pairs.loop import Optimiser, require_settings
from compatstore.trainers.pairs.losses import Batch
from compatstore.trainers.pairs.training import TransformTraining
from compatstore.trainers.pairs.two_branch import TwoBranch, start_from_identity


@dataclass(frozen=True, kw_only=True)
class DriftAdapter(TransformTraining):
    """The residual network of "Drift-Adapter" (arXiv 2509.23471): h(x) = x + W2 relu(W1 x + b1) + b2.

    A learnt linear map takes the place of x where the dimensions differ. Trained by squared distance. The paper's
    activation is a GELU; a ReLU keeps the network plain dense layers. Of all methods it is the one that is the
    cheapest to apply to a query.

    Args:
        width: Width of the hidden layer, >= 1.

    Raises:
        InvalidInput: A setting is out of its range.
    """

    epochs: int = 50
    optimiser: Optimiser = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    batch_size: int = 256
    width: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require_settings("DriftAdapter", {"width >= 1": self.width >= 1})

    def architecture(self, linear: Architecture) -> Architecture:
        """Describe a linear map beside one hidden layer."""
        return replace(linear, mixer=(self.width,), skip=True)

    def network(self, architecture: Architecture, rows: Batch) -> TwoBranch:
        """Build the network, without batch normalisation and from the identity where that is possible."""
        model = TwoBranch(architecture, norm=False)
        start_from_identity(model)
        return model
