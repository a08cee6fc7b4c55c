"""Losses between what a network says about items and what the target model says, one value an item."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch.nn import functional

from compatstore.trainers.pairs.two_branch import Prediction


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Some pairs as tensors.

    Args:
        source: (n, source dim) float32.
        target: (n, target dim) float32, what is to be predicted.
        side: (n, side dim) float32, or None.
        classes: (n,) int64, rows of the target's head, -1 for a class that it does not know; or None.
    """

    source: torch.Tensor
    target: torch.Tensor
    side: torch.Tensor | None = None
    classes: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: torch.Tensor) -> Batch:
        """Return some rows, on the device where all lie."""
        return self._each(lambda tensor: tensor[rows])

    def to(self, device: torch.device) -> Batch:
        """Return all rows, on a device."""
        return self._each(lambda tensor: tensor.to(device))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        present = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: change(tensor) for name, tensor in present.items() if tensor is not None})


Loss = Callable[[Prediction, Batch], torch.Tensor]
"""(predictions of n rows, the rows) -> (n,), the loss of each row."""


def squared_distance(prediction: Prediction, batch: Batch) -> torch.Tensor:
    """Squared L2 norm of each row's error, summed over dimensions: (n,) (FCT, equation 3)."""
    return (prediction.vectors - batch.target).square().sum(dim=1)


def head_divergence(head: torch.Tensor, *, reverse: bool) -> Loss:
    """KL divergence between the classes that the target's frozen head gives target and prediction (FCT, ablation).

    Args:
        head: (classes, target dim) float32.
        reverse: Whether the prediction's distribution is the reference, KL(prediction | target).

    Returns:
        The loss of each row.
    """

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        said = functional.log_softmax(prediction.vectors @ head.T, dim=1)
        true = functional.log_softmax(batch.target @ head.T, dim=1)
        tested, reference = (true, said) if reverse else (said, true)
        return functional.kl_div(tested, reference, log_target=True, reduction="none").sum(dim=1)

    return loss
