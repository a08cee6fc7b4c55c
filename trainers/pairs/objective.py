"""What a network on pairs minimises: a loss of each row, divided by the sigma^2 that the network predicts for the row.

Shapes: n rows of a batch, d_t dimensions of the target. Without uncertainty the loss of each row is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace

import torch
from torch import nn

from compatstore.trainers.pairs.head import Head
from compatstore.trainers.pairs.two_branch import Prediction, TwoBranch

# No data reaches these bounds (errors of 1e-13 or 1e13); they keep the exponential a finite float32.
_LOG_SIGMA2 = 30.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Some pairs as tensors.

    Args:
        source: (n, source dim) float32.
        target: (n, target dim) float32, what is to be predicted.
        side: (n, side dim) float32, or None.
        classes: (n,) int64, rows of the target's head, -1 for a class without a row; or None.
    """

    source: torch.Tensor
    target: torch.Tensor
    side: torch.Tensor | None = None
    classes: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: torch.Tensor) -> Batch:
        """Return some rows, on the device of the batch."""
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> Batch:
        """Return all rows, on a device."""
        return self._each(lambda tensor: tensor.to(device))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        present = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(tensor) for name, tensor in present.items() if tensor is not None})


Loss = Callable[[Prediction, Batch], torch.Tensor]
"""(predictions of n rows, the rows) -> (n,) float32, the loss of each row."""


def squared_distance(prediction: Prediction, batch: Batch) -> torch.Tensor:
    """Squared L2 norm of each row's error, summed over dimensions: (n,) (FCT, section 3.3)."""
    return (prediction.vectors - batch.target).square().sum(dim=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective:
    """A loss of each row, and how the losses of rows are weighted.

    Args:
        error: Loss of each row; sigma^2 is trained to predict it.
        inverse_lambda: 1/lambda of FastFill's equation 5; None trains without uncertainty.
        head: Frozen classifier head that `error` reads, or None.
        resolved: Settings that were decided from the pairs, JSON-able, for the manifest: {"disc": "arcface"}.
        note: Message to the user about these pairs, or "".
    """

    error: Loss = squared_distance
    inverse_lambda: float | None = None
    head: Head | None = None
    resolved: Mapping[str, str | float] = field(default_factory=dict)
    note: str = ""

    @property
    def uncertainty(self) -> bool:
        """Whether the network has to predict log sigma^2."""
        return self.inverse_lambda is not None

    def __call__(self, prediction: Prediction, batch: Batch) -> torch.Tensor:
        """Weigh each row: error / sigma^2 + (1/lambda) log sigma^2, (n,) (FastFill, equation 5)."""
        error = self.error(prediction, batch)
        if self.inverse_lambda is None or prediction.log_sigma2 is None:
            return error
        log_sigma2 = prediction.log_sigma2.clamp(-_LOG_SIGMA2, _LOG_SIGMA2)
        return error * torch.exp(-log_sigma2) + self.inverse_lambda * log_sigma2

    def start(self, model: TwoBranch, rows: Batch) -> None:
        """Set the sigma^2 of all rows to the constant that minimises the objective for the mean error of some rows.

        Random initial weights of sigma^2 would weigh rows at random, and gradients would change vectors to change
        their sigma^2.
        """
        if self.inverse_lambda is None or model.log_sigma2 is None:
            return
        with torch.inference_mode():
            error = self.error(model.eval()(rows.source, rows.side), rows).mean().item()
        nn.init.zeros_(model.log_sigma2.weight)
        nn.init.constant_(model.log_sigma2.bias, math.log(max(error, 1e-12) / self.inverse_lambda))
