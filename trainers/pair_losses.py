"""Losses between what a network says about items and what the target model says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch.nn import functional

from compatstore.trainers.two_branch import Prediction


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Some pairs as tensors.

    Args:
        source: (n, source dim) float32.
        target: (n, target dim) float32, what is to be predicted.
        side: (n, side dim) float32, or None.
    """

    source: torch.Tensor
    target: torch.Tensor
    side: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: torch.Tensor, device: torch.device) -> Batch:
        """Return some rows, on a device."""
        present = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: t[rows].to(device) for name, t in present.items() if t is not None})


Loss = Callable[[Prediction, Batch], torch.Tensor]


def squared_distance(prediction: Prediction, batch: Batch) -> torch.Tensor:
    """Squared L2 norm of the error, summed over dimensions and averaged over the batch (FCT, equation 3)."""
    return (prediction.vectors - batch.target).square().sum(dim=1).mean()


def head_divergence(head: torch.Tensor, *, reverse: bool) -> Loss:
    """KL divergence between the classes that the target's frozen head gives target and prediction (FCT, ablation).

    Args:
        head: (classes, target dim) float32.
        reverse: Whether the prediction's distribution is the reference, KL(prediction | target).

    Returns:
        The loss, averaged over the batch.
    """

    def loss(prediction: Prediction, batch: Batch) -> torch.Tensor:
        weight = head.to(batch.target.device)
        said = functional.log_softmax(prediction.vectors @ weight.T, dim=1)
        true = functional.log_softmax(batch.target @ weight.T, dim=1)
        tested, reference = (true, said) if reverse else (said, true)
        return functional.kl_div(tested, reference, log_target=True, reduction="batchmean")

    return loss
